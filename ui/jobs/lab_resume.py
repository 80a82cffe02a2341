"""What two labs must have in common for the rows of one to stand in the other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from irwm.attacks.rewrite import COMPANIONS
from ui.jobs.reporter import JobReporter
from ui.report.document import ReportError, plain
from ui.report.items import LAYOUT
from ui.report.lab import read_lab

# Programs that change no number.
_DRAWING = (LAYOUT, "plotly", "matplotlib", "typst", "cryptography")
# Programs that the attacks and the measurement rest on, beside those behind every report.
_TOOLS = (
    *("transformers", "tokenizers", "peft", "gguf", "libggml-python", "bitsandbytes", "accelerate"),
    *("auto-round", "mergekit"),
)


def tools() -> dict[str, str]:
    """Versions of what the attacks and the measurement rest on, as installed here."""
    found = {}
    for name in _TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def companions(*models: Path | None) -> str:
    """One SHA-256 over all files beside these models' weights: configs and tokenizers decide what a model computes as
    much as weights do."""
    digest = hashlib.sha256()
    for model in models:
        folder = model if model is None or model.is_dir() else model.parent
        for file in sorted(folder.iterdir()) if folder else ():
            if file.is_file() and file.suffix in COMPANIONS:
                digest.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
        digest.update(b"/")
    return digest.hexdigest()


def comparable(request: Mapping[str, Any], report: JobReporter, begun: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The marks of the earlier lab that the request names, if it asked the same of the same models with the same
    programs on the same device; else none."""
    if not request["resume"]:
        return []
    try:
        earlier = read_lab(report.home / "jobs" / Path(request["resume"]).name)
    except ReportError:
        return []

    def asked(document: Mapping[str, Any]) -> tuple[Any, ...]:
        programs = {name: each for name, each in document["versions"].items() if name not in _DRAWING}
        original = document["original"]["fingerprint"], document["original"]["files"]
        return document["rehearsal"], document["settings"], original, programs, document["extra"].get("Device")

    return list(earlier["marks"]) if asked(plain(earlier)) == asked(begun) else []


def known_rows(marks: Sequence[Mapping[str, Any]], section: Mapping[str, Any]) -> dict[tuple[str, Any], dict[str, Any]]:
    """Rows of the very same copy and key, by attack and value; what failed is tried again."""

    def copy_of(mark: Mapping[str, Any]) -> tuple[Any, ...]:
        files = [each["sha256"] for each in mark["release"]["files"]]
        return mark["mode"], mark["parameters"], mark["unmeasured"], mark["key"]["commitment"], files

    return {
        (row["attack"], row["value"]): row
        for mark in marks
        if copy_of(mark) == copy_of(section)
        for row in mark["rows"]
        if row["ways"] and not row["reason"]
    }
