"""Errors and empty states, each with the next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import gradio as gr
from markupsafe import Markup, escape

from irwm.errors import IrwmError, printable
from irwm.report.document import ReportError
from ui.components.icons import icon
from ui.components.markup import facts
from ui.components.setting_words import in_words
from ui.services.outcomes import PARTS

COPIED = ("file", "tensor")
ROWS = (("file", "File"), ("tensor", "Tensor"), ("expected", "Expected"), ("found", "Actual"))


def parts_of(error: IrwmError | Mapping[str, object]) -> dict[str, str]:
    """The parts of an error that are set, with labels of settings; also from a job's row, where they are a dict."""
    known = error if isinstance(error, Mapping) else {part: getattr(error, part) for part in PARTS}
    return in_words({part: str(known[part]) for part in PARTS if known.get(part)})


def error_html(error: IrwmError | Mapping[str, object]) -> str:
    """A card with the problem, its file and tensor, the expected and found values, and the next step."""
    parts = parts_of(error)
    rows = [
        (label, copyable(parts[part]) if part in COPIED else printable(parts[part], 2000))
        for part, label in ROWS
        if part in parts
    ]
    return str(
        Markup('<section class="notice notice-fault" role="alert">{}<div><h2>{}</h2>{}{}</div></section>').format(
            icon("fault"),
            sentence(parts.get("problem", "something went wrong")),
            facts(rows) if rows else "",
            Markup('<p class="advice">{}</p>').format(sentence(parts["advice"])) if "advice" in parts else "",
        )
    )


def empty_html(title: str, what_to_do: str) -> str:
    """A placeholder for an empty list."""
    section = Markup('<section class="notice notice-empty"><h2>{}</h2><p>{}</p></section>')
    return str(section.format(printable(title, 2000), printable(what_to_do, 2000)))


def note_html(text: str, *, good: bool = False) -> str:
    """One quiet line below a control; `good` puts a tick before it. A `Markup` is used unchanged."""
    shown = text if isinstance(text, Markup) else printable(text, 2000)
    # In one span: the note is a flex box, in which each part would be a column.
    return str(Markup('<p class="note">{}<span>{}</span></p>').format(icon("done") if good else "", shown))


def copyable(text: str) -> Markup:
    """A path or hash in monospace with a button that copies it; studio.js does the copying.

    The copied text equals the shown text: a line break or an escape hidden in a name must not reach a terminal.
    """
    return Markup(
        '<span class="copyable"><code>{shown}</code>'
        '<button type="button" class="copy" data-copy="{shown}" aria-label="Copy {shown}">Copy</button></span>'
    ).format(shown=printable(text, 2000))


def sentence(text: str) -> str:
    """The text with a capital letter at its start and a full stop at its end."""
    text = printable(text.strip(), 2000)
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")


@contextmanager
def damaged(problem: str, advice: str | None = None) -> Iterator[None]:
    """A document is read inside whose fields may be missing or wrong, as in a file that was damaged or edited.

    Raises:
        ReportError: one is; with this problem and advice.
    """
    try:
        yield
    except IrwmError:  # some are a ValueError too
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReportError(problem, found=f"{type(error).__name__}: {error}", advice=advice) from error


def alarm(error: IrwmError) -> gr.Error:
    """A short message in the corner, for a handler that cannot show a card: `raise alarm(error)`.

    Escaped here, because Gradio renders the text of its toasts as HTML.
    """
    parts = parts_of(error)
    text = " ".join(str(escape(sentence(parts[part]))) for part in ("problem", "advice") if part in parts)
    return gr.Error(text, print_exception=False)
