"""Packages that import each of their names on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def imported_on_use(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: the module of each public name, relative to the package.
    """
    names = sys.modules[package].__dict__

    def getattr_(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = names[name] = getattr(import_module(f"{package}.{homes[name]}"), name)
        return found

    return getattr_, lambda: sorted({*names, *homes})
