"""The checks of a report as a list: each with a sign, a word and its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from irwm.errors import printable
from irwm.report.checks import NEEDED, Verification, in_words
from irwm.report.value_states import Stated
from ui.components.icons import icon
from ui.components.markup import items
from ui.components.notices import sentence

HOLDS, FAILS, NOT_CHECKED = "Passed", "Failed", "Not checked"
# Names of checks in headings; other names are shown unchanged.
_TITLES = {
    "page": "Page (HTML)",
    "pdf": "PDF",
    "document": "JSON file",
    "custody": "State of the audit log",
    "log": "Audit log",
    "choices": "Seed and number of keys",
    "seen": "Suspect known since",
    "report_files": "Report files",
    "reviewed": "Reviewed report",
}
_SECTION = Markup(
    '<section class="checks" aria-label="Checks of the report" role="status"><h2>{}</h2>{}<ul>{}</ul>{}</section>'
)
_WORDS = {True: (HOLDS, "done", "holds"), False: (FAILS, "fault", "fails"), None: (NOT_CHECKED, "not found", "open")}


def checks_html(found: Verification) -> str:
    """The outcome in one or two sentences, the files to give for more checks, each check, and mere statements."""
    lines = Markup("").join(_line(check.name, check.ok, check.said) for check in found.checks)
    if len(found.checks) == 1:  # it is not a report, so no further files are requested
        title = "The report could not be checked" if found.checks[0].ok is None else printable(found.result)
        return str(_SECTION.format(title, "", lines, ""))
    return str(_SECTION.format(printable(found.result), _needed(found), lines, _stated(found.states.left)))


def _needed(found: Verification) -> Markup:
    """The files to give so that more is computed again; empty if the report fails anyway."""
    if found.exit_code != 2 or not found.needed:
        return Markup("")
    lines = items(sentence(NEEDED[need]) for need in found.needed)
    return Markup('<p>To have the rest recomputed, provide:</p><ul class="needed">{}</ul>').format(lines)


def _stated(left: Sequence[Stated]) -> Markup:
    """Statements of the signer that cannot be checked, folded at first."""
    if not left:
        return Markup("")
    lines = items(sentence(printable(part, 2000)) for part in in_words(left))
    return Markup("<details><summary>Stated only by the signer</summary><ul>{}</ul></details>").format(lines)


def _line(name: str, ok: Any, said: str) -> Markup:
    word, symbol, kind = _WORDS[ok if ok is None else bool(ok)]
    return Markup(
        '<li class="check check-{}"><span class="check-word">{}{}</span><div><h3>{}</h3><p>{}</p></div></li>'
    ).format(kind, icon(symbol), word, title_of(name), _said(said))


def title_of(name: str) -> str:
    """The heading of a check."""
    return _TITLES.get(name) or sentence(printable(name)).rstrip(".")


def _said(text: str) -> str:
    """A clause as a sentence; a file name at its start keeps its lower case."""
    text = printable(text, 2000)
    first = text.split(" ", 1)[0].rstrip(":;,")
    return text if "." in first.rstrip(".") else sentence(text)
