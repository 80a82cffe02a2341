"""The checks of a report as a list: each with a sign, a word and its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from irwm.errors import printable
from irwm.report.checks import BY_WHOM
from ui.components.icons import icon
from ui.components.notices import sentence

HOLDS, FAILS, NOT_CHECKED = "Holds", "Fails", "Not checked"
# Names of checks as a heading has them; others are shown as they are.
_TITLES = {
    "page": "Page (HTML)",
    "pdf": "PDF",
    "document": "Numbers file (JSON)",
    "custody": "Audit log",
    "beside": "Files of the reports",
}
_WORDS = {True: (HOLDS, "done", "holds"), False: (FAILS, "fault", "fails"), None: (NOT_CHECKED, "not found", "open")}


def checks_html(checks: Iterable[tuple[str, bool | None, str]], unchecked: Sequence[str] = ()) -> str:
    """The outcome in one sentence, then every check.

    Args:
        checks: of each its name, whether it holds (None where it was not checked), and what there is to say.
        unchecked: what no check shows, in sentence parts (`irwm.report.checks.in_words`).
    """
    listed = list(checks)
    lines = Markup("").join(_line(*check) for check in listed)
    return str(
        Markup(
            '<section class="checks" aria-label="Checks of the report" role="status"><h2>{}</h2><ul>{}</ul>{}</section>'
        ).format(summary(listed), lines, _left(unchecked))
    )


def summary(checks: Iterable[tuple[str, bool | None, str]]) -> str:
    """All checks in one sentence: what fails is named first."""
    listed = list(checks)
    failed = [name for name, ok, _ in listed if ok is False]
    left = sum(ok is None for _, ok, _ in listed)
    if failed:
        return f"This report does not hold: {', '.join(failed)}"
    if not any(ok for _, ok, _ in listed):
        return "Nothing could be checked"
    said = "All that was checked holds" + (f"; {left} {'check' if left == 1 else 'checks'} left out" if left else "")
    vouched = any(name == "identity" and ok for name, ok, _ in listed)
    return said if vouched else f"{said}. {BY_WHOM}"


def _left(unchecked: Sequence[str]) -> Markup:
    """What is not checked, closed until somebody opens it."""
    if not unchecked:
        return Markup("")
    lines = Markup("").join(Markup("<li>{}</li>").format(sentence(printable(part, 2000))) for part in unchecked)
    return Markup("<details><summary>Fields of the report that are not checked</summary><ul>{}</ul></details>").format(
        lines
    )


def _line(name: str, ok: Any, said: str) -> Markup:
    word, symbol, kind = _WORDS[ok if ok is None else bool(ok)]
    return Markup(
        '<li class="check check-{}"><span class="check-word">{}{}</span><div><h3>{}</h3><p>{}</p></div></li>'
    ).format(kind, icon(symbol), word, _TITLES.get(name) or sentence(name).rstrip("."), _said(said))


def _said(text: str) -> str:
    """A sentence part as a sentence; a file's name at its start keeps its small letter."""
    text = printable(text, 2000)
    first = text.split(" ", 1)[0].rstrip(":;,")
    return text if "." in first.rstrip(".") else sentence(text)
