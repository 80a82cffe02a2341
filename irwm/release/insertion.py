"""Insertion (Algorithms 2 and 5): solve the marked rows, write them in the checkpoint's own dtype, publish, verify.

For a single owner only the marked rows change, for one of many recipients all rows of the embedding (Algorithm 4).
Every other byte of the release is the original's, copied and hashed in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.errors import MarginError
from irwm.evidence.detection import detect_each, reading_of
from irwm.evidence.examination import Examination
from irwm.evidence.finding import FOUND, Finding, Reading
from irwm.evidence.verdict import FOUND_LOG10_RISK, log10_risk
from irwm.keys.check_original import check_original
from irwm.keys.key import Choices, Key
from irwm.release.cloning import ClonedFrom
from irwm.release.manifest import Manifest
from irwm.release.patches import NoisyRows, row_patches
from irwm.release.publish import publish
from irwm.scheme import statistic as stat
from irwm.scheme.basis import Basis
from irwm.scheme.condition import permute_rows
from irwm.scheme.invariant import invariant
from irwm.scheme.parameters import FEWEST_PERMUTATIONS
from irwm.scheme.permutations import NullOrders
from irwm.scheme.solution import marked_values
from irwm.tracing import trace_each

Progress = Callable[[int, int, str], None]

# Share of the positions that must count right after insertion. An exact mark counts at nearly all of them; with fewer
# the dtype or the scale has used up the margin that robustness needs.
LEAST_SHARE = 0.9
# The constants of marked rows are found in steps that come ever nearer: until the median differs by no more
# than this share of the rows' root mean square.
MOST_STEPS, LEAST_MEDIAN = 100, 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A published, marked copy.

    Attributes:
        path: the release folder.
        changed_rows: (l,) ids of the embedding rows that differ from the original, L_W; with noise, all rows that
            differ, ascending.
        manifest: SHA-256 of every file, as written to SHA256SUMS.
        left_out: files of the source folder that were not copied because they would carry unmarked weights.
        bytes_written: size of the release.
        verification: the finding of a detection on what was written.
        bytes_cloned: how many of these bytes are shared with an earlier copy and took no room.
        shared: the files that the next recipient's copy of the same original may be cloned from.
    """

    path: Path
    changed_rows: NDArray[np.int64]
    manifest: Manifest
    left_out: tuple[str, ...]
    bytes_written: int
    verification: Finding
    bytes_cloned: int = 0
    shared: Mapping[str, ClonedFrom] = field(default_factory=dict, repr=False)


def insert(
    model: Checkpoint,
    key: Key,
    out_dir: str | Path,
    progress: Progress | None = None,
    device: str = "cpu",
    cancelled: Callable[[], bool] | None = None,
    shared: Mapping[str, ClonedFrom] | None = None,
) -> Release:
    """Write a marked copy of `model` to the new folder `out_dir`.

    Args:
        model: the original that `key` was generated from.
        key: the key.
        out_dir: must not exist; appears complete and verified, or not at all.
        progress: called with bytes done, bytes in all and what is being done.
        device: where the invariant is computed.
        cancelled: asked now and then; true stops the work with CancelledError.
        shared: `Release.shared` of an earlier copy of the same original; files that are the same are cloned from there.

    Raises:
        UnsupportedCheckpointError: a checkpoint of a kind that can be examined but not marked.
        KeyMismatchError: the key belongs to another original.
        MarginError: the mark would not be provable in this dtype; nothing was written.
        PublishError: the folder exists, the disk is full, ...; nothing was published.
    """
    model.require_markable()  # the key may have been made with the same model in another format
    check_original(key, model)
    choices = key.choices()
    rows = marked_rows(model, key, choices, device)
    noise = key.noise(model, choices)
    written = NoisyRows(model, noise, choices.marked_rows, rows) if noise.coordinates else None
    patches = written.patches() if written else row_patches(model, choices.marked_rows, rows)
    found: list[Finding] = []

    def verify(folder: Path) -> None:
        if progress:
            progress(0, 1, "verifying the mark in what was written")
        copy = open_checkpoint(folder)
        if not torch.equal(copy.embedding(choices.marked_rows), rows.float()):
            raise MarginError("the marked rows read back differ from what was written", file=folder)
        examination = Examination(copy, model, device)
        (finding,) = detect_each(examination, [key])
        if finding.verdict != FOUND:
            raise MarginError("the written mark is not found again", file=folder, found=finding.reason)
        if written and not trace_each(examination, [key], decoys=0).traces[0].named:
            raise MarginError(
                "the written noise does not name its recipient",
                file=folder,
                advice="Use more noise coordinates, or a model with more rows",
            )
        found.append(finding)

    published = publish(model, out_dir, patches, progress=progress, verify=verify, cancelled=cancelled, shared=shared)
    return Release(
        path=published.path,
        changed_rows=written.changed_rows if written else choices.marked_rows,
        manifest=published.manifest,
        left_out=published.left_out,
        bytes_written=published.bytes_written,
        verification=found[0],
        bytes_cloned=published.bytes_cloned,
        shared=published.shared,
    )


