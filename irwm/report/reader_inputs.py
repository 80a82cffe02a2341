"""The models, keys and other things that a reader brings to a report, so that more of it can be computed again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from irwm import Key
from irwm.checkpoint import Checkpoint
from irwm.errors import IrwmError, KeyFormatError, path_from, shown_path

# A key has some hundred bytes; a file that was named by mistake may be a model.
MOST_KEY_BYTES = 1 << 20
# More than any vault of recipients' keys that one report traced.
MOST_KEYS = 100_000
Model = Checkpoint | str | Path


@dataclass(frozen=True, slots=True)
class Brought:
    """All of it may be missing.

    Attributes:
        identity: the signer's first public key as published, hex. Without it a signature shows only that the files fit
            the key that they name themselves.
        roots_pem: certificates of timestamping authorities that the reader trusts, PEM. Without any, a timestamp
            shows only what an unknown authority states.
        suspect, original: the models examined, opened or as paths. For a sweep, `suspect` is the swept folder.
        models: for a dispute, the models that the claimants brought and those in dispute, in any order; a folder means
            every model in it.
        keys: keys that their owners opened, in any order: the report's own, those of the other recipients, or both
            claimants' of a dispute.
        audit_log: the signer's log as the page Vault exports it.
        seen_utc: since when the reader has known the suspect to exist, ISO 8601 with its zone; "unknown" if the reader
            does not know.
        device: where to compute.
    """

    identity: str | None = None
    roots_pem: bytes | None = field(default=None, repr=False)
    suspect: Model | None = None
    original: Model | None = None
    models: tuple[Model, ...] = ()
    keys: tuple[Key, ...] = field(default=(), repr=False)
    audit_log: Path | None = None
    seen_utc: str | None = None
    device: str = "cpu"

    @property
    def examines(self) -> bool:
        """Whether any part was given that needs an examination."""
        return self.suspect is not None or self.original is not None or bool(self.models) or bool(self.keys)

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values, for another process. Models must be paths."""
        paths = {name: getattr(self, name) for name in ("suspect", "original", "audit_log")}
        return {
            "identity": self.identity,
            "roots_pem": None if self.roots_pem is None else self.roots_pem.decode("ascii"),
            "models": [shown_path(_path(model)) for model in self.models],
            "keys": [key.to_bytes().hex() for key in self.keys],
            "seen_utc": self.seen_utc,
            "device": self.device,
            **{name: None if path is None else shown_path(_path(path)) for name, path in paths.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Brought:
        """The object that `to_dict` wrote."""
        paths = {name: values[name] for name in ("suspect", "original", "audit_log")}
        roots = values["roots_pem"]
        return cls(
            identity=values["identity"],
            roots_pem=None if roots is None else roots.encode("ascii"),
            models=tuple(path_from(model) for model in values["models"]),
            keys=tuple(Key.from_bytes(bytes.fromhex(key)) for key in values["keys"]),
            seen_utc=values["seen_utc"],
            device=values["device"],
            **{name: None if path is None else path_from(path) for name, path in paths.items()},
        )


def _path(model: Model) -> Path:
    if isinstance(model, Checkpoint):
        raise TypeError("an opened model cannot be given to another process")
    return Path(model)


def opened_keys(path: Path) -> tuple[Key, ...]:
    """The keys in a file that its owner opened, or in every file of a folder; their bytes are not kept.

    Raises:
        IrwmError: a file cannot be read or is no key, or the folder holds none.
    """
    if not path.is_dir():
        return (opened_key(path),)
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not 0 < len(files) <= MOST_KEYS:
        raise IrwmError(
            "the folder does not contain opened keys",
            file=path,
            expected="one file for each key",
            found=f"{len(files)} files",
        )
    return tuple(opened_key(file) for file in files)


def opened_key(path: Path) -> Key:
    """A key that its owner opened, from its file; its bytes are not kept.

    Raises:
        IrwmError: it cannot be read, or is no key.
    """
    try:
        with path.open("rb") as stream:
            return Key.from_bytes(stream.read(MOST_KEY_BYTES))
    except KeyFormatError as error:
        raise KeyFormatError(
            error.problem,
            file=path,
            expected=error.expected,
            found=error.found if error.expected else None,  # otherwise the name of Python's error
            advice="Choose the key file that the owner wrote, or ask the owner for it again",
        ) from error
    except OSError as error:
        raise IrwmError("the key file cannot be read", file=path, found=error.strerror) from error
