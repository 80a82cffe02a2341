"""What the environment says about this start of the app, read once and checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import IrwmError
from storage import paths

HOST = "127.0.0.1"
DEFAULT_PORT = 7860
_ADDRESS = re.compile(r"(tls|tcp)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
DEVICES = ("auto", "cpu", "cuda")
REPOSITORY = Path(__file__).resolve().parent.parent
DEMO = REPOSITORY / "assets" / "demo"


class SettingsError(IrwmError):
    """An environment variable has a value that cannot be used; the message names the variable."""

    def __init__(self, variable: str, problem: str, *, expected: str, found: str, advice: str) -> None:
        self.variable = variable
        super().__init__(f"{variable} {problem}", expected=expected, found=found, advice=advice)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one running app.

    Attributes:
        home: folder of vault, jobs and cases; never shown by the folder browser and never served.
        port: TCP port on 127.0.0.1.
        device: "auto", "cpu" or "cuda", as asked for.
        roots: folders that the browser may show and below which a pasted path must lie; resolved, each once.
        scheduler: address of a Dask scheduler that tracing is handed to, "" for this machine. Tasks carry noise keys.
    """

    home: Path
    port: int
    device: str
    roots: tuple[Path, ...]
    scheduler: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Reads IRWM_HOME, IRWM_PORT, IRWM_DEVICE, IRWM_ROOTS and IRWM_SCHEDULER; an empty value counts as unset.

        Raises:
            SettingsError: a value cannot be used.
            StorageError: the home folder cannot be made.
        """
        environ = os.environ if environ is None else environ
        return cls(
            home=paths.home(environ),
            port=_port(environ.get("IRWM_PORT", "").strip()),
            device=_device(environ.get("IRWM_DEVICE", "").strip().lower()),
            roots=_roots(environ.get("IRWM_ROOTS", "").strip()),
            scheduler=_scheduler(environ.get("IRWM_SCHEDULER", "").strip()),
        )


def _port(text: str) -> int:
    if not text:
        return DEFAULT_PORT
    # Not int(): it also takes "7_860", "+7860" and Arabic digits, which nobody means.
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise SettingsError(
            "IRWM_PORT",
            "is not a port number",
            expected="a whole number from 1 to 65535",
            found=text,
            advice=f"unset it to use {DEFAULT_PORT}",
        )
    return int(text)


def _device(text: str) -> str:
    if text and text not in DEVICES:
        raise SettingsError(
            "IRWM_DEVICE",
            "names no device that this app knows",
            expected=", ".join(DEVICES),
            found=text,
            advice="unset it to let the app choose",
        )
    return text or "auto"


def _scheduler(text: str) -> str:
    if text and not _ADDRESS.fullmatch(text):
        raise SettingsError(
            "IRWM_SCHEDULER",
            "is not the address of a Dask scheduler",
            expected="tls://host:port, or tcp://host:port inside a network that you trust",
            found=text,
            advice="correct it, or unset it to compute on this machine",
        )
    return text


def _roots(text: str) -> tuple[Path, ...]:
    if not text:
        candidates = [Path.home(), Path.cwd(), DEMO]
        return tuple(dict.fromkeys(path.resolve() for path in candidates if path.is_dir()))
    roots = []
    for part in filter(None, text.split(os.pathsep)):
        try:
            path = Path(part).expanduser()
            usable = path.is_absolute() and path.is_dir()
        except (OSError, RuntimeError, ValueError):  # a NUL, an unknown ~user, no permission to look
            usable = False
        if not usable:
            raise SettingsError(
                "IRWM_ROOTS",
                "names something that is not a folder",
                expected=f"existing folders with full paths, separated by '{os.pathsep}'",
                found=part,
                advice="correct it, or unset it to browse your home folder",
            )
        roots.append(path.resolve())
    return tuple(dict.fromkeys(roots))
