"""A finding on the page: verdict, downloads, recipients, what was undone, figures. Filled from a report's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from irwm.report.document import ReportError, from_json
from irwm.report.figures import FIGURES, FigureText, document_figures
from irwm.report.html import render_html
from irwm.report.numbers import power_text
from irwm.report.signature_file import ENDING
from ui.components import notices
from ui.components.finding_card import finding_card
from ui.components.ranking import CSS as RANKING_CSS
from ui.components.ranking import ranking_html
from ui.components.recognition_card import recognition_html
from ui.components.uploads import offer, offer_text
from ui.components.verdict_card import verdict_html

HEADERS = ["Recipient", "Owner", "Verdict", "Positions", "Odds without the mark", "Key fingerprint"]
RECIPIENTS = "figure-recipients"


@dataclass(frozen=True, slots=True)
class FindingView:
    """What a page gets.

    Attributes:
        box: the column around it; hidden while there is nothing to show.
        parts: every component inside that `shown` gives a value for, in order.
    """

    box: gr.Column
    parts: tuple[Any, ...]

    @property
    def outputs(self) -> list[Any]:
        return [self.box, *self.parts]

    def hidden(self) -> tuple[Any, ...]:
        return gr.Column(visible=False), *(gr.skip(),) * len(self.parts)

    def shown(
        self, json_file: Path, html_file: Path | None, rows: list[Mapping[str, Any]], *, dark: bool
    ) -> tuple[Any, ...]:
        """The values for one report.

        Args:
            json_file: its JSON; where it is missing, damaged or of another version, that is said in its place.
            html_file: its page, or None to draw it from the JSON.
            rows: the keys tried, for the table of those that were not traced.
        """
        try:
            document = read_document(json_file)
            drawn = Drawn(document, dark)
        except IrwmError as error:
            return self._without(error, json_file, html_file, rows)
        stem = plain_name(f"verdict-{document['items']['suspect']['name']}")
        # A signed report's files keep the names that the signature has them by, so that they check each other.
        signed = _sibling(json_file, ENDING).is_file()
        page = (
            offer(html_file, html_file.name if signed else f"{stem}.html")
            if html_file is not None and html_file.is_file()
            else offer_text(render_html(document, json_file.name), f"{stem}.html")
        )
        return (
            gr.Column(visible=True),
            drawn.card,
            gr.DownloadButton(value=page, visible=True),
            gr.DownloadButton(value=offer(json_file, json_file.name if signed else f"{stem}.json"), visible=True),
            *(_beside(json_file, ending) for ending in (".pdf", ENDING)),
            gr.Column(visible=bool(drawn.ranking)),
            drawn.ranking,
            drawn.recognition,
            _table(rows),
            gr.Column(visible=True),
            *(drawn.figures.get(figure.name) for figure in FIGURES),
        )

    def _without(
        self, error: IrwmError, json_file: Path, html_file: Path | None, rows: list[Mapping[str, Any]]
    ) -> tuple[Any, ...]:
        """What is left of a report whose numbers cannot be read."""
        files = ((html_file, "verdict.html"), (json_file, "verdict.json"))
        return (
            gr.Column(visible=True),
            notices.error_html(error),
            *(
                gr.DownloadButton(value=offer(file, name), visible=True)
                if file is not None and file.is_file()
                else gr.DownloadButton(visible=False)
                for file, name in files
            ),
            *(_beside(json_file, ending) for ending in (".pdf", ENDING)),
            gr.Column(visible=False),
            "",
            "",
            _table(rows, ranked=False),
            gr.Column(visible=False),
            *(None for _ in FIGURES),
        )


class Drawn:
    """A document's cards and figures; all of them are made before any is shown.

    Raises:
        ReportError: a field is missing or not of its kind, as in a file that was damaged or edited.
    """

    def __init__(self, document: Mapping[str, Any], dark: bool) -> None:
        try:
            self.card = verdict_html(finding_card(document))
            self.ranking = ranking_html(document)
            self.recognition = recognition_html(document)
            self.figures = document_figures(document, dark=dark)
        except IrwmError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ReportError(
                "the report’s numbers are damaged",
                found=f"{type(error).__name__}: {error}",
                advice="Investigate again, or take the run from its case in the vault",
            ) from error


def read_document(path: Path) -> dict[str, Any]:
    """The document in a file.

    Raises:
        ReportError: it is gone, damaged or of another version.
    """
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        raise ReportError(
            "the report’s numbers are gone",
            file=path,
            found=error.strerror,
            advice="Investigate again, or take the run from its case in the vault",
        ) from error


def finding_view() -> FindingView:
    """Builds the view at this place of the page."""
    by_name = {figure.name: figure for figure in FIGURES}
    plots: dict[str, gr.Plot] = {}
    with gr.Column(visible=False, elem_id="finding") as box:
        verdict = gr.HTML(elem_id="verdict")
        with gr.Row():
            pdf_file = gr.DownloadButton("Report (PDF)", elem_id="report-pdf", scale=0, min_width=180)
            html_file = gr.DownloadButton("Report (HTML)", elem_id="report-html", scale=0, min_width=180)
            signature = gr.DownloadButton("Signature", elem_id="report-signature", scale=0, min_width=180)
            json_file = gr.DownloadButton("Numbers (JSON)", elem_id="report-json", scale=0, min_width=180)
        with gr.Column(visible=False, elem_id="recipients-box") as recipients:
            ranking = gr.HTML(elem_id="recipients", css_template=RANKING_CSS)
            plots[RECIPIENTS] = _plot(by_name[RECIPIENTS])
        recognition = gr.HTML(elem_id="recognition")
        with gr.Column() as numbers:
            for figure in FIGURES:
                if not figure.tab and figure.name != RECIPIENTS:
                    plots[figure.name] = _plot(figure)
        table = gr.Dataframe(headers=HEADERS, interactive=False, wrap=True, label="Keys tried", elem_id="keys-tried")
        with gr.Tabs(elem_id="figures"):
            for figure in FIGURES:
                if figure.tab:
                    with gr.Tab(figure.tab, id=figure.name):
                        plots[figure.name] = _plot(figure)
    in_order = [plots[figure.name] for figure in FIGURES]
    parts = (
        verdict,
        html_file,
        json_file,
        pdf_file,
        signature,
        recipients,
        ranking,
        recognition,
        table,
        numbers,
        *in_order,
    )
    return FindingView(box, parts)


def table_row(row: Mapping[str, Any]) -> list[str]:
    """One key tried, as the table shows it."""
    return [
        row["recipient"] or "–",
        row["owner"],
        row["verdict"],
        f"{row['count']} of {row['present']}",
        power_text(row["log10_risk"]) if row["present"] else "–",
        row["commitment"][:16],
    ]


def plain_name(text: str) -> str:
    """A file name that every system takes."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept[:80].strip("-.") or "verdict"


def _sibling(json_file: Path, ending: str) -> Path:
    return json_file.with_name(json_file.name.removesuffix(".json") + ending)


def _beside(json_file: Path, ending: str) -> Any:
    """The button for a report's further file, where there is one."""
    file = _sibling(json_file, ending)
    return (
        gr.DownloadButton(value=offer(file, file.name), visible=True)
        if file.is_file()
        else gr.DownloadButton(visible=False)
    )


def _table(rows: list[Mapping[str, Any]], *, ranked: bool = True) -> Any:
    """The keys that were read by rank alone; those that were traced stand in the ranking, where that is drawn."""
    untraced = [table_row(row) for row in rows if not ranked or "z" not in row]
    return gr.Dataframe(value=untraced, visible=bool(untraced))


def _plot(figure: FigureText) -> gr.Plot:
    """A figure with its caption below it."""
    plot = gr.Plot(show_label=False, elem_id=figure.name)
    gr.Markdown(figure.caption, elem_classes="caption")
    return plot
