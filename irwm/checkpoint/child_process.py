"""How this program starts another Python: with its own modules, and with nothing from the folder that it is run in.

A command is often run in a folder that another person sent, where a file may be called `torch.py` or
`irwm/report/judged.py`. By default, Python imports modules from the working folder. So these commands start all
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
        more: set in it.
        base: what it starts from, in place of this process's own.
    """
    found = dict(os.environ if base is None else base)
    # An empty or relative entry means the working folder, or a folder in it.
    others = [entry for entry in found.get(_PATH, "").split(os.pathsep) if os.path.isabs(entry)]
    found[_PATH] = os.pathsep.join(dict.fromkeys([str(ROOT), *others]))
    return found | {_SAFE_PATH: "1"} | dict(more or {})


def script_command(script: Path, *arguments: str) -> list[str]:
    """The command that runs a script apart from this process's environment, which is as good as Python's -I, but with
    the packages that are installed for one user only."""
    return [sys.executable, "-E", "-P", "-B", str(script), *arguments]
