"""The paper's ownership attacks: a rival adds their own mark to our release (M12), or subtracts it (Mo')."""

from __future__ import annotations

import tempfile
from pathlib import Path

from irwm.attacks.combine import combine_folders
from irwm.checkpoint import open_checkpoint
from irwm.keys.key import Key, generate_key
from irwm.release.insertion import insert
from irwm.release.partial import require_absent


def mark_again(model_dir: str | Path, out_dir: str | Path, key: Key | None = None) -> Path:
    """Treat a release as an original and insert a mark into it.

    Args:
        model_dir: the release.
        out_dir: must not exist.
        key: the rival's, made for the release (`irwm.generate_key`); if None, one with a new random secret.

    Raises:
        KeyMismatchError: the key was made for another model.
        OutputExistsError, CheckpointError, ConditionError: as `irwm.insert` and `irwm.generate_key`.
    """
    model = open_checkpoint(model_dir)
    return Path(insert(model, key or generate_key(model, owner="Rival"), out_dir).path)


def subtract_mark(model_dir: str | Path, out_dir: str | Path, key: Key | None = None) -> Path:
    """Write the model to which a rival's mark would have to be added to get the release.

    The paper's second ownership attack: the rival presents this model, 2 M1 - M12, as the original of the release.

    Args:
        model_dir: the release M1.
        out_dir: must not exist.
        key: the rival's, see `mark_again`, which gives M12.

    Raises:
        KeyMismatchError, OutputExistsError, CheckpointError, ConditionError: as `mark_again`.
    """
    require_absent(Path(out_dir))
    Path(out_dir).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=Path(out_dir).parent) as scratch:
        marked = mark_again(model_dir, Path(scratch) / "marked", key)
        return combine_folders([model_dir, marked], out_dir, lambda _blocks: lambda both: 2 * both[0] - both[1])
