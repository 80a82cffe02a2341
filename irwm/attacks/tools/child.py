"""A tool run in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from irwm.errors import OutputExistsError, UnsupportedCheckpointError, printable

ROOT = Path(__file__).resolve().parents[3]
# Nothing is looked up on the network.
_OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
# Seconds between two looks at whether the person still wants it.
_LOOK = 0.5
_SAID = 400

Progress = Callable[[int, int, str], None]


def missing(module: str, package: str) -> str | None:
    """The sentence that names the package where a module cannot be imported, None where it can."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"It needs the package {package.partition('=')[0]}, which is not installed (pip install {package})."


def run_tool(main: str, request: Mapping[str, Any], out_dir: Path, what: str, progress: Progress | None = None) -> Path:
    """Run a tool that writes a model folder, and put that at `out_dir`.

    Args:
        main: the module of this package that is run.
        request: what it is handed, as JSON; "out" is added, a folder that does not exist yet.
        what: the tool's name, for a person.
        progress: called every half second; an error that it raises ends the tool.

    Raises:
        OutputExistsError: `out_dir` exists.
        UnsupportedCheckpointError: the tool failed; its last words are in the message.
    """
    if out_dir.exists():
        raise OutputExistsError("the output folder exists already", file=out_dir, advice="Choose a new folder")
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    # Beside the result, so that it is moved there without a copy; tools leave work folders where they are started.
    with tempfile.TemporaryDirectory(prefix=f".{out_dir.name}.", dir=out_dir.parent.resolve()) as work:
        written = Path(work) / "out"
        environment = os.environ | _OFFLINE | {"PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])}
        command = [sys.executable, "-P", "-m", f"irwm.attacks.tools.{main}"]
        # A file: what a pipe cannot hold at once would wait there for a tool that is still being loaded.
        asked = Path(work) / "request.json"
        asked.write_text(json.dumps({**request, "out": str(written)}), encoding="utf-8")
        with (
            asked.open("rb") as content,
            subprocess.Popen(
                command,
                stdin=content,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=work,
                env=environment,
            ) as process,
        ):
            try:
                said = _waited(process, what, progress)
            finally:  # whatever went wrong here, it does not go on
                if process.poll() is None:
                    process.kill()
        if process.returncode != 0 and progress:
            progress(0, 1, f"{what} ended")  # a Stop ends the whole group, the tool perhaps before us: then this raises
        if process.returncode != 0 or not written.is_dir():
            raise UnsupportedCheckpointError(f"{what} could not do it", found=_last_words(said, process.returncode))
        shutil.move(written, out_dir)
    return out_dir


def _waited(process: subprocess.Popen[bytes], what: str, progress: Progress | None) -> bytes:
    """What the tool says on standard error until it ends."""
    while True:
        try:
            return process.communicate(timeout=_LOOK)[1]
        except subprocess.TimeoutExpired:
            if progress:
                progress(0, 1, f"{what} at work")


def _python_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


def _last_words(said: bytes, status: int | None) -> str:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return printable(lines[-1], _SAID) if lines else f"exit status {status}, nothing said"


def request() -> dict[str, Any]:
    """Within the tool's process: what it was handed."""
    found: dict[str, Any] = json.load(sys.stdin)
    return found
