"""Where this application keeps its own files, and whether that place is safe for a vault."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from storage.errors import StorageError, UnsafeHomeError
from storage.files import PRIVATE_FILE, private_folder

HOME_VARIABLE = "IRWM_HOME"
FOLDER_NAME = "irwm-studio"
VAULT_NAME = "vault.sqlite3"
JOBS_NAME = "jobs.sqlite3"
# SQLite keeps its write-ahead log and that log's index in the database's folder.
SIDECARS = ("-wal", "-shm")
OTHERS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Windows has neither: there a file's mode does not say who may read it, and `platformdirs` names a folder below the
# account's own.
MODES_AND_OWNERS = hasattr(os, "geteuid")
# SQLite's write-ahead log needs shared memory and working locks; its authors rule network drives out
# (https://www.sqlite.org/wal.html, "disadvantages").
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "9p", "fuse.sshfs", "glusterfs"}
)


def home(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the vault, the jobs and the cases, made for its owner only if it is missing.

    It is `IRWM_HOME` if that is set, else the platform's folder for an application's user data.

    Raises:
        StorageError: the folder cannot be made, or a file has its name.
    """
    chosen = (os.environ if environ is None else environ).get(HOME_VARIABLE, "").strip()
    path = Path(chosen) if chosen else platformdirs.user_data_path(FOLDER_NAME, appauthor=False)
    try:
        path = Path(os.path.abspath(path.expanduser()))
        private_folder(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise StorageError(
            "the folder for the vault and the jobs cannot be created",
            file=path,
            found=str(error),
            advice=f"set {HOME_VARIABLE} to a folder that you can write to",
        ) from error
    return path


def check_home(
    home: Path,
    working_folder: Path | None = None,
    temp_folder: Path | None = None,
    *,
    allow_temp: bool = False,
) -> tuple[str, ...]:
    """Refuses a home that others could read or replace; returns warnings about unwise but acceptable settings.

    Gradio makes every returned path in the working or temp folder downloadable, so no vault may be in either.

    Args:
        home: the folder from `home()`.
        working_folder: the app's current folder; default the process's.
        temp_folder: the temp folder the app uses; default the process's.
        allow_temp: accept a home in the temp folder, with a warning. For a user who named the folder: the web server
            sends files from its own upload folder only (ui.guard), but a temp folder may be cleared.

    Raises:
        UnsafeHomeError: the folder is a link or in the working or temp folder, others may write to it, or a
            vault file in it is a link or not a regular file.
    """
    if home.is_symlink():
        raise UnsafeHomeError(
            "the application's folder is a link, which can be redirected",
            file=home,
            advice=f"set {HOME_VARIABLE} to the real folder, {home.resolve()}",
        )
    _refuse_inside(home, working_folder or Path.cwd(), "working folder")
    temp = temp_folder or Path(tempfile.gettempdir())
    warnings: list[str] = []
    if not allow_temp:
        _refuse_inside(home, temp, "temp folder")
    elif _is_inside(home, temp):
        warnings.append(
            f"The vault is in {temp}. This folder may be cleared at any time, and the keys would then be lost."
        )
    warnings += _folder_warnings(home)
    for name in (VAULT_NAME, JOBS_NAME):
        warnings += secure_file(home / name)
    return tuple(warnings)


def _is_inside(home: Path, folder: Path) -> bool:
    real = home.resolve()
    # samefile and not a comparison of texts: a folder has many names on file systems that ignore case.
    return folder.exists() and any(parent.exists() and parent.samefile(folder) for parent in (real, *real.parents))


def _refuse_inside(home: Path, folder: Path, name: str) -> None:
    if _is_inside(home, folder):
        raise UnsafeHomeError(
            f"the vault would be inside the {name}, from which the web server can serve files",
            file=home,
            expected=f"a folder outside {folder}",
            advice=f"set {HOME_VARIABLE} to a folder elsewhere",
        )


def _folder_warnings(home: Path) -> list[str]:
    warnings = []
    if MODES_AND_OWNERS:
        state = home.stat()
        if state.st_mode & OTHERS_WRITE:
            raise UnsafeHomeError(
                "other accounts can write to the application's folder and could replace the vault",
                file=home,
                expected="mode 700",
                found=f"mode {stat.S_IMODE(state.st_mode):o}",
                advice=f"run: chmod 700 '{home}'",
            )
        if state.st_mode & OTHERS:
            warnings.append(f"Other accounts can list the files in {home}. To prevent this, run: chmod 700 '{home}'")
        if state.st_uid != os.geteuid():
            warnings.append(f"{home} belongs to another account, which can replace the vault in it.")
    kind = file_system(home)
    if kind in NETWORK_FILE_SYSTEMS:
        warnings.append(
            f"{home} is on a network drive ({kind}), where SQLite cannot prevent two computers from writing at the "
            "same time. "
            f"Set {HOME_VARIABLE} to a local folder."
        )
    return warnings


def secure_file(path: Path) -> list[str]:
    """Refuses a database file that is a link or not a file; removes others' access and returns a warning about it.

    Raises:
        UnsafeHomeError: it is refused; a FIFO in place of a file would block its reader forever.
    """
    for name in (path, *(path.with_name(path.name + end) for end in SIDECARS)):
        try:
            mode = name.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise UnsafeHomeError(
                "a database must be a regular file",
                file=name,
                found="a link" if stat.S_ISLNK(mode) else "a folder, pipe, socket or device",
                advice="use a regular file instead",
            )
    if not MODES_AND_OWNERS or not path.exists():
        return []
    if not path.stat().st_mode & OTHERS:
        return []
    try:
        path.chmod(PRIVATE_FILE)
    except OSError as error:
        return [f"Other accounts have access to {path}, and this could not be changed: {error}"]
    return [
        f"Other accounts had access to {path}; its mode is now 600. The records in it are sealed. If someone may have "
        "made a copy, change the passphrase."
    ]


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The type of the file system of a path, as Linux names it; None if unknown."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
        real = path.resolve()
    except OSError:
        return None
    best, kind = -1, None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # The kernel writes space, tab, newline and backslash in a mount point as octal escapes.
        point = Path(fields[1].encode("latin-1", "backslashreplace").decode("unicode_escape"))
        # ">=": a later mount on the same point hides the earlier one.
        if (real == point or point in real.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind
