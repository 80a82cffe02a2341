"""A finding on the page: verdict, downloads, recipients, undone changes, figures. Filled from a report's JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from irwm.canonical import strict_json
from irwm.errors import IrwmError, printable
from irwm.report import schema
from irwm.report.answer import whose
from irwm.report.document import ReportError, from_json
from irwm.report.figures import FIGURES, FigureText, document_figures
from irwm.report.html import render_html
from irwm.report.numbers import power_text
from irwm.report.received import ARCHIVE, ENDINGS
from irwm.report.signature_file import ENDING
from irwm.report.tracing_words import accuses
from irwm.report.translation import in_language
from irwm.report.wording import is_generated
from irwm.report.write import WITHOUT_ROWS, archive
from storage.errors import RecordNotFoundError, StorageError
from storage.job_files import JobFiles
from ui.components import notices
from ui.components.finding_card import finding_card
from ui.components.glossary import TITLE, glossary_html
from ui.components.ranking import CSS as RANKING_CSS
from ui.components.ranking import ranking_html
from ui.components.recognition_card import recognition_html
from ui.components.uploads import download, download_if_sound, offer
from ui.components.verdict_card import verdict_html
from ui.services.filing import report_name
from ui.services.results import KeyRow

HEADERS = ["Recipient", "Owner", "Verdict", "Positions", "Probability by chance", "Key fingerprint"]
RECIPIENTS, GROWTH = "figure-recipients", "figure-growth"
STILL_RUNNING = (
    "This is the first reading. The controls with decoy keys are still running; the report will follow when they are "
    "done."
)
FOR_OUTSIDERS = (
    "Contains everything except the identity of the marked rows. Give this archive to the other side, to a platform or "
    "to a court. There is no need to unpack it for Verify."
)
IN_FULL = (
    "Lists the marked rows. Anyone who has this archive can remove the mark from other copies of this release. Keep it "
    "on file, and share it only with an expert who will keep it confidential."
)
AGAIN = "Investigate again, or open the run in its case"
# The figures that are redrawn for another key. Decoys are read only for the report's key.
OF_ONE_KEY = ("figure-positions", "figure-ranks", "figure-paper", "figure-decoys", "figure-odds")


@dataclass(frozen=True, slots=True)
class FindingView:
    """The parts of the view that a page uses.

    Attributes:
        box: the column around it; hidden while there is no finding.
        parts: every component inside that `shown` gives a value for, in order.
        pick: the key that the figures of one key are about, by its commitment.
        of_one_key: those figures.
        language: gives the language of a page that is drawn now.
    """

    box: gr.Column
    parts: tuple[Any, ...]
    pick: gr.Dropdown
    of_one_key: list[gr.Plot]
    language: Callable[[], str]

    @property
    def outputs(self) -> list[Any]:
        return [self.box, *self.parts]

    def hidden(self) -> tuple[Any, ...]:
        return gr.Column(visible=False), *(gr.skip(),) * len(self.parts)

    def shown(
        self,
        files: JobFiles,
        json_name: str,
        rows: list[KeyRow],
        *,
        dark: bool,
        others: str | None = None,
    ) -> tuple[Any, ...]:
        """The values for one report.

        Args:
            files: of its job.
            json_name: its JSON among them; if it is missing, damaged or of another version, an error is shown in its
                place. Its page is drawn from the JSON if there is no stored page.
            rows: the keys tried, for the table of those that were not traced.
            others: the file with the readings of the other keys; None if there was only one key.
        """
        stem = json_name.removesuffix(".json")
        try:
            document = read_document(files, json_name)
            drawn = Drawn(document, dark)
        except IrwmError as error:
            return self._without(error, files, stem, rows)
        plain = report_name(document)
        # A signed report's files keep the names that the signature lists, so that they check each other.
        signed = f"{stem}{ENDING}" in files
        html_name = f"{stem}.html"
        page = None if html_name in files else in_language(render_html(document, json_name), self.language())
        return (
            gr.Column(visible=True),
            drawn.card + _damaged_html(files, stem),
            *_archives(files, stem, plain),
            download_if_sound(files, html_name) if page is None else download(page.encode("utf-8"), f"{plain}.html"),
            download(files.read(json_name), json_name if signed else f"{plain}.json"),
            *(download_if_sound(files, f"{stem}{ending}") for ending in (".pdf", ENDING)),
            gr.Column(visible=bool(drawn.ranking)),
            gr.Column(visible=GROWTH in drawn.figures),
            drawn.ranking,
            drawn.recognition,
            _table(rows),
            *(gr.Column(visible=any(name in drawn.figures for name in OF_ONE_KEY)) for _ in range(2)),
            key_picker(document, read_others(files, others)),
            *(drawn.figures.get(figure.name) for figure in FIGURES),
        )

    def of_key(
        self, files: JobFiles, json_name: str, others: str | None, commitment: str, *, dark: bool
    ) -> tuple[Any, ...]:
        """The figures that are about one key, redrawn for another key; in the order of `of_one_key`.

        Raises:
            ReportError: the numbers are missing or damaged.
        """
        document = read_document(files, json_name)
        other = next((each for each in read_others(files, others) if each["key"]["commitment"] == commitment), None)
        if other is not None:
            document = {**document, **other, "error_rates": None}
        figures = document_figures(document, dark=dark)
        return tuple(figures.get(name) for name in OF_ONE_KEY)

    def _without(self, error: IrwmError, files: JobFiles, stem: str, rows: list[KeyRow]) -> tuple[Any, ...]:
        """The parts that can be shown of a report whose numbers cannot be read."""
        return (
            gr.Column(visible=True),
            notices.error_html(error) + _damaged_html(files, stem, but=f"{stem}.json"),
            *(gr.skip(), gr.skip(), gr.Row(visible=False)),
            *(download_if_sound(files, f"{stem}{ending}") for ending in (".html", ".json", ".pdf", ENDING)),
            gr.Column(visible=False),
            gr.Column(visible=False),
            "",
            "",
            _table(rows, ranked=False),
            *(gr.Column(visible=False) for _ in range(2)),
            gr.Dropdown(visible=False),
            *(None for _ in FIGURES),
        )


class Drawn:
    """A document's cards and figures; all of them are made before any is shown.

    Raises:
        ReportError: a field is missing or has the wrong type, as in a file that was damaged or edited.
    """

    def __init__(self, document: schema.Report, dark: bool) -> None:
        with notices.damaged("the report’s numbers are damaged", AGAIN):
            self.card = verdict_html(finding_card(document))
            self.ranking = ranking_html(document)
            generated = is_generated(document["items"]["suspect"]["answers"])
            self.recognition = "" if generated else recognition_html(document)
            self.figures = document_figures(document, dark=dark)


def first_html(files: JobFiles, name: str) -> str:
    """The finding before the controls were run, as a card; "" if there is none yet or it cannot be read."""
    if name not in files:
        return ""
    try:
        card = finding_card(read_document(files, name))
    except (IrwmError, KeyError, TypeError, ValueError, IndexError):
        return ""  # the report follows and shows what is wrong
    return verdict_html(replace(card, why=(), caution=f"{STILL_RUNNING} {card.caution}".strip()))


def read_document(files: JobFiles, name: str) -> schema.Report:
    """The document in a file of a job.

    Raises:
        ReportError: it is missing, damaged or of another version.
    """
    try:
        return from_json(files.read(name))
    except StorageError as error:
        gone = isinstance(error, RecordNotFoundError)
        raise ReportError(
            "the report’s numbers are missing" if gone else "the report’s numbers cannot be read",
            found=f"no {name}" if gone else error.problem,
            advice=AGAIN,
        ) from error


def read_others(files: JobFiles, name: str | None) -> list[schema.OtherKey]:
    """The readings of the keys that the report is not about; empty if the file is missing or damaged."""
    try:
        found = strict_json(files.read(name))["keys"] if name is not None else []
        return [each for each in found if each["key"]["commitment"]]
    except (StorageError, ValueError, KeyError, TypeError, RecursionError):
        return []


def key_picker(document: schema.Report, others: list[schema.OtherKey]) -> Any:
    """The choice of the key that figures are about: the report's own first, then the others, most likely first."""
    ranked = document["tracing"]["ranked"] if document["tracing"] and accuses(document) else []
    named = {row["commitment"] for row in ranked if row["named"]}
    keys = [document["key"], *(other["key"] for other in others)]
    choices = [(f"{printable(whose(key), 120)} · {key['commitment'][:12]}", key["commitment"]) for key in keys]
    choices = [(f"{label} · named" if id in named else label, id) for label, id in choices]
    return gr.Dropdown(choices=choices, value=keys[0]["commitment"], visible=bool(others))


