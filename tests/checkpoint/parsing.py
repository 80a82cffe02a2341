"""Parsers of PyTorch and GGUF files, run in the process of the test."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from irwm.checkpoint import parser_process
from irwm.checkpoint.formats import parser_child


def without_child(parser: str, path: Path, what: str, *_: Any) -> dict[str, Any]:
    """The same as `run_parser`, but in this process: starting torch again takes more than a second."""
    parse = import_module(f"irwm.checkpoint.formats.{parser}").parse
    answer = parser_process.answer_of({"parse": parse}, str(path))
    return parser_child.checked_answer(answer.encode("ascii"), path, what, "")
