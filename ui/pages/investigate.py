"""Investigate: is this ours, and whose copy is it?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.errors import IrwmError
from storage.records import KeyRecord
from ui.components import notices
from ui.components.finding_card import finding_card
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.model_card import model_html
from ui.components.path_picker import path_picker
from ui.components.uploads import offer, receive
from ui.components.verdict_card import verdict_html
from ui.context import Context
from ui.jobs import runner
from ui.jobs.vault_access import secrets_for
from ui.plot_theme import power_text
from ui.report.document import from_json
from ui.report.figures import FIGURES, document_figures

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
INTRO = """
# Investigate a suspect
Looks for your marks in a checkpoint and says what the evidence is worth.
"""
HEADERS = ["Recipient", "Owner", "Verdict", "Positions", "Odds without the mark", "Key fingerprint"]
NO_KEY = notices.empty_html(
    "No key fits this original",
    "The vault holds no key that was made for exactly this model. Choose the unmarked original that the release was "
    "made from, or protect a model first.",
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    with gr.Row(equal_height=False):
        with gr.Column():
            suspect = path_picker(
                context, label="Suspect", info="Its folder, or one .safetensors file", purpose="suspect"
            )
            with gr.Accordion("Upload it instead", open=False, elem_id="upload-suspect"):
                upload = gr.File(
                    label="One .safetensors file, or all files of the model's folder",
                    file_count="multiple",
                    elem_id="suspect-files",
                )
            suspect_card = gr.HTML(elem_id="suspect-model")
        with gr.Column():
            original = path_picker(
                context,
                label="Original",
                info="The unmarked model that your releases were made from",
                purpose="original-of",
            )
            original_card = gr.HTML(elem_id="original-model")
    keys = gr.Dropdown(
        [],
        multiselect=True,
        label="Keys",
        info="All keys in the vault that were made for this original",
        elem_id="keys",
        visible=False,
    )
    no_key = gr.HTML(NO_KEY, visible=False)
    with gr.Accordion("Case and advanced settings", open=False, elem_id="investigate-advanced"):
        with gr.Row():
            title = gr.Textbox(label="Case (optional)", info="The run is filed under this title", max_length=200)
            note = gr.Textbox(label="Note (optional)", max_length=1000)
        with gr.Row():
            statistic = gr.Dropdown(
                [
                    ("joint: all equations together", "joint"),
                    ("sum: the paper's", "sum"),
                    ("difference: the change from the original", "difference"),
                ],
                value="joint",
                label="Statistic",
                info="What is ranked at each position",
            )
            invariant = gr.Dropdown(
                [("the original's", "original"), ("the suspect's, as the paper has it", "suspect")],
                value="original",
                label="Invariant (A)",
                info="Whose attention scores stand in the equations",
            )
            seed = gr.Number(0, label="Seed", info="Same seed, same numbers", precision=0)
    start = gr.Button("Investigate", variant="primary", interactive=False, elem_id="start-investigate")
    job = job_card(context, ("investigate",), unit="keys")
    with gr.Column(visible=False, elem_id="finding") as box:
        verdict = gr.HTML(elem_id="verdict")
        with gr.Row():
            html_file = gr.DownloadButton("Download the report (HTML)", elem_id="report-html", scale=0, min_width=260)
            json_file = gr.DownloadButton("Download its numbers (JSON)", elem_id="report-json", scale=0, min_width=260)
        table = gr.Dataframe(headers=HEADERS, interactive=False, wrap=True, label="Keys tried", elem_id="keys-tried")
        with gr.Tabs(elem_id="figures"):
            plots = []
            for figure in FIGURES:
                with gr.Tab(figure.tab, id=figure.name):
                    plots.append(gr.Plot(show_label=False, elem_id=figure.name))
                    gr.Markdown(figure.caption, elem_classes="caption")
    received = gr.State(None)

    def describe(path: str | None) -> str:
        if not path:
            return ""
        try:
            return model_html(irwm.open_checkpoint(path))
        except IrwmError as error:
            return notices.error_html(error)

    @guarded
    def look_at_suspect(path: str | None, request: gr.Request) -> Any:
        context.require(request)
        return describe(path), path

    @guarded
    def take_upload(files: list[str] | None, request: gr.Request) -> Any:
        context.require(request)
        if not files:
            return "", None
        path = str(receive(files, context.settings.home))
        return describe(path), path

    @guarded
    def look_at_original(path: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        if not path:
            return "", gr.Dropdown(visible=False), gr.HTML(visible=False), gr.Button(interactive=False)
        try:
            model = irwm.open_checkpoint(path)
            card, records = model_html(model), vault.keys_for(model.fingerprint)
        except IrwmError as error:
            shown = notices.error_html(error)
            return shown, gr.Dropdown(visible=False), gr.HTML(visible=False), gr.Button(interactive=False)
        choices = [(key_label(record), record.id) for record in records]
        return (
            card,
            gr.Dropdown(choices=choices, value=[id for _, id in choices], visible=bool(choices)),
            gr.HTML(visible=not choices),
            gr.Button(interactive=bool(choices)),
        )

    @guarded
    def begin(
        source: str | None,
        reference: str | None,
        chosen: list[str],
        title: str | None,
        note: str | None,
        statistic: str,
        invariant: str,
        seed: float,
        request: gr.Request,
    ) -> Any:
        vault = context.require(request)
        if not source or not reference:
            raise IrwmError("suspect or original is missing", advice="Choose both models first")
        named = (title or "").strip()  # a field that was never unfolded has no value yet
        request_ = {
            "suspect": source if Path(source).is_relative_to(context.settings.home) else str(suspect.check(source)),
            "original": str(original.check(reference)),
            "keys": list(chosen),
            "seed": int(seed or 0),
            "statistic": statistic,
            "invariant": invariant,
            "case_id": next((case.id for case in vault.cases() if named and case.title == named), ""),
            "case_title": named,
            "note": (note or "").strip(),
            "device": context.settings.device,
        }
        started = runner.start(
            "investigate", f"Investigate {Path(source).name}", request_, secrets_for(vault), context.jobs
        )
        for purpose, path in (("suspect", request_["suspect"]), ("original-of", request_["original"])):
            context.recent.add(purpose, path)
        return started.id, gr.Column(visible=False)

    @guarded
    def show(ended: str | None, dark: bool, request: gr.Request) -> Any:
        nothing = (gr.Column(visible=False), *(gr.skip(),) * (4 + len(plots)))
        if ended is None or not context.is_open(request):
            return nothing
        result = context.jobs.get(ended).result
        if not result:
            return nothing
        folder = context.jobs.folder(ended)
        document = from_json((folder / result["json"]).read_bytes())
        figures = document_figures(document, dark=dark)
        stem = f"verdict-{document['items']['suspect']['name']}"
        return (
            gr.Column(visible=True),
            verdict_html(finding_card(document)),
            offer(folder / result["html"], f"{_plain_name(stem)}.html"),
            offer(folder / result["json"], f"{_plain_name(stem)}.json"),
            [table_row(row) for row in result["rows"]],
            *(figures.get(figure.name) for figure in FIGURES),
        )

    suspect.chosen.change(look_at_suspect, suspect.chosen, [suspect_card, received], **PRIVATE)
    upload.upload(take_upload, upload, [suspect_card, received], **PRIVATE)
    original.chosen.change(look_at_original, original.chosen, [original_card, keys, no_key, start], **PRIVATE)
    inputs = [received, original.chosen, keys, title, note, statistic, invariant, seed]
    start.click(begin, inputs, [job.job_id, box], **PRIVATE)
    shown = [box, verdict, html_file, json_file, table, *plots]
    gr.on(
        [job.ended.change, context.dark.change],
        show,
        [job.ended, context.dark],
        shown,
        trigger_mode="always_last",
        **PRIVATE,
    )


def key_label(record: KeyRecord) -> str:
    """A key in a list: whose, for whom, its fingerprint's beginning, the officer's words."""
    whom = f"{record.owner} → {record.recipient}" if record.recipient else record.owner
    words = f" · {record.label}" if record.label else ""
    return f"{whom} · {record.commitment[:12]}{words}"


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


def _plain_name(text: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept[:80].strip("-.") or "verdict"
