"""A swept folder on the page: its suspects before the sweep, and their results after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.checkpoint.candidates import Candidates
from irwm.errors import IrwmError, printable, shown_path
from irwm.report import schema
from irwm.report.numbers import counted, number, power_text, why_capped
from irwm.report.recognition_words import origin
from irwm.report.sweep import OVERVIEW_HTML, OVERVIEW_JSON, OVERVIEW_SIGNATURE, outcome
from storage.job_files import JobFiles
from ui.components import notices
from ui.components.markup import facts
from ui.components.uploads import download_of
from ui.services.stored_results import overview_of

HEADERS = ["Suspect", "Result", "Outcome", "Probability by chance", "Origin"]
# Most suspects of a folder that its card names.
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class SweepView:
    """The parts of the view that a page uses.

    Attributes:
        box: the column around it.
        summary, html_file, json_file, table: the results of the folder.
        pick: the suspect whose finding is shown below.
    """

    box: gr.Column
    summary: gr.HTML
    html_file: gr.DownloadButton
    json_file: gr.DownloadButton
    signature: gr.DownloadButton
    table: gr.Dataframe
    pick: gr.Dropdown

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.summary, self.html_file, self.json_file, self.signature, self.table, self.pick]

    def hidden(self) -> tuple[Any, ...]:
        return gr.Column(visible=False), *(gr.skip(),) * (len(self.outputs) - 1)

    def shown(self, files: JobFiles) -> tuple[tuple[Any, ...], str | None]:
        """The values for the sweep of a job, finished or not, and the document to show first."""
        try:
            with notices.damaged("the overview of this sweep is damaged"):
                found = overview_of(files)
                rows = [table_row(row) for row in found["rows"]]
                examined = [row for row in found["rows"] if row["error"] is None]
                said = summary_html(found)
                buttons = [download_of(files, name) for name in (OVERVIEW_HTML, OVERVIEW_JSON, OVERVIEW_SIGNATURE)]
        except IrwmError as error:
            return self._only(notices.error_html(error)), None
        first = next((row for row in examined if row["verdict"] == "found"), None)
        values = (
            gr.Column(visible=True),
            said,
            *buttons,
            gr.Dataframe(value=rows, visible=bool(rows)),
            gr.Dropdown(
                choices=[(f"{printable(row['path'], 100)}: {row['word']}", row["path"]) for row in examined],
                value=first["path"] if first else None,
                visible=bool(examined),
            ),
        )
        return values, first["json"] if first else None

    def document_of(self, files: JobFiles, name: str) -> str | None:
        """The name of the file with one suspect's document.

        Raises:
            ReportError: the overview cannot be read.
        """
        rows = overview_of(files)["rows"]
        chosen = next((row["json"] for row in rows if row["path"] == name and row["error"] is None), None)
        return chosen if isinstance(chosen, str) else None

    def _only(self, text: str) -> tuple[Any, ...]:
        gone = (gr.DownloadButton(visible=False),) * 3
        return gr.Column(visible=True), text, *gone, gr.Dataframe(visible=False), gr.Dropdown(visible=False)


def sweep_view() -> SweepView:
    """Builds the view at this place of the page."""
    with gr.Column(visible=False, elem_id="sweep") as box:
        summary = gr.HTML(elem_id="sweep-summary")
        table = gr.Dataframe(headers=HEADERS, interactive=False, wrap=True, label="Suspects", elem_id="sweep-table")
        with gr.Row():
            html_file = gr.DownloadButton("Download the overview (HTML)", elem_id="sweep-html", scale=0, min_width=260)
            json_file = gr.DownloadButton("Download the numbers (JSON)", elem_id="sweep-json", scale=0, min_width=260)
            signature = gr.DownloadButton("Signature", elem_id="sweep-signature", scale=0, min_width=180)
        pick = gr.Dropdown([], label="Show the finding for", info="One suspect in this folder", elem_id="sweep-pick")
    return SweepView(box, summary, html_file, json_file, signature, table, pick)


def folder_html(found: Candidates) -> str:
    """The card of a folder of several suspects, before any of them is opened."""
    names = [printable(found.name_of(path), 80) for path in found.paths]
    left = len(names) - _MOST_NAMED
    rows = [("Suspects", ", ".join(names[:_MOST_NAMED]) + (f" and {number(left)} more" if left > 0 else ""))]
    if found.refused:
        left_out = counted(len(found.refused), "link or folder", "links or folders")
        rows.append(("Not followed", f"{left_out}: {', '.join(found.refused[:3])}"))
    if found.too_deep:
        rows.append(("Too deep", f"Folders not searched: {number(len(found.too_deep))}"))
    if found.cut:
        rows.append(
            (
                "Incomplete",
                "The folder contains more suspects than one sweep can cover. Sweep its subfolders separately",
            )
        )
    count = f"{number(len(names))} suspects in this folder" if len(names) != 1 else "One suspect in this folder"
    return str(
        Markup('<section class="model-card" aria-label="Folder"><h2>{}</h2><p>{}</p>{}</section>').format(
            shown_path(found.folder.name),
            f"{count}. Each suspect is examined separately, and all results are filed in one case.",
            facts(rows),
        )
    )


def summary_html(found: schema.Sweep) -> str:
    """The progress and the findings of the sweep, in one or two sentences."""
    rows = found["rows"]
    hits = sum(row["error"] is None and row["verdict"] == "found" for row in rows)
    failed = sum(row["error"] is not None for row in rows)
    said = f"Found in {number(hits)} of {number(len(rows))} suspects"
    more = f"{number(failed)} could not be examined; the reason is in the table. " if failed else ""
    if not found["complete"]:
        more += (
            f"The sweep ended early, after {number(len(rows))} of {number(found['suspects'])} suspects. The results so "
            "far are kept. Press Investigate again to continue with the rest. "
        )
    if "keys_held" in found:
        more += f"Keys tried on each suspect: {number(found['keys'])} of {number(found['keys_held'])}. "
    if small := why_capped(*(power_text(row["log10_risk"]) for row in rows if row["error"] is None)):
        more += f"{small} "
    if found["refused"]:
        more += f"Links leading out of the folder that were not followed: {number(len(found['refused']))}."
    return str(
        Markup('<section class="notice"><div><h2>{}</h2><p>{}</p></div></section>').format(
            said, more or "Each suspect has a separate run in the same case."
        )
    )


def table_row(row: schema.SweepRow) -> list[str]:
    """One suspect as a row of the table."""
    if row["error"] is not None:
        return [row["path"], "failed", outcome(row), "–", "–"]
    said = outcome(row) if row["verdict"] == "found" else "–"
    return [row["path"], row["word"], said, power_text(row["log10_risk"]), origin(row["lineage"])]