def finding_view(language: Callable[[], str]) -> FindingView:
    """Builds the view at this place of the page; see `FindingView.language`."""
    by_name = {figure.name: figure for figure in FIGURES}
    plots: dict[str, gr.Plot] = {}
    with gr.Column(visible=False, elem_id="finding") as box:
        verdict = gr.HTML(elem_id="verdict")
        with gr.Row(visible=False, equal_height=False, elem_id="report-archives") as archives:
            with gr.Column():
                outside = gr.DownloadButton("Report for outsiders (ZIP)", variant="primary", elem_id="report-outside")
                gr.Markdown(FOR_OUTSIDERS, elem_classes="caption")
            with gr.Column():
                in_full = gr.DownloadButton("Full report (ZIP)", elem_id="report-full")
                gr.Markdown(IN_FULL, elem_classes="caption")
        with gr.Row():
            pdf_file = gr.DownloadButton("Full report (PDF)", elem_id="report-pdf", scale=0, min_width=180)
            html_file = gr.DownloadButton("Full report (HTML)", elem_id="report-html", scale=0, min_width=180)
            signature = gr.DownloadButton("Signature", elem_id="report-signature", scale=0, min_width=180)
            json_file = gr.DownloadButton("Numbers (JSON)", elem_id="report-json", scale=0, min_width=180)
        with gr.Column(visible=False, elem_id="recipients-box") as recipients:
            ranking = gr.HTML(elem_id="recipients", css_template=RANKING_CSS)
            plots[RECIPIENTS] = _plot(by_name[RECIPIENTS])
            with gr.Column(visible=False) as growth:
                plots[GROWTH] = _plot(by_name[GROWTH])
        recognition = gr.HTML(elem_id="recognition")
        with gr.Column() as numbers:
            for figure in FIGURES:
                if not figure.tab and figure.name not in (RECIPIENTS, GROWTH):
                    plots[figure.name] = _plot(figure)
        pick = gr.Dropdown(
            [],
            label="Key shown in the figures below",
            info="All keys that were read, with named recipients first",
            elem_id="figures-of",
            visible=False,
        )
        table = gr.Dataframe(headers=HEADERS, interactive=False, wrap=True, label="Keys tried", elem_id="keys-tried")
        with gr.Column() as of_key, gr.Tabs(elem_id="figures", overflow_behavior="wrap"):
            for figure in FIGURES:
                if figure.tab:
                    with gr.Tab(figure.tab, id=figure.name):
                        plots[figure.name] = _plot(figure)
        with gr.Accordion(TITLE, open=False, elem_id="glossary"):
            gr.HTML(glossary_html())
    in_order = [plots[figure.name] for figure in FIGURES]
    parts = (
        verdict,
        outside,
        in_full,
        archives,
        html_file,
        json_file,
        pdf_file,
        signature,
        recipients,
        growth,
        ranking,
        recognition,
        table,
        numbers,
        of_key,
        pick,
        *in_order,
    )
    return FindingView(box, parts, pick, [plots[name] for name in OF_ONE_KEY], language)


