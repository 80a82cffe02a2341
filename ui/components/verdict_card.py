"""The verdict in large type: an icon and a word, one sentence, three figures, then the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from irwm.report.answer import WORDS
from ui.components.icons import icon
from ui.components.markup import each, paragraphs

# More figures would be hard to read at a glance.
FIGURES = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a verdict.

    Attributes:
        value: the text, such as "48 of 50" or "less than 1 in 10³⁰".
        label: its name, a few words.
        help: its meaning, one sentence, the paper's symbol last.
    """

    value: str
    label: str
    help: str


@dataclass(frozen=True, slots=True)
class VerdictCard:
    """A verdict to show. Texts are plain and escaped here; a `Markup` in `why` or in a figure is used unchanged.

    Attributes:
        verdict: one of `irwm.report.answer.WORDS`.
        sentence: the answer in one sentence.
        figures: exactly three.
        why: paragraphs, the most important first.
        about: the examined models, in small type above the sentence.
        fault: the reason why the result is not reliable, in red above the figures.
        caution: what is still open, in amber above the figures.
    """

    verdict: str
    sentence: str
    figures: Sequence[Figure]
    why: Sequence[str] = ()
    about: str = ""
    fault: str = ""
    caution: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in WORDS:
            raise ValueError(f"unknown verdict: {self.verdict!r}")
        if len(self.figures) != FIGURES:
            raise ValueError(f"a verdict has {FIGURES} figures, not {len(self.figures)}")


def verdict_html(card: VerdictCard) -> str:
    """The card as HTML; the classes are in style.css."""
    word = WORDS[card.verdict]
    kind = card.verdict.replace(" ", "-")
    figures = each(
        '<div class="figure"><dt>{}</dt><dd class="figure-value">{}</dd><dd class="figure-help">{}</dd></div>',
        ((figure.label, figure.value, figure.help) for figure in card.figures),
    )
    about = Markup('<p class="verdict-about">{}</p>').format(card.about) if card.about else ""
    why = why_html(card.why) if card.why else ""
    return str(
        Markup(
            '<section class="verdict verdict-{kind}" tabindex="-1" aria-label="Verdict: {word}">'
            '<header class="verdict-head"><span class="verdict-word">{icon}<span>{word}</span></span>{about}</header>'
            '<p class="verdict-sentence">{sentence}</p>{first}<dl class="figures">{figures}</dl>{why}</section>'
        ).format(
            kind=kind,
            word=word,
            icon=icon(card.verdict),
            about=about,
            sentence=card.sentence,
            first=_first(card),
            figures=figures,
            why=why,
        )
    )


def why_html(reasons: Iterable[str]) -> Markup:
    """The reasons below a verdict, as paragraphs."""
    return Markup('<div class="verdict-why"><h3>Why</h3>{}</div>').format(paragraphs(reasons))


def _first(card: VerdictCard) -> Markup:
    """The notices above the figures."""
    lines = ((card.fault, "fault"), (card.caution, "amber"))
    return each(
        '<p class="verdict-first verdict-{}">{}<span>{}</span></p>',
        ((kind, icon("fault"), text) for text, kind in lines if text),
    )
