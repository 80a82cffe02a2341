"""Checks that two labs are similar enough to reuse the rows of one in the other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from irwm.attacks.rewrite import COMPANIONS
from irwm.errors import IrwmError
from irwm.report import schema
from irwm.report.items import LAYOUT, versions_of
from irwm.report.lab import lab_html
from storage.jobs import Jobs
from ui.services.stored_results import lab_of

_SETTINGS = {"companions_sha256": "config or tokenizer", "tokens": "number of tokens"}
# Programs that do not affect the numbers.
_DRAWING = (LAYOUT, "plotly", "matplotlib", "typst", "cryptography")
# Programs that the attacks and the measurement use, in addition to those behind every report.
_TOOLS = (
    *("transformers", "tokenizers", "peft", "gguf", "libggml-python", "bitsandbytes", "accelerate"),
    "auto-round",
)


def tools() -> dict[str, str]:
    """Installed versions of the programs that the attacks and the measurement use."""
    return versions_of(_TOOLS)


def companions(*models: Path | None) -> str:
    """One SHA-256 over all files of these models except the weights: configs and tokenizers also decide what a model
    computes."""
    digest = hashlib.sha256()
    for model in models:
        folder = model if model is None or model.is_dir() else model.parent
        for file in sorted(folder.iterdir()) if folder else ():
            if file.is_file() and file.suffix in COMPANIONS:
                digest.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
        digest.update(b"/")
    return digest.hexdigest()


def comparable(resume: str, jobs: Jobs, begun: schema.Lab) -> tuple[list[schema.LabMark], str]:
    """The marks of earlier labs, oldest first, with the same settings, models, programs and device: the lab with
    the id `resume`, the lab that it continued, and so on. If there are none, also the reason, in the form that follows
    a colon; "" if `resume` is ""."""
    marks: list[schema.LabMark] = []
    why = ""
    for id in _line(resume, jobs):
        try:
            earlier = lab_of(jobs.files(id))
            lab_html(earlier)  # rows that cannot be drawn now could not be filed at the end either
            different = _different(_asked(earlier), _asked(begun))
        except IrwmError as error:
            why = why or error.problem
        except Exception:  # a changed file can raise any error
            why = why or "the results are damaged"
        else:
            marks = marks if different else [*earlier["marks"], *marks]
            why = why or (f"they were made with different settings ({different})" if different else "")
    return marks, "" if marks else why


def _line(resume: str, jobs: Jobs) -> list[str]:
    """The ids of the earlier labs, newest first: one that was stopped early may have fewer rows than the one before."""
    ids: list[str] = []
    while (id := Path(resume).name) and id not in ids:
        ids.append(id)
        try:
            resume = str(jobs.get(id).request.get("resume") or "")
        except IrwmError:  # its folder may still exist
            break
    return ids


def _asked(document: schema.Lab) -> dict[str, object]:
    """The settings that decide a lab's numbers, in addition to the marked copy, by their readable names."""
    original = document["original"]["fingerprint"], document["original"]["files"]
    programs = {name: each for name, each in document["versions"].items() if name not in _DRAWING}
    return {
        "kind of mark": document["rehearsal"],
        **{_SETTINGS.get(name, name): value for name, value in document["settings"].items()},
        "original": original,
        **programs,
        "device": document["extra"].get("Device"),
    }


def _different(one: Mapping[str, object], other: Mapping[str, object]) -> str:
    """The names of the settings that differ; "" if there are none."""
    names = dict.fromkeys((*one, *other))
    return ", ".join(name for name in names if one.get(name) != other.get(name))


def known_rows(
    marks: Sequence[schema.LabMark], section: schema.LabMark
) -> dict[tuple[str, float | str], schema.LabRow]:
    """Rows of exactly the same copy and key, by attack and value; failed trials are run again."""

    def copy_of(mark: schema.LabMark) -> tuple[object, ...]:
        files = [each["sha256"] for each in mark["release"]["files"]]
        return mark["mode"], mark["parameters"], mark["unmeasured"], mark["key"]["commitment"], files

    return {
        (row["attack"], row["value"]): row
        for mark in marks
        if copy_of(mark) == copy_of(section)
        for row in mark["rows"]
        if row["ways"] and not row["reason"]
    }
