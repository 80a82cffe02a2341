"""A copy that an earlier run finished but did not file, because it ended between the last rename and the receipt.

The key is in the vault and the release is complete, so running the same request again files it without writing files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

import irwm
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.files import CHUNK, open_regular, open_seen, read_into
from irwm.errors import CancelledError, IrwmError, OutputExistsError
from irwm.evidence.detection import detect_marks
from irwm.keys.check_original import check_original, placed
from irwm.release import MANIFEST_NAME, read_manifest, verify_manifest
from irwm.release.front_matter import Rewrite, rewrites_of
from irwm.release.neurons import neurons_of
from irwm.release.patches import NoisyRows, row_patches
from irwm.release.selection import SourceFile, select_files
from irwm.release.unmarked import holders

_ROWS_AT_ONCE = 8192


def finished(
    model: Checkpoint,
    key: irwm.Key,
    folder: Path,
    *,
    cancelled: Callable[[], bool],
    device: str,
    also: Sequence[str] = (),
    base_model: str = "",
) -> irwm.Release | None:
    """The finished copy in this key's folder, as `irwm.insert` returned it, but without a signature: anyone may have
    written the one that is there. None if the folder does not exist.

    Args:
        also, base_model: other files in the copy, and the base model in its card, as for `irwm.insert`.

    Raises:
        OutputExistsError: the folder is not that copy, and is not changed.
        CancelledError: stopped on request.
    """
    if not os.path.lexists(folder):
        return None
    if not os.path.lexists(folder / MANIFEST_NAME):
        raise _occupied(folder, f"no manifest ({MANIFEST_NAME})")
    selection, patched, rewrites = select_files(model, also), _patched(model, key), rewrites_of(model, base_model, also)
    try:
        manifest = read_manifest(folder)
        check = verify_manifest(folder, cancelled=cancelled)
        if not check.ok:
            differing = [*check.changed, *check.missing, *check.extra]
            raise _occupied(folder, f"files that differ from the manifest: {len(differing)} (first: {differing[0]})")
        _require_original(selection.files, patched, rewrites, folder, set(manifest.files), cancelled)
        copy = irwm.open_checkpoint(folder)
        examination = irwm.Examination(copy, model, device)
        found = [  # the marks, as `insert` verifies them
            finding
            for place, (_, part) in placed(key, model).items()
            for finding in detect_marks(examination.at(place), [part])
        ]
        if (neurons := neurons_of(model, key)) is not None:
            neurons.verify(folder, whole=True)
    except (CancelledError, OutputExistsError):
        raise
    except IrwmError as error:
        raise _occupied(folder, error.problem) from error
    if wrong := [finding.verdict for finding in found if finding.verdict != "found"]:
        raise _occupied(folder, f"a model whose verdict for the key is “{wrong[0]}”")
    size = sum((folder / name).stat().st_size for name in (*manifest.files, MANIFEST_NAME))
    head, theirs = model.output_head if key.head is not None else None, copy.output_head
    head_rows = _changed_rows(head, theirs) if head is not None and theirs is not None else np.empty(0, np.int64)
    return irwm.Release(
        folder,
        manifest,
        selection.left_out,
        size,
        changed_rows=_changed_rows(model, copy),
        head_rows=head_rows,
        layers=() if neurons is None else neurons.layers,
        verification=found[0],
    )


def _occupied(folder: Path, found: str) -> OutputExistsError:
    return OutputExistsError(
        "The folder for this copy contains other files",
        file=folder,
        expected="no folder, or this recipient's finished copy",
        found=found,
        advice="Move or delete the folder, then start again with the same list: only missing copies will be written",
    )


def _patched(model: Checkpoint, key: irwm.Key) -> dict[Path, list[tuple[int, int]]]:
    """The byte ranges of each shard that the key's mark changes, half-open and sorted, as `irwm.insert` patches them.

    Raises:
        KeyMismatchError: the key belongs to another original.
    """
    check_original(key, model)
    ranges: dict[Path, list[tuple[int, int]]] = {}
    parts, neurons = list(placed(key, model).values()), neurons_of(model, key)
    places = [*(place for place, _ in parts), *([] if neurons is None else neurons.views)]
    for where, part in parts:
        choices = part.choices()
        marked, noise = choices.marked_rows, part.noise(where, choices)
        rows = torch.zeros(len(marked), where.hidden_size, dtype=getattr(torch, where.dtype))  # no numbers
        noisy = NoisyRows(where, noise, marked, rows) if noise.coordinates else None
        names = holders(where, marked if noisy is None else None, places)
        patches = row_patches(where, marked, rows, names) if noisy is None else noisy.patches(names)
        for file, items in patches.items():
            ranges.setdefault(file, []).extend((patch.start, patch.stop) for patch in items)
    if neurons is not None:
        for file, items in neurons.patches(neurons.holders(places)).items():
            ranges.setdefault(file, []).extend((patch.start, patch.stop) for patch in items)
    return {file: sorted(items) for file, items in ranges.items()}


def _require_original(
    files: Sequence[SourceFile],
    patched: Mapping[Path, Sequence[tuple[int, int]]],
    rewrites: Mapping[str, Rewrite],
    folder: Path,
    listed: set[str],
    cancelled: Callable[[], bool],
) -> None:
    """Compares all bytes that a mark does not change with the original, because the manifest alone proves nothing.

    Raises:
        OutputExistsError: a file is missing or extra, or a byte differs that the mark does not change.
        CancelledError: stopped on request.
        CheckpointError: a file cannot be read.
    """
    names = {file.name for file in files}
    if listed != names:
        raise _occupied(folder, f"extra or missing files (first: {min(listed ^ names)})")
    for file in files:
        if file.name in rewrites:
            if (folder / file.name).read_bytes() != rewrites[file.name](file.path):
                raise _occupied(folder, f"{file.name}, which differs from the original's file with the base model")
            continue
        if not _same_outside(file, folder / file.name, patched.get(file.path, ()), cancelled):
            raise _occupied(folder, f"{file.name}, which differs from the original's file outside the mark")


def _same_outside(
    file: SourceFile, other: Path, ranges: Sequence[tuple[int, int]], cancelled: Callable[[], bool]
) -> bool:
    """Whether two files have the same bytes outside of the half-open, sorted `ranges`."""
    with ExitStack() as stack:
        one = stack.enter_context(open_seen(file.path, file.seen))
        two, seen = stack.enter_context(open_regular(other))
        if seen.size != file.seen.size:
            return False
        buffers = [memoryview(bytearray(min(CHUNK, seen.size))) for _ in range(2)]
        for begin, end in _pieces(seen.size, ranges):
            if cancelled():
                raise CancelledError("stopped on request")
            first, second = (buffer[: end - begin] for buffer in buffers)
            read_into(one, file.path, begin, first)
            read_into(two, other, begin, second)
            # As bytes, because memoryviews are compared number by number.
            if bytes(first) != bytes(second):
                return False
    return True


def _pieces(size: int, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts outside of the ranges, in pieces of at most `CHUNK` bytes."""
    begin = 0
    for start, stop in (*ranges, (size, size)):
        for first in range(begin, start, CHUNK):
            yield first, min(first + CHUNK, start)
        begin = max(begin, stop)


def _changed_rows(model: Checkpoint, copy: Checkpoint) -> np.ndarray:
    """Ids of the embedding rows that differ between a copy and its original."""
    starts = range(0, model.vocab_size, _ROWS_AT_ONCE)
    blocks = [slice(start, min(start + _ROWS_AT_ONCE, model.vocab_size)) for start in starts]
    return np.flatnonzero(
        np.concatenate([(model.embedding(b) != copy.embedding(b)).any(dim=1).numpy() for b in blocks])
    )
