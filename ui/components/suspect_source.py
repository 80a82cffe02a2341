"""One way to give a suspect: a path on this machine, or an upload in its place, and the card of what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError, shown_path
from ui.amounts import size_text
from ui.components import notices
from ui.components.browsing import PathRefusedError
from ui.components.events import in_turn
from ui.components.guarded import guarded
from ui.components.path_picker import PathPicker, path_picker
from ui.components.uploads import MOST_FILES, RECEIVED, receive
from ui.context import Context
from ui.guard import UPLOAD_BYTES

# A card, and whether what it shows can be examined; once from headers and once more when all was read. Takes the
# suspect's path and the original's.
Described = Callable[[str | None, str | None], Iterator[tuple[str, bool]]]


@dataclass(frozen=True, slots=True)
class SuspectSource:
    """What a page gets.

    Attributes:
        picker: the field for a path.
        upload: takes its place.
        card: what was given.
        uploaded: a `gr.State` with the path of what was uploaded; None where nothing was.
        sound: a `gr.State`, whether what was given can be examined; True where nothing was given.
        missing: what to do where nothing was given.
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
        """The components that `given` takes values of, in order."""
        return [self.picker.field, self.picker.chosen, self.uploaded]

    def given(self, typed: str | None, looked_at: str | None, held: str | None) -> str:
        """The path of the suspect that the page shows, and nothing else.

        Raises:
            IrwmError: none is shown, or the page holds another one than it shows.
        """
        typed = (typed or "").strip()
        if held:
            received = Path(held).resolve()
            if typed:
                raise IrwmError("both a path and an upload are given", advice="Empty the field or remove the upload")
            home = (self.context.settings.home / RECEIVED).resolve()
            if not received.is_relative_to(home) or not received.exists():
                raise PathRefusedError("the uploaded files are gone", file=received, advice="Upload it again")
            return str(received)
        if not typed:
            raise IrwmError("the suspect is missing", advice=self.missing)
        path = shown_path(self.picker.check(typed))
        if path != looked_at:
            raise IrwmError(
                "the suspect in the field is not the one on the card",
                expected=looked_at,
                found=path,
                advice="Wait for its card below the field, then start again",
            )
        return path

    def connect(
        self, original: gr.State, results: gr.Column, described: Described, depends: Callable[[str], bool]
    ) -> None:
        """Shows the card of what is given.

        Args:
            original: its path.
            results: hidden whenever another suspect is shown: a verdict on one must not stand below another's card.
            depends: whether another original makes something else of this suspect.
        """
        context, picker, upload = self.context, self.picker, self.upload
        require = guarded(context.require)

        def look_at_suspect(path: str | None, base: str | None, held: str | None, request: gr.Request) -> Iterator[Any]:
            """A path that was picked takes the place of an upload; a field that an upload emptied changes nothing."""
            require(request)
            if not path and held:
                yield (gr.skip(),) * 5
                return
            for card in described(path, base):
                yield *card, None, gr.File(value=None), gr.Column(visible=False)

        def look_again(path: str | None, held: str | None, base: str | None, request: gr.Request) -> Iterator[Any]:
            """The suspect once more where another original makes another one of it."""
            require(request)
            source = held or path
            if source and depends(source):
                yield from described(source, base)
            else:
                yield gr.skip(), gr.skip()

        def take_upload(files: list[str] | str | None, base: str | None, request: gr.Request) -> Any:
            """An upload takes the place of a path: only one of the two is ever shown.

            Nothing that yields: Gradio sends the last of it again at its end, and would empty the field of a path that
            was pasted meanwhile. What takes long is looked at by `look_at_upload`.
            """
            require(request)
            emptied = "", None, gr.HTML(visible=False), gr.Column(visible=False)
            try:
                several = [files] if isinstance(files, str) else files
                path = str(receive(several, context.settings.home)) if several else None
            except IrwmError as error:
                return notices.error_html(error), False, None, *emptied
            return *next(described(path, base)), path, *emptied

        def look_at_upload(held: str | None, base: str | None, request: gr.Request) -> Any:
            """The card of what was uploaded, after all of it was read."""
            require(request)
            return list(described(held, base))[-1] if held else (gr.skip(), gr.skip())

        def drop_upload(held: str | None, request: gr.Request) -> Any:
            require(request)
            if not held:
                return (gr.skip(),) * 5
            return "", True, None, gr.File(value=None), gr.Column(visible=False)

        lane: dict[str, Any] = in_turn(picker.purpose)
        last: dict[str, Any] = {"trigger_mode": "always_last"}
        replaced = [self.card, self.sound, self.uploaded, upload, results]
        picker.chosen.change(look_at_suspect, [picker.chosen, original, self.uploaded], replaced, **lane, **last)
        emptied = [self.card, self.sound, self.uploaded, picker.field, picker.chosen, picker.note, results]
        upload.upload(take_upload, [upload, original], emptied, **lane).success(
            look_at_upload, [self.uploaded, original], [self.card, self.sound], **lane
        )
        gr.on([upload.clear, upload.delete], drop_upload, self.uploaded, replaced, **lane)
        again = [picker.chosen, self.uploaded, original]
        original.change(look_again, again, [self.card, self.sound], **lane, **last)


def suspect_source(
    context: Context, *, label: str, info: str, purpose: str, upload: str, missing: str, several: bool, **picking: Any
) -> SuspectSource:
    """Builds it at this place of the page.

    Args:
        purpose: as of `path_picker`; ids of elements have it too.
        upload: the label of the upload.
        several: whether several files may be uploaded.
        picking: what else `path_picker` takes.
    """
    picker = path_picker(context, label=label, info=info, purpose=purpose, **picking)
    with gr.Accordion("Upload it instead", open=False, elem_id=f"upload-{purpose}"):
        gr.Markdown(
            "A file on this computer, or on a drive that it can read, needs no upload: paste its path above."
            + (f" An upload has at most {MOST_FILES} files of {size_text(UPLOAD_BYTES)} each." if several else ""),
            elem_classes="caption",
        )
        files = gr.File(label=upload, file_count="multiple" if several else "single", elem_id=f"{purpose}-files")
    card = gr.HTML(elem_id=f"{purpose}-model")
    return SuspectSource(picker, files, card, gr.State(None), gr.State(True), context, missing)
