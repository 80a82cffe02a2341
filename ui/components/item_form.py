"""The form that adds an item to a case: its path, name and sender, and since when it exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from irwm.errors import IrwmError, shown_path
from ui.components.path_picker import PathPicker, hold_back, path_picker
from ui.components.places import Places, at
from ui.context import Context
from ui.dates import day_utc
from ui.services.filing import logged_in
from ui.services.request import ItemRequest

DATE_LENGTH = 10
SEEN = "When did it first appear? (optional)"
SEEN_HELP = "For example, 2024-01-28. What matters is whether the key was timestamped before this date"


@dataclass(frozen=True, slots=True)
class ItemForm:
    """The parts of the form that a page uses.

    Attributes:
        inputs: the components whose values `request` takes, in order.
        path: what to hash.
        start: the button that starts it.
        places: where errors of `request` are shown.
    """

    path: PathPicker
    inputs: list[Any]
    start: gr.Button
    places: Places

    def request(self, case_id: str, path: str | None, name: str | None, source: str | None, seen: str | None,
                who: str | None, note: str | None) -> ItemRequest:  # fmt: skip
        """The request from the values of `inputs`.

        Raises:
            IrwmError: the path is missing or may not be used, or the date is invalid; at its place.
        """
        with at("item"):
            if not (path or "").strip():
                raise IrwmError("the item is missing", advice="Choose the file or folder that you received")
            item = shown_path(self.path.check(path or ""))
        with at("seen"):
            since = day_utc(seen)
        return ItemRequest(
            case_id=case_id,
            path=item,
            name=(name or "").strip(),
            received_from=(source or "").strip(),
            seen_utc=since,
            examiner=(who or "").strip(),
            note=(note or "").strip(),
        )


def item_form(context: Context) -> ItemForm:
    """Builds the form at this place of the page."""
    path = path_picker(
        context,
        label="Item",
        info="Any file or folder; it is hashed in place and not moved",
        purpose="item",
        kind="any",
    )
    with gr.Row():
        name = gr.Textbox(
            label="Name in the case (optional)",
            info="If you leave this empty, the file name is used or, for recorded answers, the model’s name",
            max_length=200,
            elem_id="item-name",
        )
        source = gr.Textbox(
            label="Received from (optional)", info="A person, a company or an address", max_length=200,
            elem_id="item-from",
        )  # fmt: skip
    with gr.Row():
        seen = gr.Textbox(
            label=SEEN, info=SEEN_HELP, placeholder="2024-01-28", max_length=DATE_LENGTH, elem_id="item-seen"
        )
        who = examiner_field("item-examiner")
    seen_notice = gr.HTML(visible=False, elem_id="item-seen-notice")
    note = gr.Textbox(label="Note (optional)", info="How you received the item, and its condition", max_length=1000)
    told = gr.HTML(visible=False, elem_id="item-notice")
    start = gr.Button("Hash and add", elem_id="start-item")
    hold_back(start, [path])
    places = Places(kept=["item"], form=told, item=path.note, seen=seen_notice)
    return ItemForm(path, [path.field, name, source, seen, who, note], start, places)


def examiner_field(elem_id: str) -> gr.Textbox:
    """The examiner's name for items and reports."""
    return gr.Textbox(
        label="Examiner (optional)",
        info=f"Your name as shown on items and reports. If left empty in a new case, {logged_in() or 'no name'} is "
        "used",
        max_length=200,
        elem_id=elem_id,
    )
