"""Write requirements.lock and requirements-cuda.lock: packages for the app's set-up, with the SHA-256 of each file.

    pip install uv
    python -m tools.lock

The versions are those of constraints.txt. The lock has the hashes of every file that the package index lists for a
version, so it is valid for all systems and for Python 3.11 and later.

There are two files because one file cannot serve both builds of torch. On Linux the index has torch for CUDA, which
needs NVIDIA's libraries (some gigabytes). The build for the processor has the same version and needs none of them. No
marker of a requirements file distinguishes the two, and pip takes no hashes for dependencies from a constraints file.
So requirements.lock is installed with --no-deps, and tools/set_up.py adds requirements-cuda.lock if torch requires it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK, CUDA_LOCK = ROOT / "requirements.lock", ROOT / "requirements-cuda.lock"
CUDA = re.compile(r"(nvidia|cuda|triton)\b")
# torch's builds for the processor alone are not on the index; these are the tested ones. Install another one manually
# before: pip keeps an installed package of the right version.
CPU_BUILDS = {
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": (
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
    ),
}
HEAD = "# Written by `python -m tools.lock`. {}\n"


def main() -> int:
    entries = resolved()
    torch = next(name for name in entries if name.startswith("torch=="))
    for name, digest in CPU_BUILDS.items():
        assert name.startswith(torch.split(" ")[0].replace("==", "-")), f"a hash of another version: {name}"
        entries[torch] = sorted({*entries[torch], digest})
    ours = {line: hashes for line, hashes in entries.items() if not CUDA.match(line)}
    write(LOCK, "Requirements of the app with all their dependencies. Installed with --no-deps.", ours)
    write(
        CUDA_LOCK,
        "Further requirements of torch's build for CUDA on Linux, in addition to requirements.lock.",
        {line: hashes for line, hashes in entries.items() if line not in ours},
    )
    return 0


def resolved() -> dict[str, list[str]]:
    """Return the SHA-256 of every file, by requirement with its marker."""
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "requirements.txt", "--constraints", "constraints.txt",
        "--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet",
        "--no-emit-index-url", "--no-emit-find-links", "--no-emit-package", "pip",
    ]  # fmt: skip
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {entry[0]: entry[1:] for entry in map(parts, said.replace("\\\n", " ").splitlines()) if entry}


def parts(line: str) -> list[str]:
    """Return a requirement and its hashes."""
    requirement, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
    return [requirement.strip(), *(each.strip() for each in hashes)] if hashes else []


def write(path: Path, what: str, entries: dict[str, list[str]]) -> None:
    lines = [HEAD.format(what)]
    for requirement, hashes in entries.items():
        lines.append(" \\\n".join([requirement, *(f"    --hash=sha256:{digest}" for digest in hashes)]) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
