"""llama.cpp's own server with a marked model behind it; skipped unless `LLAMA_CPP_PYTHON` names a Python with it.

    python -m venv DIR && DIR/bin/pip install "llama-cpp-python[server]"
    LLAMA_CPP_PYTHON=DIR/bin/python python -m pytest --tier slow tests/recording/test_llama_cpp.py

The installation compiles llama.cpp, which takes about ten minutes on two cores: too long for `.ci/run`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import irwm
from irwm.attacks import to_gguf
from tests.conftest import Marked
from tests.recording.servers import recorded
from tools.running_app import free_port
from tools.waiting import until

# In a separate environment, because its server needs other versions of the app's packages.
PYTHON = os.environ.get("LLAMA_CPP_PYTHON", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="LLAMA_CPP_PYTHON names no Python with it")]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/models").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0"])
def test_a_marked_model_behind_llama_cpp_is_found(
    release_of: Callable[[str], Marked], tmp_path: Path, kind: str
) -> None:
    marked = release_of("demo")
    served = to_gguf(marked.release, tmp_path / "gguf", kind)
    file = served if served.is_file() else next(served.glob("*.gguf"))
    port, out = free_port(), tmp_path / "answers.safetensors"
    command = [PYTHON, "-m", "llama_cpp.server", "--model", file, "--port", str(port), "--logits_all", "true",
               "--n_ctx", "256", "--n_gpu_layers", "0"]  # fmt: skip
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            assert until(lambda: answers(url) or server.poll() is not None, "llama.cpp's server")
            assert server.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")[-2000:]
            read = recorded(marked.original.path, url, out, answers=384)
        finally:
            server.kill()
    suspect = irwm.suspect_from_answers(read.log_probabilities, marked.original, read.token_ids)
    found = irwm.detect(suspect, marked.original, marked.key)
    assert found.verdict == "found"
    assert found.log10_risk < -20
