"""Environment switches that keep every library from talking to the outside. Imported before Gradio.

Nothing here imports a third party: it has to run first, in the app and in every job's process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile

try:
    import resource
except ImportError:  # Windows, which writes no such file
    resource = None  # type: ignore[assignment]
try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where what a killed app leaves behind stays until it is removed by hand
    LOCKS = False
else:
    LOCKS = True

SWITCHES = {
    # Gradio asks its makers' server for a newer version and reports each launch unless this is exactly "False".
    "GRADIO_ANALYTICS_ENABLED": "False",
    # Keeps inputs, passphrases too, in the browser's storage when on (its default).
    "GRADIO_RUN_HISTORY": "False",
    "GRADIO_SHARE": "False",
    "GRADIO_SSR_MODE": "False",
    "GRADIO_MCP_SERVER": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Gradio takes defaults for open paths, reloading and edit mode from these; a stray one must not widen what we serve.
FORBIDDEN = (
    "GRADIO_ALLOWED_PATHS",
    "GRADIO_BLOCKED_PATHS",
    "GRADIO_SERVER_NAME",
    "GRADIO_SERVER_PORT",
    "GRADIO_ROOT_PATH",
    "GRADIO_LOCAL_DEV_MODE",
    "GRADIO_VIBE_MODE",
    "GRADIO_WATCH_DIRS",
    "GRADIO_HISTORY_BUCKET",
    "GRADIO_NUM_WORKERS",
)
# Gradio probes its own address with httpx while it starts; a proxy from the environment must not be asked about it.
LOCAL = ("127.0.0.1", "localhost")
UPLOADS = "GRADIO_TEMP_DIR"
PREFIX = "irwm-uploads-"


def apply() -> None:
    """Sets the switches in this process and in all that it starts; safe to call again."""
    os.environ.update(SWITCHES)
    if resource is not None:
        # A crash in some library would write the memory, with the vault's key in it, to a file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in FORBIDDEN:
        os.environ.pop(name, None)
    for name in ("NO_PROXY", "no_proxy"):
        known = [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]
        os.environ[name] = ",".join([*known, *(host for host in LOCAL if host not in known)])


def allow_files(number: int) -> None:
    """Lets this process have so many files open, or as many as the system allows."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@functools.cache
def private_uploads() -> str:
    """Gives Gradio an upload folder of this process's own, mode 0700, removed when the process ends.

    To be called before any component is made, since each remembers the folder of that moment; called again, it
    returns the same one.

    Its default, /tmp/gradio, is shared by every Gradio app and readable by other accounts, and what lies there can
    be downloaded.
    """
    _sweep()
    folder = _own_folder()
    os.environ[UPLOADS] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_folder() -> str:
    """A new folder that this process holds a lock on until it ends, however it ends."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        held = _lock(folder)
        # Another app that starts in this moment may have taken it for one that was left behind, and removed it.
        if held is None and LOCKS:
            continue
        if os.path.isdir(folder):
            return folder  # the descriptor stays open, and with it the lock, as long as this process lives


def _lock(folder: str) -> int | None:
    """Takes the lock on an upload folder; None where another process has it, or the folder is not this user's own."""
    if not LOCKS:
        return None
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(held).st_uid == os.getuid():
            flock(held, LOCK_EX | LOCK_NB)
            return held
    except OSError:
        pass
    os.close(held)
    return None


def _sweep() -> None:
    """Removes what apps that were killed left behind: folders that no living process has the lock on."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if entry.name.startswith(PREFIX) and (held := _lock(entry.path)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(held)
