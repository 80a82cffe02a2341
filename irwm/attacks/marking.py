"""A rival marks our release again with their own key (the paper's second mark, M12)."""

from __future__ import annotations

from pathlib import Path

from irwm.checkpoint import open_checkpoint
from irwm.keys.key import Key, generate_key
from irwm.release.insertion import insert


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
