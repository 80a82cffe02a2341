"""Starts other Python processes with this program's own modules, and with none from the working folder.

A command is often run in a folder from someone else, and a file in it may be called `torch.py` or
`irwm/report/sandbox.py`. By default, Python imports modules from the working folder. So these commands start all
processes of the program. The entry points set PYTHONSAFEPATH for the processes that libraries start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SAFE_PATH, _PATH = "PYTHONSAFEPATH", "PYTHONPATH"


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this program; it needs `module_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(more: Mapping[str, str] | None = None, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that runs a module of this program.

    Args:
        more: variables to set in it.
        base: the environment to start from, instead of this process's.
    """
    found = dict(os.environ if base is None else base)
    # An empty or relative entry means the working folder, or a folder in it.
    others = [entry for entry in found.get(_PATH, "").split(os.pathsep) if os.path.isabs(entry)]
    found[_PATH] = os.pathsep.join(dict.fromkeys([str(ROOT), *others]))
    return found | {_SAFE_PATH: "1"} | dict(more or {})


def script_command(script: Path, *arguments: str) -> list[str]:
    """The command that runs a script independently of this process's environment. It is as safe as Python's -I, but
    keeps the packages that are installed for one user only."""
    return [sys.executable, "-E", "-P", "-B", str(script), *arguments]
