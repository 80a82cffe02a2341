"""The officer's choices on the page Settings: a small private file in the home folder, checked on every read.

The file must contain no secret: it is not sealed, and it is read before anyone has proved a passphrase.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import IrwmError, printable
from irwm.language import ENGLISH, LANGUAGES
from storage.files import replace_private

FILE_NAME = "preferences.json"
VERSION = 1
DEVICES = ("auto", "cpu", "cuda")
THEMES = ("system", "light", "dark")
# No user would type a passphrase more often than once a minute; after half a working day the user has left.
LEAST_IDLE_MINUTES, MOST_IDLE_MINUTES = 1, 240
IDLE_MINUTES = 15
MOST_ROOTS = 50
MOST_SERVERS = 50
# A host name without a port, or a store's scheme and bucket.
_SERVER = re.compile(
    r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?|(s3|gs)://[a-z0-9][a-z0-9._-]{1,220}"
)
LONGEST_PATH = 4096
# Far more than fifty long paths need; a larger file must not fill the memory.
MOST_BYTES = 1024 * 1024


class PreferencesError(IrwmError):
    """The file of preferences, or a value for it, cannot be used; the message names the file or the field."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """The chosen values; each was checked.

    Attributes:
        device: one of `DEVICES`.
        roots: full paths of the folders that the browser may show; none for the app's usual ones. A missing folder
            stays in the list, because its disk may not be plugged in.
        idle_minutes: time without use after which the vault locks itself.
        theme: one of `THEMES`.
        language: one of `irwm.language.LANGUAGES`.
        servers: host names, or stores such as "s3://models", from which suspects may be read; none by default.
        backups: full path of a folder, on another disk if possible, that gets a copy of each backup; "" for none.

    Raises:
        PreferencesError: a value is out of range.
    """

    device: str = "auto"
    roots: tuple[str, ...] = ()
    idle_minutes: int = IDLE_MINUTES
    theme: str = "system"
    servers: tuple[str, ...] = ()
    language: str = ENGLISH
    backups: str = ""

    def __post_init__(self) -> None:
        _check(self.device in DEVICES, "this device is not supported", ", ".join(DEVICES), self.device)
        _check(self.theme in THEMES, "this theme is not supported", ", ".join(THEMES), self.theme)
        _check(self.language in LANGUAGES, "this language is not supported", ", ".join(LANGUAGES), self.language)
        _check(
            type(self.idle_minutes) is int and LEAST_IDLE_MINUTES <= self.idle_minutes <= MOST_IDLE_MINUTES,
            "the time until the vault locks is out of range",
            f"a whole number of minutes from {LEAST_IDLE_MINUTES} to {MOST_IDLE_MINUTES}",
            self.idle_minutes,
        )
        _check(len(self.roots) <= MOST_ROOTS, "there are too many folders", f"at most {MOST_ROOTS}", len(self.roots))
        for root in self.roots:
            _check(
                _is_full_path(root),
                "the path of a folder is not a full path",
                "an absolute path, such as /data/models",
                root,
            )
        _check(
            len(self.servers) <= MOST_SERVERS,
            "there are too many servers",
            f"at most {MOST_SERVERS}",
            len(self.servers),
        )
        for server in self.servers:
            usable = isinstance(server, str) and len(server) <= 253 and _SERVER.fullmatch(server) is not None
            _check(usable, "this is not a server name", "a host such as huggingface.co, or s3://BUCKET", server)

        _check(
            self.backups == "" or _is_full_path(self.backups),
            "the path of the folder for backups is not a full path",
            "an absolute path, such as /media/usb/irwm",
            self.backups,
        )

    @property
    def idle_seconds(self) -> float:
        """The idle time in the unit that the vault uses."""
        return 60.0 * self.idle_minutes

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values, with the version of the format."""
        return {
            "version": VERSION,
            "device": self.device,
            "roots": list(self.roots),
            "idle_minutes": self.idle_minutes,
            "theme": self.theme,
            "servers": list(self.servers),
            "language": self.language,
            "backups": self.backups,
        }

    @classmethod
    def from_dict(cls, values: object) -> Preferences:
        """The preferences in these plain values; a missing name has its default.

        Raises:
            PreferencesError: another version, an unknown name, or a value of another type or out of range.
        """
        if not isinstance(values, Mapping):
            raise PreferencesError("the preferences are not a list of names and values", found=type(values).__name__)
        if values.get("version") != VERSION or type(values.get("version")) is not int:
            raise PreferencesError(
                "these preferences are for a different version",
                expected=str(VERSION),
                found=_shown(values.get("version")),
            )
        unknown = sorted(str(name) for name in values.keys() - cls().to_dict().keys())
        _check(not unknown, "the preferences contain an unknown name", "only known names", unknown)
        roots, servers = values.get("roots", []), values.get("servers", [])
        _check(isinstance(roots, list), "the folders are not a list", "a list of full paths", roots)
        _check(isinstance(servers, list), "the servers are not a list", "a list of server names", servers)
        kept = {name: value for name, value in values.items() if name not in ("version", "roots", "servers")}
        return cls(roots=tuple(roots), servers=tuple(servers), **kept)


def read(home: Path) -> Preferences:
    """The preferences saved in this home folder; the defaults if there are none.

    Raises:
        PreferencesError: the file cannot be read, or contains something else; it names the file.
    """
    path = home / FILE_NAME
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Preferences()
    except OSError as error:
        raise _unusable("cannot be read", path, found=error.strerror or type(error).__name__) from error
    if len(data) > MOST_BYTES:
        raise _unusable("is too large", path, expected=f"at most {MOST_BYTES} bytes")
    try:
        return Preferences.from_dict(json.loads(data.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise _unusable("is damaged", path, expected="JSON as written by this app") from error
    except PreferencesError as error:
        raise _unusable(f"cannot be used: {error.problem}", path, expected=error.expected, found=error.found) from error


def write(home: Path, preferences: Preferences) -> None:
    """Saves the preferences in the home folder; a reader sees either the old file or the new one, never a part.

    Raises:
        PreferencesError: the file cannot be written; the old one is unchanged.
    """
    path = home / FILE_NAME
    text = json.dumps(preferences.to_dict(), ensure_ascii=False, indent=2) + "\n"
    try:
        replace_private(path, text.encode("utf-8"))
    except (OSError, UnicodeEncodeError) as error:
        raise PreferencesError(
            "the settings cannot be saved",
            file=path,
            found=str(error),
            advice="free some disk space, or allow this account to write to this folder",
        ) from error


def _is_full_path(root: object) -> bool:
    if not isinstance(root, str) or "\0" in root or not 0 < len(root) <= LONGEST_PATH:
        return False
    try:
        os.fsencode(root)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can express but no disk can store
        return False
    return Path(root).is_absolute()


def _check(holds: bool, problem: str, expected: str, found: object) -> None:
    if not holds:
        raise PreferencesError(problem, expected=expected, found=_shown(found))


def _shown(value: object) -> str:
    return printable(value if isinstance(value, str) else repr(value), 200)


def _unusable(how: str, path: Path, *, expected: str | None = None, found: str | None = None) -> PreferencesError:
    return PreferencesError(
        f"the preferences file {how}",
        file=path,
        expected=expected,
        found=found,
        advice="The default settings are in use. Either replace the file by saving on the Settings page, or delete it",
    )