def marked_rows(model: Checkpoint, key: Key, choices: Choices, device: str = "cpu") -> torch.Tensor:
    """(l, d) marked rows, rounded to the embedding's dtype (Algorithm 2, lines 15 to 24; Algorithm 5).

    Raises:
        MarginError: rounding, overflow or the scale leaves too little of the mark to prove it later.
    """
    if key.parameters.permutations < FEWEST_PERMUTATIONS:
        raise MarginError(
            "with so few permutations the mark could never be proved",
            expected=f"at least {FEWEST_PERMUTATIONS}",
            found=str(key.parameters.permutations),
            advice="Generate the key with more permutations",
        )
    noise = key.noise(model, choices)
    tokens = choices.query_tokens, choices.reference_tokens
    a_m = invariant(model, *tokens, device=device, added=noise.added(model)).cpu().numpy()
    permuted = permute_rows(a_m, choices.constraint_permutations)
    values = _solved(model, key, choices, noise.basis, permuted)
    rounded = torch.from_numpy(values).to(getattr(torch, model.dtype))
    reading = _margin(noise.basis.into(rounded.double().numpy(), choices.marked_rows), permuted, choices, key)
    least = max(key.parameters.required_positions, math.ceil(LEAST_SHARE * key.parameters.positions))
    if reading.count < least or log10_risk(reading) > FOUND_LOG10_RISK:
        raise MarginError(
            f"the mark does not survive being stored as {model.dtype}",
            file=model.path,
            tensor=model.layout.embedding.name,
            expected=f"at least {least} positions below {key.parameters.rank_threshold:g}, risk below 1e-6",
            found=f"{reading.count} positions, log10 risk {log10_risk(reading):.1f}",
            advice="Choose a smaller scale (or auto), more positions, or another dtype",
        )
    return rounded


def _solved(
    model: Checkpoint, key: Key, choices: Choices, basis: Basis, permuted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(l, d) marked rows before rounding, in the model's own coordinates.

    Detection takes the median of what a row differs by from every row of a model that does not notice such a constant.
    A mark in a secret basis differs by a small one itself, which would be lost. So there the constant is chosen, which
    costs nothing, with which the median is zero.
    """
    tokens = choices.marked_rows
    rows = model.embedding(tokens).double().numpy()

    def marked(plain: NDArray[np.float64]) -> NDArray[np.float64]:
        solved = marked_values(basis.into(plain, tokens), permuted, choices.row_permutations, key.scale)
        return basis.out_of(solved, tokens)

    values = marked(rows)
    if not model.layout.drops_row_constants:
        return values
    unit = marked(np.ones_like(rows))  # the mark is linear in the row
    least = LEAST_MEDIAN * np.sqrt(np.mean(np.square(rows)))
    for _ in range(MOST_STEPS):
        median = np.median(values - rows, axis=1, keepdims=True)
        if np.abs(median).max() <= least:
            break
        values -= median * unit
    return values


def _margin(rows: NDArray[np.float64], permuted: NDArray[np.float64], choices: Choices, key: Key) -> Reading:
    """The reading that a verdict would have of the rounded rows (l, d), in the basis, before anything is written."""
    shuffled = stat.normalised(np.take_along_axis(rows, choices.row_permutations, axis=1))
    weights = stat.joint_map(permuted, key.scale)
    count = key.parameters.permutations  # the key's own number: with it every later detection must find the mark
    null = stat.null_lengths(weights, shuffled, NullOrders.of(0, count, *rows.shape))
    return reading_of("joint", "original", stat.lengths(weights, shuffled), null, key.parameters)
