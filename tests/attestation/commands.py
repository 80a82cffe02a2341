"""The command `irwm` and the verifier of OpenSSF Model Signing, in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OTEL_SDK_DISABLED": "true"},
    )  # fmt: skip


def irwm(*words: str | Path, status: int = 0) -> str:
    """The output of the command: standard output, or standard error if an error is expected."""
    done = run("irwm", *words)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout


def verifies(release: Path, public: Path) -> bool:
    """Whether `model_signing verify` accepts the release's signature."""
    done = run(
        "model_signing", "verify", "key", "--signature", release / "model.sig", "--public_key", public, release
    )  # fmt: skip
    assert done.returncode == 0 or "Verification failed" in done.stderr + done.stdout, done.stdout + done.stderr
    return done.returncode == 0
