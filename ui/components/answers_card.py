"""A suspect that is only reachable through an API: how to record its answers, and the card of a recording."""

from __future__ import annotations

import shlex

from markupsafe import Markup

from irwm.checkpoint.recorded import Header
from irwm.errors import IrwmError, printable
from irwm.report import wording
from irwm.report.numbers import number
from ui.components import notices
from ui.components.markup import facts, moment
from ui.units import size_text

# Placeholder in a command while no original is chosen.
_ORIGINAL = "PATH-TO-THE-ORIGINAL"
OUT = "answers.safetensors"


def command(original: str | None) -> list[str]:
    """The command that shows what a recording for this original would need, without sending requests. It comes in
    pieces that should not be broken across lines."""
    where = _ORIGINAL if original is None else shlex.quote(printable(original))
    options = {"endpoint": "https://SERVER", "model": "NAME", "original": where, "out": OUT}
    return ["python app.py collect", *(f"--{name} {value}" for name, value in options.items()), "--plan"]


def how_html(original: str | None) -> str:
    """How to record the answers of a suspected copy of this original."""
    parts = command(original)
    shown = Markup(" ").join(Markup("<span>{}</span>").format(part) for part in parts)
    return str(
        Markup(
            '<section class="how-to"><p>{}</p><p>Record them with this command, using the server’s address and the '
            "model’s name there. It shows how many requests are needed and sends none of them. To record, replace "
            "<code>--plan</code> with <code>--send</code>. The server gets short prompts, never keys or weights.</p>"
            '<p class="command"><code>{}</code><button type="button" class="copy" data-copy="{}" '
            'aria-label="Copy the command">Copy</button></p></section>'
        ).format(wording.BY_ANSWERS, shown, " ".join(parts))
    )


def answers_html(name: str, header: Header, problem: IrwmError | None = None) -> str:
    """The card of a recording.

    Args:
        problem: why it cannot be examined with the original.
    """
    source = header.source
    rows = (
        ("Model", printable(source.model, 120)),
        ("Asked at", printable(source.endpoint, 300)),
        ("Answers", f"{number(header.answers)}, of {number(header.requests)} requests"),
        ("Tokens covered", f"{number(header.tokens)} of {number(source.vocab_size)}"),
        ("Recorded", f"{moment(printable(source.began, 40))} to {moment(printable(source.ended, 40))}, UTC"),
        ("Size", size_text(header.bytes)),
    )
    card = Markup(
        '<section class="model-card" aria-label="Recorded answers {0}"><details class="model-fold" open><summary>'
        '<h2>{0}</h2><span class="model-brief">answers of {1}</span></summary><div class="model-facts">'
        "{2}</div></details></section>"
    ).format(printable(name, 200), printable(source.model, 120), facts(rows))
    return f"{card}{notices.error_html(problem)}" if problem is not None else str(card)
