"""Install the app's libraries into the environment of the running Python; every file must have a known SHA-256.

    .venv/bin/python -m tools.set_up

It runs `pip install --require-hashes --no-deps -r requirements.lock`, and two steps that this command cannot do:

- It installs torch first, in the build that pip finds. If your index or folder has the build for the processor, pip
  prefers it; among files with known hashes it would prefer the package index's build for CUDA. An installed torch of
  the right version stays.
- It installs NVIDIA's libraries (requirements-cuda.lock) if the installed build of torch requires them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK, CUDA_LOCK = ROOT / "requirements.lock", ROOT / "requirements-cuda.lock"
# Not quiet: the first set-up downloads a gigabyte or two, and pip shows the progress.
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
INSTALL = (*PIP, "install", "--require-hashes", "--no-deps")
MISSING = re.compile(r"^torch \S+ requires \S+, which is not installed", re.MULTILINE)


def main() -> int:
    try:
        install_torch()
        subprocess.run([*INSTALL, "-r", str(LOCK)], check=True)
        if MISSING.search(subprocess.run([*PIP, "check"], capture_output=True, text=True, check=False).stdout):
            subprocess.run([*INSTALL, "-r", str(CUDA_LOCK)], check=True)
    except subprocess.CalledProcessError as error:  # pip has printed the reason
        return error.returncode
    return 0


def install_torch() -> None:
    found = re.search(r"^(torch==(\S+)) (?:.*\\\n)+.*\n", LOCK.read_text("utf-8"), re.MULTILINE)
    assert found is not None, "requirements.lock has no torch"
    entry, requirement, wanted = found[0], found[1], found[2]
    if installed("torch") == wanted:
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "torch.lock").write_text(entry, encoding="utf-8")
        subprocess.run([*PIP, "download", "--no-deps", "--dest", folder, requirement], check=True)
        chosen = ("--no-index", "--find-links", folder, "-r", str(Path(folder) / "torch.lock"))
        subprocess.run([*INSTALL, *chosen], check=True)


def installed(name: str) -> str:
    """Return the installed version, without the name of its build; "" for none."""
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
