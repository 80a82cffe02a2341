"""A suspect that is only reachable through an API: how to record its answers, and the card of a recording."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from markupsafe import Markup

from irwm.answers.recorded_responses import ResponsesSource
from irwm.answers.text_files import Texts
from irwm.checkpoint.recorded import Header
from irwm.errors import IrwmError, printable
from irwm.report import wording
from irwm.report.numbers import counted, number
from ui.components import notices
from ui.components.markup import facts, moment
from ui.units import size_text

# Placeholder in a command while no original is chosen.
_ORIGINAL = "PATH-TO-THE-ORIGINAL"
OUT, OUT_OF_TEXT = "answers.safetensors", "answers.jsonl"


def command(original: str | None, *, text: bool = False) -> list[str]:
    """The command that shows what a recording for this original would need, without sending requests. It comes in
    pieces that should not be broken across lines.

    Args:
        text: of generated text and not of complete log-probabilities.
    """
    where = _ORIGINAL if original is None else shlex.quote(printable(original))
    options = {"endpoint": "https://SERVER", "model": "NAME", "original": where}
    options["out"] = OUT_OF_TEXT if text else OUT
    return [
        "python app.py collect",
        *(["--generate"] if text else []),
        *(f"--{name} {value}" for name, value in options.items()),
        "--plan",
    ]


def how_html(original: str | None) -> str:
    """How to record the answers of a suspected copy of this original."""
    return str(
        Markup(
            '<section class="how-to"><p>{}</p><p>Many servers can return the log-probability of each generated token. '
            "If the copies were made for many recipients, these values show whose copy is answering. Use this command "
            "for such a server:</p>{}<p>A server that returns the log-probabilities of all tokens also reveals the "
            "mark in the output head. Use this command for such a server:</p>{}<p>In the command, replace SERVER and "
            "NAME with the server’s address and the model’s name. As shown here, the command only reports how many "
            "requests are needed and sends none. To record the answers, replace <code>--plan</code> with "
            "<code>--send</code>. The server receives short prompts, never keys or weights.</p><p>Text without any "
            "log-probability, such as a chat that was copied, shows the same only in far larger amounts, tens or "
            "hundreds of thousands of words. Save it as a .txt file, or paste it below.</p></section>"
        ).format(wording.BY_ANSWERS, _copied(command(original, text=True)), _copied(command(original)))
    )


def _copied(parts: list[str]) -> Markup:
    """A command with a button that copies it."""
    shown = Markup(" ").join(Markup("<span>{}</span>").format(part) for part in parts)
    return Markup(
        '<p class="command"><code>{}</code><button type="button" class="copy" data-copy="{}" '
        'aria-label="Copy the command">Copy</button></p>'
    ).format(shown, " ".join(parts))


def responses_html(name: str, source: ResponsesSource, count: int, size: int, problem: IrwmError | None = None) -> str:
    """The card of recorded responses.

    Args:
        count: how many there are.
        size: of the file in bytes.
        problem: why they cannot be examined with the original.
    """
    rows = (
        ("Model", printable(source.model, 120)),
        ("Endpoint", printable(source.endpoint, 300)),
        ("Answers", f"{counted(count, 'text')} of at most {number(source.max_tokens)} tokens each"),
        ("Temperature", f"{source.temperature:g}"),
        ("Size", size_text(size)),
    )
    return _card(name, source.model, rows, problem)


def text_html(name: str, found: Texts) -> str:
    """The card of a text file."""
    words = sum(len(text.split()) for text in found.texts)
    rows = (("Texts", number(len(found.texts))), ("Words", number(words)), ("Size", size_text(found.bytes)))
    return _card(name, "an unknown model", rows, None)


def answers_html(name: str, header: Header, problem: IrwmError | None = None) -> str:
    """The card of a recording.

    Args:
        problem: why it cannot be examined with the original.
    """
    source = header.source
    rows = (
        ("Model", printable(source.model, 120)),
        ("Endpoint", printable(source.endpoint, 300)),
        ("Answers", f"{number(header.answers)} from {number(header.requests)} requests"),
        ("Tokens covered", f"{number(header.tokens)} of {number(source.vocab_size)}"),
        ("Recorded", f"{moment(printable(source.began, 40))} to {moment(printable(source.ended, 40))}, UTC"),
        ("Size", size_text(header.bytes)),
    )
    return _card(name, source.model, rows, problem)


def _card(name: str, model: str, rows: Sequence[tuple[str, str]], problem: IrwmError | None) -> str:
    card = Markup(
        '<section class="model-card" aria-label="Recorded answers {0}"><details class="model-fold" open><summary>'
        '<h2>{0}</h2><span class="model-brief">answers from {1}</span></summary><div class="model-facts">'
        "{2}</div></details></section>"
    ).format(printable(name, 200), printable(model, 120), facts(rows))
    return f"{card}{notices.error_html(problem)}" if problem is not None else str(card)
