"""The form of a review: what the second examiner did, concludes and remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from irwm.report.received import SIGNATURE
from irwm.report.review import AGREES, CONCLUSIONS, EXTENTS, READ
from storage.casebook import LONGEST_TITLE
from ui.components import notices
from ui.components.places import Places, at
from ui.components.uploads import download
from ui.services.review import ReviewRequest

INTRO = """
A second examiner reviews the report that was verified above. The review records the results of the checks, is signed
with this vault’s identity, and is filed in a case.
"""
# Ending of the file, label of its button, its id.
FILES = (
    (".html", "Review (HTML)", "review-html"),
    (SIGNATURE, "Signature", "review-signature"),
    (".json", "Review (JSON)", "review-json"),
)


@dataclass(frozen=True, slots=True)
class ReviewForm:
    """The parts of the form that a page uses.

    Attributes:
        box: the fold around it.
        inputs: the components whose values `request` takes, in order.
        start: the button that signs.
        done: what was signed and filed.
        files: a download button for each of `FILES`.
        places: where errors are shown.
    """

    box: gr.Accordion
    inputs: list[Any]
    start: gr.Button
    done: gr.HTML
    files: tuple[gr.DownloadButton, ...]
    places: Places

    @property
    def outputs(self) -> list[Any]:
        return [self.done, *self.files]

    @staticmethod
    def request(
        reviewer: str | None,
        title: str | None,
        extent: str,
        conclusion: str,
        remarks: str | None,
    ) -> ReviewRequest:
        """The request from the values of `inputs`.

        Raises:
            IrwmError: the reviewer's name is missing; at its place.
        """
        with at("reviewer"):
            if not (reviewer or "").strip():
                raise IrwmError("the reviewer’s name is missing", advice="Enter the name of the second examiner")
        return ReviewRequest(
            case_title=(title or "").strip(),
            examiner=(reviewer or "").strip(),
            reviewer=(reviewer or "").strip(),
            extent=extent,
            conclusion=conclusion,
            remarks=(remarks or "").strip(),
        )

    @staticmethod
    def filed(title: str, files: Mapping[str, bytes]) -> tuple[Any, ...]:
        """The values of `outputs` after the review was filed."""
        said = notices.note_html(f"The review was signed and filed in the case “{title}”.", good=True)
        return gr.HTML(said, visible=True), *(_button(files, ending) for ending, _, _ in FILES)

    @staticmethod
    def emptied() -> tuple[Any, ...]:
        """The values of `outputs` before a review is signed."""
        return gr.HTML("", visible=False), *(download(None, "") for _ in FILES)


def review_form() -> ReviewForm:
    """Builds the form at this place of the page."""
    with gr.Accordion("Review the report as a second examiner", open=False, elem_id="review") as box:
        gr.Markdown(INTRO, elem_classes="caption")
        with gr.Row():
            reviewer = gr.Textbox(
                label="Second examiner",
                info="Your name; not that of the examiner who made the report",
                max_length=200,
                max_lines=1,
                elem_id="review-name",
            )
            title = gr.Textbox(
                label="Case (optional)",
                info="If left empty, the case that contains the report is used, or a new one",
                max_length=LONGEST_TITLE,
                max_lines=1,
                elem_id="review-case",
            )
        unnamed = gr.HTML(visible=False, elem_id="review-name-notice")
        extent = gr.Radio(_choices(EXTENTS), value=READ, label="What was reviewed", elem_id="review-extent")
        conclusion = gr.Radio(_choices(CONCLUSIONS), value=AGREES, label="Conclusion", elem_id="review-conclusion")
        remarks = gr.Textbox(
            label="Remarks",
            info="Required unless you agree without remarks",
            lines=3,
            max_length=2000,
            elem_id="review-remarks",
        )
        told = gr.HTML(visible=False, elem_id="review-notice")
        start = gr.Button("Sign the review", elem_id="sign-review")
        done = gr.HTML(visible=False, elem_id="review-done")
        with gr.Row():
            files = tuple(
                gr.DownloadButton(label, elem_id=id, scale=0, min_width=180, visible=False) for _, label, id in FILES
            )
    inputs = [reviewer, title, extent, conclusion, remarks]
    return ReviewForm(box, inputs, start, done, files, Places(form=told, reviewer=unnamed))


def _choices(sentences: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(sentence.rstrip("."), value) for value, sentence in sentences.items()]


def _button(files: Mapping[str, bytes], ending: str) -> gr.DownloadButton:
    # The signature's ending contains that of the numbers.
    named = {name: data for name, data in files.items() if name.endswith(SIGNATURE) == (ending == SIGNATURE)}
    name = next(name for name in named if name.endswith(ending))
    return download(files[name], name)
