"""Environment switches that stop every library from contacting the network. Imported before Gradio.

This module imports no third-party package: it has to run first, in the app and in every job's process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterable

try:
    import resource
except ImportError:  # Windows, which writes no core files
    resource = None  # type: ignore[assignment]
try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where a killed app's folder stays until the user removes it
    LOCKS = False
else:
    LOCKS = True

SWITCHES = {
    # Gradio asks its makers' server for a newer version and reports each launch unless this is exactly "False".
    "GRADIO_ANALYTICS_ENABLED": "False",
    # After each event, Gradio summarises up to 10 000 events in a table that only its own dashboard shows.
    "GRADIO_ANALYTICS_MAX_EVENTS": "1",
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(2**62),
    # When on (its default), keeps inputs, including passphrases, in the browser's storage.
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
# The servers that checkpoints may be read from (irwm.checkpoint.remote.servers): none, until an officer names some.
SERVERS = "IRWM_SERVERS"
# Gradio takes defaults for open paths, reloading and edit mode from these; a stray one must not extend what we serve.
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
# Gradio calls its own address with httpx while it starts; a proxy from the environment must not get that call.
LOCAL = ("127.0.0.1", "localhost")
UPLOADS = "GRADIO_TEMP_DIR"
PREFIX = "irwm-uploads-"


def apply() -> None:
    """Sets the switches in this process and in its child processes; safe to call again."""
    os.environ.update(SWITCHES)
    os.environ.setdefault(SERVERS, "")
    if resource is not None:
        # A crash in a library would write the memory, including the vault's key, to a file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in FORBIDDEN:
        os.environ.pop(name, None)
    for name in ("NO_PROXY", "no_proxy"):
        known = [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]
        os.environ[name] = ",".join([*known, *(host for host in LOCAL if host not in known)])


def allow_servers(names: Iterable[str]) -> None:
    """Lets this process and its child processes read checkpoints from these servers, and from no others."""
    os.environ[SERVERS] = " ".join(names)


def allow_files(number: int) -> None:
    """Lets this process open this many files, or as many as the system allows."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@functools.cache
def private_uploads() -> str:
    """Gives Gradio an upload folder of this process's own, mode 0700, removed when the process ends.

    Call it before any component is created, because each component stores the folder of that moment; further calls
    return the same folder.

    Its default, /tmp/gradio, is shared by every Gradio app and readable by other accounts, and its files can
    be downloaded.
    """
    _sweep()
    folder = _own_folder()
    os.environ[UPLOADS] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_folder() -> str:
    """A new folder on which this process holds a lock until it ends, in any way."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        held = _lock(folder)
        # Another app that starts at this moment may have treated it as abandoned, and removed it.
        if held is None and LOCKS:
            continue
        if os.path.isdir(folder):
            return folder  # the descriptor stays open, and the lock held, as long as this process lives


def _lock(folder: str) -> int | None:
    """Takes the lock on an upload folder; None if another process has it, or the folder belongs to another user."""
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
    """Removes the upload folders of killed apps: folders whose lock no living process holds."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if entry.name.startswith(PREFIX) and (held := _lock(entry.path)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(held)
