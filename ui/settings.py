"""The settings of this start of the app: the environment first, then an officer's choices on the page Settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from irwm.errors import IrwmError
from storage import paths
from ui import offline, preferences
from ui.preferences import DEVICES, Preferences, PreferencesError

HOST = "127.0.0.1"
DEFAULT_PORT = 7860
HOME, PORT, DEVICE, ROOTS, SCHEDULER, BROWSER, SERVERS = VARIABLES = (
    paths.HOME_VARIABLE,
    "IRWM_PORT",
    "IRWM_DEVICE",
    "IRWM_ROOTS",
    "IRWM_SCHEDULER",
    "IRWM_BROWSER",
    offline.SERVERS,
)
_ADDRESS = re.compile(r"(tls|tcp)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
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
        device: "auto", "cpu" or "cuda", as requested.
        roots: folders that the browser may show and that must contain each pasted path; resolved, without duplicates.
        scheduler: address of a Dask scheduler for tracing, "" for this machine. Tasks carry noise keys.
        open_browser: whether the page is opened in the user's browser once the app answers.
        preferences: the choices on the page Settings, which apply unless the environment sets a value.
        given: names of the environment's variables that have a value; those cannot be set on the page.
        usual_roots: the roots if neither environment nor preferences name any.
        servers: from which suspects may be read, as `Preferences.servers`.
        note: why the file of preferences could not be used, None if it could.
    """

    home: Path
    port: int
    device: str
    roots: tuple[Path, ...]
    scheduler: str = ""
    open_browser: bool = False
    preferences: Preferences = field(default_factory=Preferences)
    given: frozenset[str] = frozenset()
    usual_roots: tuple[Path, ...] = ()
    servers: tuple[str, ...] = ()
    note: PreferencesError | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Reads IRWM_HOME, IRWM_PORT, IRWM_DEVICE, IRWM_ROOTS, IRWM_SCHEDULER, IRWM_BROWSER and IRWM_SERVERS; an empty
        value counts as unset.

        Device, roots and servers come from the preferences in the home folder if the environment does not name them. A
        damaged file of preferences is not an error: it is noted, and the defaults are used.

        Raises:
            SettingsError: a value cannot be used.
            StorageError: the home folder cannot be made.
        """
        environ = os.environ if environ is None else environ
        usual = _usual_roots()
        settings = cls(
            home=paths.home(environ),
            port=_port(environ.get(PORT, "").strip()),
            device=_device(environ.get(DEVICE, "").strip().lower()),
            roots=_roots(environ.get(ROOTS, "").strip()) or usual,
            scheduler=_scheduler(environ.get(SCHEDULER, "").strip()),
            open_browser=environ.get(BROWSER, "").strip() not in ("", "0"),
            given=frozenset(name for name in VARIABLES if environ.get(name, "").strip()),
            usual_roots=usual,
            servers=_servers(environ.get(SERVERS, "")),
        )
        try:
            return settings.with_preferences(preferences.read(settings.home))
        except PreferencesError as error:
            return replace(settings, note=error)

    def with_preferences(self, chosen: Preferences) -> Settings:
        """These settings with other preferences; values from the environment stay."""
        device = self.device if DEVICE in self.given else chosen.device
        named = tuple(dict.fromkeys(map(_resolved, chosen.roots)))
        roots = self.roots if ROOTS in self.given else named or self.usual_roots
        servers = self.servers if SERVERS in self.given else chosen.servers
        return replace(self, device=device, roots=roots, servers=servers, preferences=chosen, note=None)


def without_home(text: str, home: Path) -> str:
    """A text in which the app's own folder is replaced by its variable, to hide where the vault is."""
    for path in sorted({str(home.resolve()), str(home)}, key=len, reverse=True):
        text = text.replace(path, HOME)
    return text


def _port(text: str) -> int:
    if not text:
        return DEFAULT_PORT
    # Not int(): it also accepts "7_860", "+7860" and Arabic digits, which are mistakes here.
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise SettingsError(
            PORT,
            "is not a port number",
            expected="a whole number from 1 to 65535",
            found=text,
            advice=f"unset it to use {DEFAULT_PORT}",
        )
    return int(text)


def _device(text: str) -> str:
    if text and text not in DEVICES:
        raise SettingsError(
            DEVICE,
            "is not a supported device",
            expected=", ".join(DEVICES),
            found=text,
            advice="unset it to let the app choose",
        )
    return text or "auto"


def _scheduler(text: str) -> str:
    if text and not _ADDRESS.fullmatch(text):
        raise SettingsError(
            SCHEDULER,
            "is not the address of a Dask scheduler",
            expected="tls://host:port, or tcp://host:port inside a network that you trust",
            found=text,
            advice="correct it, or unset it to compute on this machine",
        )
    return text


def _servers(text: str) -> tuple[str, ...]:
    try:
        return Preferences(servers=tuple(text.casefold().split())).servers
    except PreferencesError as error:
        raise SettingsError(
            SERVERS,
            "is not a list of servers",
            expected="host names or s3://BUCKET, separated by spaces",
            found=error.found or "",
            advice="correct it, or unset it to choose the servers on the Settings page",
        ) from error


def _usual_roots() -> tuple[Path, ...]:
    candidates = [Path.home(), Path.cwd(), DEMO]
    return tuple(dict.fromkeys(path.resolve() for path in candidates if path.is_dir()))


def _resolved(path: str) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError):  # a circle of links: no path is below it
        return Path(path)


def _roots(text: str) -> tuple[Path, ...]:
    roots = []
    for part in filter(None, text.split(os.pathsep)):
        try:
            path = Path(part).expanduser()
            usable = path.is_absolute() and path.is_dir()
        except (OSError, RuntimeError, ValueError):  # a NUL, an unknown ~user, no permission to look
            usable = False
        if not usable:
            raise SettingsError(
                ROOTS,
                "contains a path that is not a folder",
                expected=f"full paths of existing folders, separated by '{os.pathsep}'",
                found=part,
                advice="correct it, or unset it to browse your home folder",
            )
        roots.append(path.resolve())
    return tuple(dict.fromkeys(roots))
