"""Verify: checks a report's signature, its files and, given the models, every number. The vault is not used."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError, path_from, shown_path
from irwm.report.audit_log import ENDING as LOG_ENDING
from irwm.report.checks import UNKNOWN_TIME, Check, Verification
from irwm.report.reader_inputs import opened_keys
from irwm.report.received import ARCHIVE, report_name
from irwm.report.received import receive as receive_report
from irwm.report.review import read_review
from irwm.report.sandbox import from_json, judge_report
from irwm.report.stamps import trusted_roots
from ui.components import notices
from ui.components.events import PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.path_picker import hold_back, path_picker
from ui.components.places import Places, at
from ui.components.review_form import review_form
from ui.components.uploads import browser_folder, receive, uploaded
from ui.components.verification_card import checks_html
from ui.context import Context
from ui.dates import day_utc
from ui.jobs.requests import Asked
from ui.services.request import VerifyRequest
from ui.services.review import file_review

INTRO = """
# Verify a report
Checks any report made with this app: its signature, its files and, if you provide the models and the opened key, every
number. The check does not need the vault.
"""
OUTSIDE = """
Upload the report’s archive, or all of its files together: the JSON, HTML and PDF files and the signature. To recompute
the numbers, unlock the vault and open the Verify page, or use the installed command `irwm verify`.
"""
UPLOAD_LABEL = "One report (at most 64 MiB): its archive (.zip), or all its files (.json, .html, .pdf, .signature.json)"
# A report's largest file, its HTML, has about five megabytes.
LARGEST_BYTES = 64 * 1024 * 1024
ENDINGS = (".json", ".html", ".pdf", ARCHIVE)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    Verify(context, Layout(context)).connect()


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context) -> None:
        gr.Markdown(INTRO)
        self.report = path_picker(
            context,
            label="Report",
            info="The report’s archive, or any one of its files. The other files must be in the same folder",
            purpose="report",
            kind="file",
            suffixes=ENDINGS,
        )
        with gr.Accordion("Upload it instead", open=False, elem_id="upload-report"):
            self.upload = _report_files("report-files")
        self.identity = _identity_field("verify-identity")
        misread = gr.HTML(visible=False, elem_id="verify-identity-notice")
        with gr.Accordion("Timestamping authorities that you trust", open=False, elem_id="verify-authorities"):
            self.roots = _roots_field("verify-roots")
            unrooted = gr.HTML(visible=False, elem_id="verify-roots-notice")
        with gr.Accordion("Recompute the numbers", open=False, elem_id="verify-models"):
            self._models(context)
        told = gr.HTML(visible=False, elem_id="verify-notice")
        notes = {"report": self.report.note} | {name: picker.note for name, picker in self.pickers.items()}
        self.places = Places(kept=notes, form=told, identity=misread, roots=unrooted, seen=self.seen_notice, **notes)
        self.start = gr.Button("Verify", variant="primary", elem_id="start-verify")
        self.job = job_card(context, ("verify",))
        self.result = gr.HTML(elem_id="verified")
        self.review = review_form()
        hold_back(self.start, [self.report, *self.pickers.values()])
        self.told = gr.State(None)  # the `About` of the text in `result`, once a report was chosen or checked

    def _models(self, context: Context) -> None:
        gr.Markdown(
            "If you provide the models and the opened keys, the whole examination is repeated, and each number is "
            "compared with the one in the report. For a sweep, choose the folder of suspects.",
            elem_classes="caption",
        )
        with gr.Row(equal_height=False):
            suspect = path_picker(
                context,
                label="Suspect (optional)",
                info="The model or the recorded answers that were examined",
                purpose="verify-suspect",
            )
            original = path_picker(
                context, label="Original (optional)", info="The unmarked model", purpose="verify-original"
            )
        keys = path_picker(
            context,
            label="Keys (optional)",
            info="The key file that the owner opened, or a folder with all the keys that were tried. Keys are not "
            "stored",
            purpose="verify-key",
            kind="any",
            suffixes=(),
            read=opened_keys,
        )
        models = path_picker(
            context,
            label="Models in a dispute (optional)",
            info="The folder that contains all examined models",
            purpose="verify-models",
            kind="folder",
        )
        with gr.Row(equal_height=False):
            log = path_picker(
                context,
                label="Audit log (optional)",
                info="The signer’s log, exported from their Vault page",
                purpose="verify-log",
                kind="file",
                suffixes=(LOG_ENDING,),
            )
            self.seen = gr.Textbox(
                label="Suspect known since (optional)",
                info="A date such as 2026-03-01, from a source other than the signer, or the word “unknown”",
                max_length=40,
                max_lines=1,
                elem_id="verify-seen",
            )
        self.seen_notice = gr.HTML(visible=False, elem_id="verify-seen-notice")
        # Under the task's own names.
        self.pickers = {"suspect": suspect, "original": original, "keys": keys, "models": models, "audit_log": log}


@dataclass(frozen=True, slots=True)
class Verify:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self) -> None:
        """Connects each event to its handler."""
        page, job, turn = self.page, self.page.job, in_turn("verify")
        models = [picker.field for picker in page.pickers.values()]
        asked = [page.report.field, page.upload, page.identity, page.roots, page.seen, *models]
        begun = [page.result, job.job_id, page.told, *page.places.outputs]
        page.start.click(page.places.told(self.begin, 3, emptied=1), asked, begun, **turn)
        job.ended.change(self.show, [job.ended, page.told], page.result, **turn)
        changed, given = [page.report.chosen.change, page.upload.change], [page.report.chosen, page.upload]
        review, of_review = page.review, page.review.outputs
        gr.on(changed, forget, [*given, page.told], [page.result, page.told], **turn)
        page.told.change(review.emptied, None, of_review, **turn)
        signed = [*of_review, *review.places.outputs]
        sign = review.places.told(self.sign_review, len(of_review))
        review.start.click(sign, [page.told, *review.inputs], signed, **turn)

    def begin(
        self,
        request: gr.Request,
        typed: str | None,
        files: list[str] | None,
        known: str | None,
        trusted: list[str] | None,
        seen: str | None,
        *models: str | None,
    ) -> Any:
        """Checks the report. `models`: the values of `Layout.pickers`."""
        vault, page = self.context.require(request), self.page
        with at("report"):
            if files and (typed or "").strip():
                raise IrwmError("both a path and an upload were given", advice="Clear the field, or remove the upload")
            if not files and not (typed or "").strip():
                raise IrwmError("no report was chosen", advice="Choose one of its files, or upload all of them")
            place = None if files else page.report.check(typed or "")
        with at("identity"):
            expected = expected_identity(known)
        with at("roots"):
            roots = certificates(trusted)
        given = {}
        for (name, picker), text in zip(page.pickers.items(), models, strict=True):
            if text and text.strip():
                with at(name):
                    given[name] = shown_path(picker.check(text))
        if seen and seen.strip():
            with at("seen"):
                given["seen"] = UNKNOWN_TIME if seen.strip().lower() == UNKNOWN_TIME else day_utc(seen)
        about = About.of(shown_path(place) if place else None, files)
        if not given:
            shown, sha256 = look_at(files, place, expected, roots)
            return shown, gr.skip(), replace(about, sha256=sha256, identity=expected, roots=roots)
        # The task gets no access to the vault: no secrets are passed to it.
        place = place or receive(files or [], self.context.settings.home)
        asked = VerifyRequest(
            report=shown_path(place),
            identity=expected,
            device=self.context.settings.device,
            roots=roots,
            **given,
        )
        started = self.context.start(Asked(f"Verify {shown_path(place.name)}", asked), vault).id
        return "", started, replace(about, job=started, place=shown_path(place))

    def sign_review(self, request: gr.Request, about: About | None, *values: Any) -> Any:
        """Signs and files a review of the report that the page has verified. `values`: those of the form."""
        vault, form = self.context.require(request), self.page.review
        if about is None or not (about.job or about.sha256):
            raise IrwmError("no report was verified", advice="Verify the report first")
        asked = form.request(*values)
        kept = about.place or about.path
        with opened_report(about.files, path_from(kept) if kept else None) as path:
            report = receive_report(path)
            data = b"" if isinstance(report, Check) else report.parts.get(".json", b"")
            if about.job is None:
                found = judge_report(path, about.identity or None, roots_pem=about.roots.encode("ascii") or None)
            else:
                result: Any = self.context.jobs_of(request).get(about.job).result
                found = from_json(result) if result else Verification(())
        shown = {found.sha256, hashlib.sha256(data).hexdigest(), about.sha256 or found.sha256}
        if isinstance(report, Check) or len(shown) > 1:
            raise IrwmError("the report has changed, or is not verified yet", advice="Verify it again")
        filing, files = file_review(
            asked, report.file(".json"), data, found, vault, self.context.settings.preferences.language
        )
        title = next(case.title for case in vault.cases() if case.id == filing.case_id)
        return form.filed(title, files)

    @guarded
    def show(self, ended: str | None, about: About | None, request: gr.Request) -> Any:
        """The results of a task; after a reload, those of the last task if none was started since then."""
        if ended is None or not self.context.is_open(request) or (about is not None and about.job != ended):
            return gr.skip()
        done = self.context.jobs_of(request).get(ended)
        if not done.result or "left" not in done.result:  # an earlier version of the app wrote it
            return gr.skip()
        return checks_html(from_json(done.result))


@dataclass(frozen=True, slots=True)
class About:
    """The report that the page describes.

    Attributes:
        path: of one of its files, if it was chosen by its path.
        files: the uploaded files, in order of their names.
        job: the task that computes its numbers again, if one was started.
        place: where the task finds its files.
        sha256: of its JSON, if it was verified without a task.
        identity, roots: what was given for that.
    """

    path: str | None
    files: tuple[str, ...]
    job: str | None = None
    place: str = ""
    sha256: str = ""
    identity: str = ""
    roots: str = ""

    @classmethod
    def of(cls, path: str | None, files: Sequence[str] | None) -> About:
        return cls(path, tuple(sorted(files or ())))

    @property
    def report(self) -> About:
        """Which report it is, without what was done with it."""
        return About(self.path, self.files)


def forget(path: str | None, files: list[str] | None, about: About | None) -> Any:
    """Removes the results of another report.

    Results of this report stay: if a path is pasted and Verify is pressed at once, the event for the path arrives after
    the answer.
    """
    present = About.of(path, files)
    # Before a report was chosen or checked, an empty field does not mean that the restored result is of another one.
    before = About.of(None, None) if about is None else about.report
    return (gr.skip(), gr.skip()) if present == before else ("", present)


def build_outside() -> None:
    """The same without the passphrase, for uploaded files only: signature and files are checked at once."""
    with gr.Accordion("Verify a report without the passphrase", open=False, elem_id="verify-outside"):
        gr.Markdown(OUTSIDE)
        upload = _report_files("outside-files")
        identity = _identity_field("outside-identity")
        roots = _roots_field("outside-roots")
        start = gr.Button("Verify", elem_id="outside-verify")
        result = gr.HTML(elem_id="outside-verified")

    @guarded
    def begin(files: list[str] | None, known: str | None, trusted: list[str] | None) -> Any:
        try:
            return look_at(files, None, expected_identity(known), certificates(trusted))[0]
        except IrwmError as error:
            return notices.error_html(error)

    # One at a time: anyone on this computer may request it.
    start.click(begin, [upload, identity, roots], result, concurrency_limit=1, **PRIVATE)


def look_at(files: Sequence[str] | None, path: Path | None, identity: str, roots: str = "") -> tuple[str, str]:
    """The checks that need neither models nor key, as HTML, and the SHA-256 of the JSON that was verified.

    If the report cannot be read, the error as HTML, and "".

    Args:
        files: the uploaded files; put into one folder under their own names while they are checked.
        path: one of the report's files, if no file was uploaded.
        roots: root certificates of timestamping authorities, PEM.
    """
    try:
        with opened_report(files, path) as report:
            found = judge_report(report, identity or None, roots_pem=roots.encode("ascii") or None)
            return checks_html(found), found.sha256
    except IrwmError as error:
        return notices.error_html(error), ""


@contextmanager
def opened_report(files: Sequence[str] | None, path: Path | None) -> Iterator[Path]:
    """One of the report's files, with the others in its folder; see `look_at`.

    Raises:
        IrwmError: the uploaded files are not those of one report.
    """
    if path is not None:
        yield path
        return
    sources = uploaded(files or ())
    if sum(source.stat().st_size for source in sources) > LARGEST_BYTES:
        raise IrwmError("these files are too large to be a report", expected=f"at most {LARGEST_BYTES >> 20} MiB")
    with tempfile.TemporaryDirectory(dir=browser_folder()) as folder:
        for source in sources:
            shutil.copyfile(source, Path(folder, source.name))
        yield _main_file(Path(folder))


def expected_identity(typed: str | None) -> str:
    """The public key that was typed; "" for none.

    Raises:
        IrwmError: this is not a public key.
    """
    text = (typed or "").strip().lower()
    if not re.fullmatch(r"([0-9a-f]{64})?", text):
        raise IrwmError(
            "this is not a public key",
            expected="64 characters (0 to 9 and a to f)",
            found=text,
            advice="Copy the signer’s first public key as published by the signer",
        )
    return text


def certificates(files: Sequence[str] | None) -> str:
    """Uploaded certificates as PEM; "" for none.

    Raises:
        IrwmError: a file is too large, or contains no certificate.
    """
    return (trusted_roots(uploaded(files) if files else []) or b"").decode("ascii", "replace")


def _main_file(folder: Path) -> Path:
    """The file that identifies a report: its signature, or its numbers if there is none.

    Raises:
        IrwmError: there is no such file, or there are several: the result for one report would be taken for all.
    """
    files = list(folder.iterdir())
    names = sorted({report_name(file.name) for file in files} - {""})
    names += sorted(file.name for file in files if file.name.endswith(ARCHIVE))
    if len(names) == 2 and (review := _review_among(folder, names)):
        return review
    if len(names) > 1:
        raise IrwmError(
            "these files belong to several reports",
            found=", ".join(names),
            advice="Provide the files of only one report, with the names that they had when the report was signed",
        )
    for ending in (".signature.json", *ENDINGS):
        found = sorted(file for file in files if file.name.endswith(ending))
        if found:
            return found[0]
    raise IrwmError("these files do not belong to a report", expected=", ".join(ENDINGS))


def _review_among(folder: Path, names: Sequence[str]) -> Path | None:
    """The JSON of a review, if one of two documents is a review of the other."""
    for name, other in (names, reversed(names)):
        path = folder / f"{name}.json"
        with suppress(IrwmError, OSError):
            if path.is_file() and read_review(path.read_bytes())["reviewed"]["json"] == f"{other}.json":
                return path
    return None


def _report_files(elem_id: str) -> gr.File:
    return gr.File(label=UPLOAD_LABEL, file_count="multiple", elem_id=elem_id, elem_classes="drop", height=180)


def _roots_field(elem_id: str) -> gr.File:
    return gr.File(
        label="Root certificates of timestamping authorities that you trust (optional): .pem, .cer or .crt",
        file_count="multiple",
        elem_id=elem_id,
        elem_classes="drop",
        height=180,
    )


def _identity_field(elem_id: str) -> gr.Textbox:
    return gr.Textbox(
        label="Expected identity (optional)",
        info="The signer’s first public key, as published by the signer (64 characters). If you leave it out, the "
        "check shows who signed, but not whether that is the signer you expect",
        max_length=64,
        max_lines=1,
        elem_id=elem_id,
        elem_classes="mono",
    )
