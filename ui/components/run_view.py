"""One run of a case: its verdict, or the outcome of a dispute or lab, and the files of its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from irwm.report import dispute, lab, review, schema
from irwm.report.document import from_json, schema_of, to_json
from irwm.report.html import render_html
from storage.vault import Vault
from ui.components import notices
from ui.components.dispute_card import dispute_html
from ui.components.finding_card import finding_card
from ui.components.lab_table import summary_html, table_html
from ui.components.review_card import review_html
from ui.components.uploads import download
from ui.components.verdict_card import verdict_html
from ui.file_names import plain_name

# Ending of a report's file, label of its button, its id. The signature's ending contains that of the numbers, so it
# comes first.
FILES = (
    (".zip", "Report for outsiders (ZIP)", "run-outside"),
    (".pdf", "Report (PDF)", "run-pdf"),
    (".html", "Report (HTML)", "run-html"),
    (".signature.json", "Signature", "run-signature"),
    (".json", "Numbers (JSON)", "run-json"),
)


@dataclass(frozen=True, slots=True)
class RunView:
    """The parts of the view that a page uses.

    Attributes:
        box: the column around it.
        card: verdict or outcome.
        files: a download button for each of `FILES`.
    """

    box: gr.Column
    card: gr.HTML
    files: tuple[gr.DownloadButton, ...]

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.card, *self.files]

    def hidden(self) -> tuple[Any, ...]:
        return gr.Column(visible=False), *(gr.skip(),) * (1 + len(self.files))

    def shown(self, vault: Vault, run_id: str) -> tuple[Any, ...]:
        """The values for one run.

        Raises:
            RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
        """
        files = vault.run_files(run_id)
        named = {ending: _ending(files, ending) for ending, _, _ in FILES}
        try:
            document = _document(vault, run_id, files, named[".json"])
            card = _card(document)
            stem = plain_name("report", _about(document), mark=run_id[:6])
        except IrwmError as error:
            document, card, stem = None, notices.error_html(error), plain_name("report", mark=run_id[:6])
        content = {ending: files[name] for ending, name in named.items() if name is not None}
        if document is not None and not content:  # filed before reports were stored with the numbers
            content = {".json": to_json(document), ".html": render_html(document).encode("utf-8")}
        # Under the names that the signature lists, so that the downloaded files check each other.
        buttons = (download(content.get(ending), named[ending] or stem + ending) for ending, _, _ in FILES)
        return gr.Column(visible=True), card, *buttons


def run_view() -> RunView:
    """Builds the view at this place of the page."""
    with gr.Column(visible=False, elem_id="run") as box:
        card = gr.HTML(elem_id="run-card")
        with gr.Row():
            files = tuple(gr.DownloadButton(label, elem_id=id, scale=0, min_width=180) for _, label, id in FILES)
    return RunView(box, card, files)


def _ending(files: Mapping[str, bytes], ending: str) -> str | None:
    """The file with this ending, unless it has a longer ending of `FILES`."""
    longer = tuple(other for other, _, _ in FILES if other != ending and other.endswith(ending))
    return next((n for n in files if n.endswith(ending) and not (longer and n.endswith(longer))), None)


def _document(vault: Vault, run_id: str, files: Mapping[str, bytes], name: str | None) -> Any:
    """The run's document, of any kind: the signed one, or the finding itself if no files were filed with it."""
    data = files[name] if name is not None else vault.run_finding(run_id)
    read: dict[str, Callable[[bytes], schema.Document]] = {
        dispute.SCHEMA: dispute.from_json,
        lab.SCHEMA: lab.from_json,
        review.SCHEMA: review.read_review,
    }
    return read.get(schema_of(data), from_json)(data)


def _card(document: Any) -> str:
    with notices.damaged("the report’s numbers are damaged"):
        if document["schema"]["name"] == dispute.SCHEMA:
            return dispute_html(document)
        if document["schema"]["name"] == lab.SCHEMA:
            return summary_html(document, running=False) + table_html(document)
        if document["schema"]["name"] == review.SCHEMA:
            return review_html(document)
        return verdict_html(finding_card(document))


def _about(document: Any) -> str:
    if document["schema"]["name"] == dispute.SCHEMA:
        return "dispute"
    if document["schema"]["name"] == lab.SCHEMA:
        return f"lab-{document['original']['name']}"
    if document["schema"]["name"] == review.SCHEMA:
        return review.NAME
    return str(document["items"]["suspect"]["name"])
