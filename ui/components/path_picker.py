"""A field for a path on the server's disk, with a folder browser below it. Files are not uploaded or copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.checkpoint.remote.address import is_address
from irwm.checkpoint.remote.opening import server_of
from irwm.errors import IrwmError, printable, shown_path
from ui.components import notices
from ui.components.browsing import WEIGHTS, BrowsingLimits, Entry, Listing, describe, list_folder, use_path
from ui.components.events import LAST, PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.icons import icon
from ui.components.markup import own
from ui.components.places import folds_around
from ui.context import Context
from ui.settings import DEMO

# Sends the chosen line under "place", because Gradio takes any dict with a "path" for an uploaded file. Returns the
# focus to the list after it was redrawn, so that users who browse folders by keyboard do not start at the top of the
# page each time; after a choice, the field gets the focus.
LIST_SCRIPT = """
let walking = false;
element.addEventListener('click', (event) => {
  const line = event.target.closest('[data-place]');
  if (!line) return;
  walking = line.dataset.act === 'open';
  trigger('chosen', {place: line.dataset.place, act: line.dataset.act});
  if (!walking) element.closest('.picker')?.querySelector('.path-field input, .path-field textarea')?.focus();
});
watch('value', () => {
  if (walking) (element.querySelector('.entries [data-place]') || element.querySelector('[data-place]'))?.focus();
  walking = false;
});
"""
_NOTHING = {"folder": "There are no folders here.", "model": "There are no folders or weights here."}


@dataclass(frozen=True, slots=True)
class PathPicker:
    """The parts of the picker that a page uses.

    Attributes:
        field: the text field; its value is the path as typed. Use it as an input.
        chosen: a `gr.State` with the last path that passed the check (str), or None. A page reads the model on its
            `change` event.
        note: the text below the field. `filled` hides it.
        faulty: a `gr.State` that is true while the field holds something that cannot be used.
        purpose: the name under which the path is remembered.
    """

    field: gr.Textbox
    chosen: gr.State
    note: gr.HTML
    purpose: str
    context: Context
    kind: str
    suffixes: tuple[str, ...]
    faulty: gr.State
    read: Callable[[Path], object] | None = None
    addresses: bool = False

    @property
    def outputs(self) -> list[Any]:
        """The components that `settle` and `filled` give values for, in order."""
        return [self.field, self.note, self.chosen, self.faulty]

    @staticmethod
    def filled(path: str | None) -> tuple[Any, ...]:
        """The values for a path that the page itself fills in after it checked it; None to empty the field."""
        return path or "", gr.HTML(visible=False), path or None, False

    def limits(self) -> BrowsingLimits:
        """Read each time, because an officer may change the roots on the page Settings."""
        return BrowsingLimits.of(self.context.settings)

    def check(self, text: str) -> Path:
        """The path if it may be used; every handler that uses a path checks it again and does not trust the page.

        Raises:
            PathRefusedError: the path may not be used.
            IrwmError: `read` refuses what is there.
        """
        path = use_path(text, self.limits(), kind=self.kind, suffixes=self.suffixes, addresses=self.addresses)
        if self.read is not None:
            self.read(path)
        return path

    def toggle(self, is_shown: bool, text: str, request: gr.Request) -> Any:
        """Opens or closes the folder browser."""
        self.context.require(request)
        if is_shown:
            return False, gr.Column(visible=False), gr.skip(), gr.Button("Browse…")
        return True, gr.Column(visible=True), self._showing(start_folder(text, self.limits())), gr.Button("Close")

    def settle(self, text: str, request: gr.Request) -> Any:
        """The values of `outputs` for this text."""
        self.context.require(request)
        if not text.strip():
            return gr.skip(), gr.HTML(visible=False), None, False
        try:
            path = self.check(text)
        except IrwmError as error:
            return gr.skip(), gr.HTML(notices.error_html(error), visible=True), None, True
        # Not changed if it already has this path: another path may have been pasted in the meantime.
        tidy = gr.skip() if text.strip() == shown_path(path) or is_address(text.strip()) else shown_path(path)
        # No tick for a file that was not opened: it may be damaged.
        good = self.read is not None or self.kind == "folder"
        said = notices.note_html(_about(path, self.kind, self.suffixes), good=good)
        return tidy, gr.HTML(said, visible=True), shown_path(path), False

    def choose(self, event: gr.EventData, request: gr.Request) -> Any:
        """Opens the folder of the line that was pressed, or chooses its path."""
        self.context.require(request)
        path, act = str(event.place), str(event.act)
        if act == "open":
            return *(gr.skip(),) * 7, self._showing(path)
        _, said, picked, faulty = self.settle(path, request)
        closed = False, gr.Column(visible=False), gr.Button("Browse…"), gr.skip()
        return gr.skip() if picked is None else picked, said, picked, faulty, *closed

    def offer_recent(self, request: gr.Request) -> Any:
        paths = self.context.recent.paths(self.purpose) if self.context.is_open(request) else ()
        return gr.HTML(recent_html(paths), visible=bool(paths))

    def _showing(self, folder: str | Path) -> str:
        limits = self.limits()
        try:
            return listing_html(list_folder(folder, limits, kind=self.kind, suffixes=self.suffixes), limits, self.kind)
        except IrwmError as error:
            return places_html(limits) + notices.error_html(error)


def path_picker(
    context: Context,
    *,
    label: str,
    info: str,
    purpose: str,
    kind: str = "model",
    suffixes: Sequence[str] = WEIGHTS,
    read: Callable[[Path], object] | None = None,
    addresses: bool = False,
    placeholder: str = "Full path",
) -> PathPicker:
    """Builds the field, its browser and their events at this place of the page.

    Args:
        purpose: key of the list of recent paths, and part of element ids; unique on the page.
        kind: "model" for a model's folder or weights file, "folder" for any folder, "file" for a file, "any" for both.
        suffixes: the files to show and accept, for "model" and "file".
        read: opens what is at a path, and raises an `IrwmError` if it is damaged or of another kind.
        addresses: whether the address of a checkpoint on a server may be given too.
    """
    with gr.Column(elem_classes="picker", elem_id=f"picker-{purpose}"):
        with gr.Row(elem_classes="picker-row"):
            field = gr.Textbox(
                label=label,
                info=info,
                placeholder=placeholder,
                elem_classes="path-field",
                elem_id=f"path-{purpose}",
                lines=1,
                max_lines=1,
                max_length=4096,
                autoscroll=False,
            )
            browse = gr.Button(
                "Browse…", elem_id=f"browse-{purpose}", elem_classes="field-button", scale=0, min_width=112
            )
        note = gr.HTML(elem_classes="picker-note", visible=False, elem_id=f"path-{purpose}-note")
        recent = gr.HTML(js_on_load=LIST_SCRIPT, elem_classes="picker-recent", visible=False)
        with gr.Column(visible=False, elem_classes="picker-panel") as panel:
            listing = gr.HTML(js_on_load=LIST_SCRIPT, elem_id=f"listing-{purpose}")
    shown = gr.State(False)
    chosen, faulty = gr.State(None), gr.State(False)
    picker = PathPicker(field, chosen, note, purpose, context, kind, tuple(suffixes), faulty, read, addresses)

    browse.click(guarded(picker.toggle), [shown, field], [shown, panel, listing, browse], **PRIVATE)
    # Enter and leaving the field may follow each other closely; the last text counts, never the first.
    gr.on([field.submit, field.blur], guarded(picker.settle), field, picker.outputs, **LAST)
    choose = guarded(picker.choose)  # one function, so that both lists share its queue
    for source in (listing, recent):
        source.chosen(choose, None, [*picker.outputs, shown, panel, browse, listing], **PRIVATE)
    context.opened.change(picker.offer_recent, None, recent, **PRIVATE)
    return picker


def hold_back(button: gr.Button, pickers: Sequence[PathPicker]) -> None:
    """Disables the button while one of the fields holds something that cannot be used.

    A fold around that field stays open meanwhile, unless the button is in it too: the error says why it is disabled.
    """
    faulty = [picker.faulty for picker in pickers]
    gr.on([each.change for each in faulty], _unless_faulty, faulty, button, **in_turn("faulty paths"))
    own = folds_around(button)
    for fold in dict.fromkeys(fold for picker in pickers for fold in folds_around(picker.field) if fold not in own):
        inside = [picker.faulty for picker in pickers if fold in folds_around(picker.field)]
        looks = [fold.collapse, *(each.change for each in inside)]
        gr.on(looks, _open_if_faulty, inside, fold, **in_turn("faulty paths"))


def _unless_faulty(*faulty: bool) -> gr.Button:
    return gr.Button(interactive=not any(faulty))


def _open_if_faulty(*faulty: bool) -> Any:
    return gr.Accordion(open=True) if any(faulty) else gr.skip()


def _about(path: Path, kind: str, suffixes: Sequence[str]) -> str:
    server = server_of(path)
    if server:
        return (
            f"The model is read from {server}. The server learns this computer’s address and which tensors are read. "
            "Keys, marks and reports are not sent"
        )
    if kind == "folder":
        return "This folder can be used"
    if kind != "model":
        return f"File size: {describe(path, suffixes)}" if path.is_file() else "Includes all files in this folder"
    return describe(path, suffixes) or "This folder itself contains no weights"


def start_folder(text: str, limits: BrowsingLimits) -> Path:
    """The folder where the browser opens: that of the field if it may be shown, else the first root."""
    try:
        path = use_path(text, limits, kind="model")
    except IrwmError:
        return limits.roots[0]
    if path.is_file() or (describe(path) and limits.hold(path.parent)):
        return path.parent
    return path


def listing_html(listing: Listing, limits: BrowsingLimits, kind: str) -> str:
    """A folder as a list of buttons."""
    up = _line("up", Markup("Up one level"), shown_path(listing.parent), "open", "") if listing.parent else ""
    this = (
        Markup('<button type="button" class="use" data-act="pick" data-place="{}">Use this folder</button>').format(
            shown_path(listing.folder)
        )
        if kind in ("folder", "any") or (kind == "model" and describe(listing.folder))
        else ""
    )
    lines = Markup("").join(_entry(entry) for entry in listing.entries)
    if not listing.entries:
        nothing = _NOTHING.get(kind, "There are no folders or files of this kind here.")
        lines = Markup('<li class="nothing">{}</li>').format(nothing)
    more = (
        Markup('<li class="nothing">Entries not shown: {}. Paste the path instead.</li>').format(listing.left_out)
        if listing.left_out
        else ""
    )
    return str(
        Markup('{}<div class="here"><code>{}</code>{}</div><ul class="entries" role="list">{}{}{}</ul>').format(
            places_html(limits, listing.folder), printable(shown_path(listing.folder), 400), this, up, lines, more
        )
    )


def places_html(limits: BrowsingLimits, here: Path | None = None) -> Markup:
    """The roots as a row of buttons, to start again from one of them."""
    buttons = Markup("").join(
        Markup('<button type="button" class="place" data-act="open" data-place="{}"{}>{}</button>').format(
            str(root), Markup(' aria-current="true"') if root == here else "", place_name(root)
        )
        for root in limits.roots
    )
    return Markup('<div class="places">{}</div>').format(buttons)


def place_name(root: Path) -> str:
    """The name of a root on its button."""
    if root == Path.home():
        return "Home"
    if root == DEMO:
        return "Demo model"
    return printable(root.name or str(root), 60)


def recent_html(paths: Sequence[str]) -> str:
    """Recent paths as buttons with the last two parts of the path; the full path is the title."""
    buttons = Markup("").join(
        Markup('<button type="button" class="place" data-act="pick" data-place="{0}" title="{1}">{2}</button>').format(
            path, printable(path), printable("/".join(Path(path).parts[-2:]), 60)
        )
        for path in paths
    )
    return str(Markup('<div class="places"><span>Recent</span>{}</div>').format(buttons)) if paths else ""


def _entry(entry: Entry) -> Markup:
    if entry.kind == "folder":
        return _line("folder", own(entry.name, 120), entry.path, "open", entry.detail)
    inside = (
        Markup(
            '<button type="button" class="inside" data-act="open" data-place="{}" aria-label="Open {}">Open</button>'
        ).format(entry.path, printable(entry.name, 120))
        if entry.kind == "model"
        else ""
    )
    detail = f"Model, {entry.detail}" if entry.kind == "model" else entry.detail
    return _line(entry.kind, own(entry.name, 120), entry.path, "pick", detail, inside)


def _line(symbol: str, name: Markup, path: str, act: str, detail: str, extra: str = "") -> Markup:
    return Markup(
        '<li><button type="button" class="entry entry-{symbol}" data-act="{act}" data-place="{path}">{icon}'
        '<span class="entry-name">{name}</span><span class="entry-detail">{detail}</span></button>{extra}</li>'
    ).format(symbol=symbol, act=act, path=path, icon=icon(symbol), name=name, detail=detail, extra=extra)
