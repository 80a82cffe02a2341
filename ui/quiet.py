"""Environment switches that keep every library from talking to the outside. Imported before Gradio.

Nothing here imports a third party: it has to run first, in the app and in every job's process.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile

try:
    import resource
except ImportError:  # Windows, which writes no such file
    resource = None  # type: ignore[assignment]

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


@functools.cache
def private_uploads() -> str:
    """Gives Gradio an upload folder of this process's own, mode 0700, removed when the process ends.

    To be called before any component is made, since each remembers the folder of that moment; called again, it
    returns the same one.

    Its default, /tmp/gradio, is shared by every Gradio app and readable by other accounts, and what lies there can
    be downloaded.
    """
    folder = tempfile.mkdtemp(prefix="irwm-uploads-")
    os.environ[UPLOADS] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
