"""Verify: does this report hold? Signature, files and, given the models, every number. The vault is not asked."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from irwm.report.judged import judge_report
from irwm.report.verify import report_name
from ui.components import notices
from ui.components.checks import checks_html
from ui.components.events import PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.path_picker import path_picker
from ui.components.uploads import browser_folder, receive, uploaded
from ui.context import Context
from ui.jobs import runner

INTRO = """
# Verify a report
Checks a report of this app, whoever made it: its signature, its files and, given the models and the opened key, every
number. Nothing of it needs the vault.
"""
OUTSIDE = """
Upload all files of the report together: its JSON, HTML and PDF and the signature. To run its numbers again as well,
unlock the vault and open the page Verify, or use `python -m irwm verify`.
"""
UPLOAD_LABEL = "All files of one report: .json, .html, .pdf and .signature.json"
# A report's largest file, its HTML, has some five megabytes.
LARGEST_BYTES = 64 * 1024 * 1024
ENDINGS = (".json", ".html", ".pdf")


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    report = path_picker(
        context,
        label="Report",
        info="Any one of its files; the others are looked for beside it",
        purpose="report",
        kind="file",
        suffixes=ENDINGS,
    )
    with gr.Accordion("Upload it instead", open=False, elem_id="upload-report"):
        upload = gr.File(
            label=UPLOAD_LABEL, file_count="multiple", elem_id="report-files", height=180, elem_classes="drop"
        )
    identity = _identity_field("verify-identity")
    with gr.Accordion("Run its numbers again", open=False, elem_id="verify-models"):
        gr.Markdown(
            "With the models and the key that its owner opened, everything is examined again, and each number is "
            "compared with the one in the report.",
            elem_classes="caption",
        )
        with gr.Row(equal_height=False):
            suspect = path_picker(
                context, label="Suspect (optional)", info="The model that was examined", purpose="verify-suspect"
            )
            original = path_picker(
                context, label="Original (optional)", info="The unmarked model", purpose="verify-original"
            )
        key = path_picker(
            context,
            label="Key file (optional)",
            info="As its owner opened it; it is read, and kept nowhere",
            purpose="verify-key",
            kind="file",
            suffixes=(),
        )
    start = gr.Button("Verify", variant="primary", elem_id="start-verify")
    job = job_card(context, ("verify",))
    result = gr.HTML(elem_id="verified")
    told = gr.State(None)  # the `About` of what `result` says, once anything was chosen or asked

    @guarded
    def begin(
        typed: str | None,
        files: list[str] | None,
        known: str | None,
        examined: str | None,
        unmarked: str | None,
        opened: str | None,
        request: gr.Request,
    ) -> Any:
        context.require(request)
        if files and (typed or "").strip():
            raise IrwmError("both a path and an upload are given", advice="Empty the field or remove the upload")
        if not files and not (typed or "").strip():
            raise IrwmError("the report is missing", advice="Choose one of its files, or upload them")
        pickers = {"suspect": (suspect, examined), "original": (original, unmarked), "key_file": (key, opened)}
        given = {name: str(p.check(text)) for name, (p, text) in pickers.items() if (text or "").strip() and text}
        place = None if files else report.check(typed or "")
        about = About.of(str(place) if place else None, files)
        if not given:
            return gr.skip(), look_at(files, place, known), about
        # The task gets nothing of the vault: no secrets go with it.
        place = place or receive(files or [], context.settings.home)
        asked = {"report": str(place), "identity": (known or "").strip(), "device": context.settings.device, **given}
        started = runner.start("verify", f"Verify {place.name}", asked, None, context.jobs).id
        return started, "", replace(about, job=started)

    @guarded
    def show(ended: str | None, about: About | None, request: gr.Request) -> Any:
        """What a task found; after a reload, when nothing was asked since, what the last one did."""
        if ended is None or not context.is_open(request) or (about is not None and about.job != ended):
            return gr.skip()
        done = context.jobs.get(ended)
        return checks_html(tuple(check) for check in done.result["checks"]) if done.result else gr.skip()

    def forget(path: str | None, files: list[str] | None, about: About | None) -> Any:
        """What was said of another report must not stand below this one.

        Of this one it stays: whoever pastes a path and presses Verify at once is told about the path after the answer.
        """
        present = About.of(path, files)
        # Before anything was chosen or asked, a field that is empty says nothing of what a reload shows again.
        before = About.of(None, None) if about is None else replace(about, job=None)
        return (gr.skip(), gr.skip()) if present == before else ("", present)

    models = [suspect.field, original.field, key.field]
    turn = in_turn("verify")
    start.click(begin, [report.field, upload, identity, *models], [job.job_id, result, told], **turn)
    job.ended.change(show, [job.ended, told], result, **turn)
    gr.on([report.chosen.change, upload.change], forget, [report.chosen, upload, told], [result, told], **turn)


@dataclass(frozen=True, slots=True)
class About:
    """Which report the page tells of.

    Attributes:
        path: of one of its files, where it was chosen by its path.
        files: what was uploaded, in order of their names.
        job: the task that computes its numbers again, where one was begun.
    """

    path: str | None
    files: tuple[str, ...]
    job: str | None = None

    @classmethod
    def of(cls, path: str | None, files: Sequence[str] | None) -> About:
        return cls(path, tuple(sorted(files or ())))


def build_outside() -> None:
    """The same without the passphrase, for uploaded files only: signature and files are checked at once."""
    with gr.Accordion("Verify a report without the passphrase", open=False, elem_id="verify-outside"):
        gr.Markdown(OUTSIDE)
        upload = gr.File(
            label=UPLOAD_LABEL, file_count="multiple", elem_id="outside-files", height=180, elem_classes="drop"
        )
        identity = _identity_field("outside-identity")
        start = gr.Button("Verify", elem_id="outside-verify")
        result = gr.HTML(elem_id="outside-verified")

    @guarded
    def begin(files: list[str] | None, known: str | None) -> Any:
        return look_at(files, None, known)

    # One at a time: anybody on this computer may ask.
    start.click(begin, [upload, identity], result, concurrency_limit=1, **PRIVATE)


def look_at(files: Sequence[str] | None, path: Path | None, identity: str | None) -> str:
    """The checks that need neither models nor key, as HTML; what cannot be read at all is said in their place.

    Args:
        files: what was uploaded; put side by side for as long as it takes, under their own names.
        path: one of the report's files, where nothing was uploaded.
    """
    try:
        if path is not None:
            return checks_of(path, identity)
        sources = uploaded(files or ())
        if sum(source.stat().st_size for source in sources) > LARGEST_BYTES:
            raise IrwmError("these files are too large for a report", expected=f"at most {LARGEST_BYTES >> 20} MiB")
        with tempfile.TemporaryDirectory(dir=browser_folder()) as folder:
            for source in sources:
                shutil.copyfile(source, Path(folder, source.name))
            return checks_of(_main_file(Path(folder)), identity)
    except IrwmError as error:
        return notices.error_html(error)


def checks_of(path: Path, identity: str | None) -> str:
    """The checks of a report on disk, without models."""
    found = judge_report(path, (identity or "").strip() or None)
    return checks_html((check.name, check.ok, check.said) for check in found.checks)


def _main_file(folder: Path) -> Path:
    """The file by which a report is told: its signature, else its numbers.

    Raises:
        IrwmError: there is none, or there are those of several: what is said of one would be taken for all.
    """
    names = sorted({name for name in (report_name(file.name) for file in folder.iterdir()) if name})
    if len(names) > 1:
        raise IrwmError(
            "these files are of several reports",
            found=", ".join(names),
            advice="Give the files of one report alone, under the names that they had when it was signed",
        )
    for ending in (".signature.json", *ENDINGS):
        found = sorted(file for file in folder.iterdir() if file.name.endswith(ending))
        if found:
            return found[0]
    raise IrwmError("none of these files is a report’s", expected=", ".join(ENDINGS))


def _report_files(elem_id: str) -> gr.File:
    return gr.File(label=UPLOAD_LABEL, file_count="multiple", elem_id=elem_id, elem_classes="drop", height=180)


def _identity_field(elem_id: str) -> gr.Textbox:
    return gr.Textbox(
        label="Expected identity (optional)",
        info="The signer’s first public key, as they published it: 64 characters. Without it, only who signed is said",
        max_length=64,
        max_lines=1,
        elem_id=elem_id,
        elem_classes="mono",
    )
