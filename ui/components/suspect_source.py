"""One way to give a suspect: a path on this machine, or an upload instead of it, and the suspect's card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError, shown_path
from ui.components import notices
from ui.components.browsing import PathRefusedError
from ui.components.events import LAST, in_turn
from ui.components.guarded import guarded
from ui.components.path_picker import PathPicker, path_picker
from ui.components.uploads import MOST_FILES, RECEIVED, receive
from ui.context import Context
from ui.guard import UPLOAD_BYTES
from ui.units import size_text

# A card, and whether its suspect can be examined; first from headers and again when everything was read. Takes the
# suspect's path and the original's.
Described = Callable[[str | None, str | None], Iterator[tuple[str, bool]]]


@dataclass(frozen=True, slots=True)
class SuspectSource:
    """The parts that a page uses.

    Attributes:
        picker: the field for a path.
        upload: an upload instead of a path.
        card: the card of the suspect.
        uploaded: a `gr.State` with the path of the uploaded files; None without an upload.
        sound: a `gr.State`, whether the suspect can be examined; True if there is none.
        missing: the advice if there is no suspect.
    """

    picker: PathPicker
    upload: gr.File
    card: gr.HTML
    uploaded: gr.State
    sound: gr.State
    context: Context
    missing: str

    @property
    def inputs(self) -> list[Any]:
        """The components whose values `given` takes, in order."""
        return [self.picker.field, self.picker.chosen, self.uploaded]

    def given(self, typed: str | None, looked_at: str | None, held: str | None) -> str:
        """The path of the suspect on the card.

        Raises:
            IrwmError: there is no suspect, or the field and the card do not match.
        """
        typed = (typed or "").strip()
        if held:
            received = Path(held).resolve()
            if typed:
                raise IrwmError("both a path and an upload were given", advice="Clear the field, or remove the upload")
            home = (self.context.settings.home / RECEIVED).resolve()
            if not received.is_relative_to(home) or not received.exists():
                raise PathRefusedError("the uploaded files no longer exist", file=received, advice="Upload them again")
            return str(received)
        if not typed:
            raise IrwmError("the suspect is missing", advice=self.missing)
        path = shown_path(self.picker.check(typed))
        if path != looked_at:
            raise IrwmError(
                "the suspect’s path does not match the model card below it",
                expected=looked_at,
                found=path,
                advice="Wait until the suspect’s card appears below the field, then start again",
            )
        return path

    def connect(
        self, original: gr.State, results: gr.Column, described: Described, depends: Callable[[str], bool]
    ) -> None:
        """Shows the suspect's card.

        Args:
            original: its path.
            results: hidden when another suspect is shown: a verdict must not stay below another suspect's card.
            depends: whether the card depends on the original.
        """
        context, picker, upload = self.context, self.picker, self.upload
        require = guarded(context.require)

        def look_at_suspect(path: str | None, base: str | None, held: str | None, request: gr.Request) -> Iterator[Any]:
            """A chosen path replaces an upload; a field that an upload emptied has no effect."""
            require(request)
            if not path and held:
                yield (gr.skip(),) * 5
                return
            for card in described(path, base):
                yield *card, None, gr.File(value=None), gr.Column(visible=False)
            if path:
                context.ready.prepare()

        def look_again(path: str | None, held: str | None, base: str | None, request: gr.Request) -> Iterator[Any]:
            """Updates the card if it depends on the original, which changed."""
            require(request)
            source = held or path
            if source and depends(source):
                yield from described(source, base)
            else:
                yield gr.skip(), gr.skip()

        def take_upload(files: list[str] | str | None, base: str | None, request: gr.Request) -> Any:
            """An upload replaces a path: only one of the two is shown.

            Not a generator: Gradio sends the last value again at the end, which would clear a path that was pasted
            in the meantime. `look_at_upload` does the slow part.
            """
            require(request)
            emptied = *picker.filled(None), gr.Column(visible=False)
            try:
                several = [files] if isinstance(files, str) else files
                path = str(receive(several, context.settings.home)) if several else None
            except IrwmError as error:
                return notices.error_html(error), False, None, *emptied
            return *next(described(path, base)), path, *emptied

        def look_at_upload(held: str | None, base: str | None, request: gr.Request) -> Any:
            """The card of an upload, after all of it was read."""
            require(request)
            return list(described(held, base))[-1] if held else (gr.skip(), gr.skip())

        def drop_upload(held: str | None, request: gr.Request) -> Any:
            require(request)
            if not held:
                return (gr.skip(),) * 5
            return "", True, None, gr.File(value=None), gr.Column(visible=False)

        lane = in_turn(picker.purpose)
        latest = {**lane, **LAST}
        replaced = [self.card, self.sound, self.uploaded, upload, results]
        picker.chosen.change(look_at_suspect, [picker.chosen, original, self.uploaded], replaced, **latest)
        emptied = [self.card, self.sound, self.uploaded, *picker.outputs, results]
        upload.upload(take_upload, [upload, original], emptied, **lane).success(
            look_at_upload, [self.uploaded, original], [self.card, self.sound], **lane
        )
        gr.on([upload.clear, upload.delete], drop_upload, self.uploaded, replaced, **lane)
        again = [picker.chosen, self.uploaded, original]
        original.change(look_again, again, [self.card, self.sound], **latest)


def suspect_source(
    context: Context, *, label: str, info: str, purpose: str, upload: str, missing: str, several: bool, **picking: Any
) -> SuspectSource:
    """Builds the components at this place of the page.

    Args:
        purpose: as for `path_picker`; also part of element ids.
        upload: the label of the upload.
        several: whether several files may be uploaded.
        picking: other arguments of `path_picker`.
    """
    picker = path_picker(context, label=label, info=info, purpose=purpose, **picking)
    with gr.Accordion("Upload it instead", open=False, elem_id=f"upload-{purpose}"):
        most = f" An upload can contain up to {MOST_FILES} files of up to {size_text(UPLOAD_BYTES)} each."
        gr.Markdown(
            "A file on this computer, or on a drive that this computer can read, does not need to be uploaded. Paste "
            "its path above." + (most if several else ""),
            elem_classes="caption",
        )
        files = gr.File(label=upload, file_count="multiple" if several else "single", elem_id=f"{purpose}-files")
    card = gr.HTML(elem_id=f"{purpose}-model")
    return SuspectSource(picker, files, card, gr.State(None), gr.State(True), context, missing)
