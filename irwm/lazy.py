"""Packages that import each of their public names on first use (PEP 562)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def imported_on_use(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Its public names are those that it imports for type checkers in the form `name as name`.

    Args:
        package: its `__name__`.
    """
    names = sys.modules[package].__dict__
    imports = (
        node for node in ast.walk(ast.parse(Path(names["__file__"]).read_bytes())) if isinstance(node, ast.ImportFrom)
    )
    homes = {each.name: node.module for node in imports for each in node.names if node.module and each.asname}

    def getattr_(name: str) -> Any:
        """A public name, a module of the package, or the list of public names."""
        if name == "__all__":  # not assigned, because type checkers take an assigned one as the complete list
            found: Any = sorted(homes)
        elif name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        elif homes.get(name, package) != package:
            found = getattr(import_module(homes[name]), name)
        else:
            try:
                found = import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":  # the module exists, but one of its imports failed
                    raise
                raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
        names[name] = found
        return found

    return getattr_, lambda: sorted({*names, *homes})
