"""Write docs/layer0-families.json: the data of every family for docs/layer0.md, from the families' data files.

python -m tools.layer0
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from irwm.families.family import families

TABLE = Path(__file__).resolve().parents[1] / "docs" / "layer0-families.json"
# Fields about whole models and other containers, and text for readers.
_LEFT_OUT = {"name", "title", "about", "gguf", "anatomy", "layer_count"}


def table() -> dict[str, Any]:
    """Return the families by name, in plain values, without fields that do not concern layer 0."""
    return {family.name: {k: v for k, v in plain(family).items() if k not in _LEFT_OUT} for family in families()}


def plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def main() -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(family)}" for name, family in table().items())
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
