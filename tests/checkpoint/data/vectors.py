"""Tensors as JSON, for values that another tool has computed once."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def written(dtype: str, shape: tuple[int, ...], content: bytes) -> dict[str, Any]:
    """One tensor; `content` holds its numbers in little-endian order."""
    return {"dtype": dtype, "shape": list(shape), "base64": base64.b64encode(content).decode()}


def save(name: str, made_by: str, cases: list[dict[str, Any]]) -> None:
    (FOLDER / f"{name}.json").write_text(json.dumps({"made_by": made_by, "cases": cases}, indent=1) + "\n")


def load(name: str) -> list[dict[str, Any]]:
    """The cases of a file, its tensors as torch tensors."""
    return [_revived(case) for case in json.loads((FOLDER / f"{name}.json").read_text())["cases"]]


def _revived(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "base64" not in value:
        return {key: _revived(each) for key, each in value.items()}
    import torch

    content = torch.frombuffer(bytearray(base64.b64decode(value["base64"])), dtype=torch.uint8)
    return content.view(getattr(torch, value["dtype"])).reshape(value["shape"])
