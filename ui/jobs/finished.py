"""A copy that an earlier run finished and never filed: it was ended between its last rename and its receipt.

The key is in the vault and the release is whole, so running the same request again files it and writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

import irwm
from irwm.checkpoint import MANIFEST_NAME, Checkpoint, read_manifest, verify_manifest
from irwm.errors import CancelledError, IrwmError, OutputExistsError

_ROWS_AT_ONCE = 8192


def finished(
    model: Checkpoint, key: irwm.Key, folder: Path, *, cancelled: Callable[[], bool], device: str
) -> irwm.Release | None:
    """The copy that stands where this key's goes, as `irwm.insert` returned it; None where nothing stands.

    Raises:
        OutputExistsError: what stands there is not that copy, and is left as it is.
        CancelledError: stopped on request.
    """
    if not os.path.lexists(folder):
        return None
    if not os.path.lexists(folder / MANIFEST_NAME):
        raise _spoilt(folder, f"no manifest ({MANIFEST_NAME}) in it")
    try:
        manifest = read_manifest(folder)
        check = verify_manifest(folder, cancelled=cancelled)
        if not check.ok:
            differing = [*check.changed, *check.missing, *check.extra]
            raise _spoilt(folder, f"{len(differing)} files not as its manifest says, first {differing[0]}")
        copy = irwm.open_checkpoint(folder)
        found = irwm.detect(copy, model, key, device=device)
    except (CancelledError, OutputExistsError):
        raise
    except IrwmError as error:
        raise _spoilt(folder, error.problem) from error
    if found.verdict != "found":
        raise _spoilt(folder, f"a model on which the key reads {found.verdict}")
    size = sum((folder / name).stat().st_size for name in (*manifest.files, MANIFEST_NAME))
    return irwm.Release(folder, _changed_rows(model, copy), manifest, (), size, found)


def _spoilt(folder: Path, found: str) -> OutputExistsError:
    return OutputExistsError(
        "Something else stands where this copy goes",
        file=folder,
        expected="nothing, or this recipient's finished copy",
        found=found,
        advice="Move it away or delete it, then start again with the same list: only what is missing is written",
    )


def _changed_rows(model: Checkpoint, copy: Checkpoint) -> np.ndarray:
    """Ids of the embedding rows in which a copy differs from its original."""
    starts = range(0, model.vocab_size, _ROWS_AT_ONCE)
    blocks = [slice(start, min(start + _ROWS_AT_ONCE, model.vocab_size)) for start in starts]
    return np.flatnonzero(
        np.concatenate([(model.embedding(b) != copy.embedding(b)).any(dim=1).numpy() for b in blocks])
    )