def table_row(row: KeyRow) -> list[str]:
    """One key tried, as the table shows it."""
    return [
        row["recipient"] or "–",
        row["owner"],
        row["verdict"],
        f"{row['count']} of {row['present']}",
        power_text(row["log10_risk"]) if row["present"] else "–",
        row["commitment"][:16],
    ]


def _damaged_html(files: JobFiles, stem: str, *, but: str = "") -> str:
    """Why the files of a report are not offered that exist but cannot be read, except the file `but`."""
    said = []
    for name in [*(stem + ending for ending in ENDINGS), f"{stem}{WITHOUT_ROWS}{ARCHIVE}"]:
        try:
            if name in files and name != but:
                files.read(name)
        except StorageError as error:
            parts = {
                "problem": "one of this report’s files is damaged",
                "file": name,
                "found": error.problem,
                "advice": AGAIN,
            }
            said.append(notices.error_html(parts))
    return "".join(said)


def _archives(files: JobFiles, stem: str, plain: str) -> tuple[Any, Any, Any]:
    """The archive for outsiders, the archive of all files of the report, and the row of both, if both exist."""
    outside, names = f"{stem}{WITHOUT_ROWS}{ARCHIVE}", [stem + ending for ending in ENDINGS]
    try:
        without_rows, whole = files.read(outside), {name: files.read(name) for name in names}
    except StorageError:  # not signed, of a sweep, or damaged; each file that is left has its own button
        return gr.skip(), gr.skip(), gr.Row(visible=False)
    return (
        gr.DownloadButton(value=offer(without_rows, f"{plain}{WITHOUT_ROWS}{ARCHIVE}")),
        gr.DownloadButton(value=offer(archive(whole), f"{plain}{ARCHIVE}")),
        gr.Row(visible=True),
    )


def _table(rows: list[KeyRow], *, ranked: bool = True) -> Any:
    """The keys that were read by rank alone; traced keys are listed in the ranking, if that is drawn."""
    untraced = [table_row(row) for row in rows if not ranked or "z" not in row]
    return gr.Dataframe(value=untraced, visible=bool(untraced))


def _plot(figure: FigureText) -> gr.Plot:
    """A figure with its caption below it."""
    plot = gr.Plot(show_label=False, elem_id=figure.name)
    gr.Markdown(figure.caption, elem_classes="caption")
    return plot
