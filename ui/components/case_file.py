"""Cases as HTML: the list of cases, and the items, runs, notes and custody log of one case. All functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from irwm.errors import printable
from irwm.report.numbers import number
from storage.audit import AuditEntry
from storage.records import CaseRecord
from ui.amounts import size_text
from ui.components.icons import icon
from ui.components.notices import copyable, empty_html

# Sends the id of the chosen line. The line's name is a real button, so that the list works by keyboard.
LIST_SCRIPT = """
element.addEventListener('click', (event) => {
  const line = event.target.closest('[data-record]');
  if (line) trigger('chosen', {record: line.dataset.record});
});
"""
NO_CASES = empty_html(
    "No cases yet", "Investigate a suspect: its case is opened and listed here. Or open a case below and add items."
)
NO_ITEMS = empty_html("No items yet", "Add what you received: a model, a file, a letter. It is hashed in place.")
NO_RUNS = empty_html("No runs yet", "Investigate a suspect under this case’s title, or resolve a dispute below.")
NO_NOTES = empty_html("No notes yet", "Write down what the files do not show: who called, what was agreed.")
# Most files of one item that are listed with their hashes; a model has a few, a folder may have thousands.
MOST_FILES = 12
_ICONS = {
    "found": "found",
    "found, not yet proof": "unproven",
    "not found": "not found",
    "inconclusive": "inconclusive",
    "decided": "found",
    "undecided": "inconclusive",
    "held": "found",
    "lost": "not found",
    "not measured": "inconclusive",
}


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One case in the list.

    Attributes:
        last: the verdict of its newest run; "" while there is none.
    """

    id: str
    title: str
    opened: str
    items: int
    runs: int
    last: str


def cases_html(lines: Sequence[CaseLine], chosen: str | None) -> str:
    """All cases, newest first; the chosen one is marked."""
    if not lines:
        return NO_CASES
    rows = Markup("").join(
        Markup(
            '<tr{}><th scope="row"><button type="button" class="place" data-record="{}"{}>{}</button></th>'
            '<td>{}</td><td class="number">{}</td><td class="number">{}</td><td>{}</td></tr>'
        ).format(
            Markup(' class="chosen"') if line.id == chosen else "",
            line.id,
            Markup(' aria-current="true"') if line.id == chosen else "",
            printable(line.title, 120),
            moment(line.opened),
            number(line.items),
            number(line.runs),
            verdict_word(line.last) if line.last else "–",
        )
        for line in lines
    )
    heads = (("Case", ""), ("Opened (UTC)", ""), ("Items", "number"), ("Runs", "number"), ("Last verdict", ""))
    return _table("Cases", heads, rows)


def case_head_html(case: CaseRecord) -> str:
    """Title, day and note of the case that is shown."""
    note = Markup("<p>{}</p>").format(printable(case.note, 1000)) if case.note else ""
    return str(
        Markup('<section class="case-head"><h2>{}</h2><p class="quiet">Opened {} UTC</p>{}</section>').format(
            printable(case.title, 200), moment(case.created), note
        )
    )


def items_html(items: Iterable[Any]) -> str:
    """The items: each one's files with their hashes, who sent it, who added it and when."""
    rows = [
        Markup('<tr><th scope="row">{}{}</th><td>{}</td><td>{}</td></tr>').format(
            Markup("<span>{}</span>").format(printable(item.name, 120)),
            _beneath(item.note),
            _hashes(item.files),
            _added(item),
        )
        for item in items
    ]
    if not rows:
        return NO_ITEMS
    heads = (("Item", ""), ("Files and their SHA-256", ""), ("Received", ""))
    return _table("Items of the case", heads, Markup("").join(rows), "items")


def runs_html(runs: Iterable[Any]) -> str:
    """Every examination filed in the case."""
    rows = [
        Markup('<tr><th scope="row">{}{}</th><td>{}</td><td>{}</td></tr>').format(
            Markup('<button type="button" class="place" data-record="{}">{}</button>').format(
                run.id, printable(short_path(run.suspect), 120)
            ),
            _beneath(run.note),
            verdict_word(run.verdict),
            moment(run.created),
        )
        for run in runs
    ]
    if not rows:
        return NO_RUNS
    return _table("Runs of the case", (("Examined", ""), ("Verdict", ""), ("Filed (UTC)", "")), Markup("").join(rows))


def notes_html(notes: Iterable[Any]) -> str:
    """The notes in the order in which they were written."""
    lines = [
        Markup('<li><p class="quiet">{}{}</p><p>{}</p></li>').format(
            moment(note.created),
            f" UTC, {printable(note.added_by, 80)}" if note.added_by else " UTC",
            printable(note.text, 4000),
        )
        for note in notes
    ]
    return str(Markup('<ul class="case-notes">{}</ul>').format(Markup("").join(lines))) if lines else NO_NOTES


def custody_html(entries: Iterable[AuditEntry]) -> str:
    """The entries of the vault's log about this case, oldest first."""
    rows = Markup("").join(
        Markup('<tr><td class="number">{}</td><td>{}</td><th scope="row">{}</th><td><code>{}</code></td></tr>').format(
            number(entry.sequence), moment(entry.time), printable(entry.event, 80), entry.hash[:16]
        )
        for entry in entries
    )
    heads = (("Entry", "number"), ("Time (UTC)", ""), ("Event", ""), ("Hash", ""))
    return _table("Custody log", heads, rows)


def verdict_word(word: str) -> Markup:
    """A verdict with its sign, so that it does not depend on colour alone."""
    sign = icon(_ICONS.get(word, "file"))
    return Markup('<span class="word-with-icon">{}{}</span>').format(sign, printable(word[:1].upper() + word[1:], 80))


def moment(created: str) -> str:
    """A time stored in the vault, to the minute."""
    return created[:16].replace("T", " ")


def short_path(text: str) -> str:
    """The last two parts of a path, which distinguish suspects."""
    return "/".join(text.rstrip("/").split("/")[-2:])


def _table(label: str, heads: Sequence[tuple[str, str]], rows: Markup, kind: str = "") -> str:
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(Markup(f' class="{css}"') if css else "", text)
        for text, css in heads
    )
    return str(
        Markup(
            '<table class="case-table {}" aria-label="{}"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
        ).format(kind, label, head, rows)
    )


def _beneath(text: str) -> Markup:
    return Markup('<span class="beneath">{}</span>').format(printable(text, 400)) if text else Markup("")


def _hashes(files: Mapping[str, Any]) -> Markup:
    named = sorted(files.items())
    lines = Markup("").join(
        Markup('<li><span>{} <span class="quiet">{}</span></span>{}</li>').format(
            printable(name, 120), size_text(int(size)), copyable(digest)
        )
        for name, (size, digest) in named[:MOST_FILES]
    )
    more = len(named) - MOST_FILES
    rest = Markup("<li>and {} more, all in the exported case</li>").format(number(more)) if more > 0 else ""
    return Markup('<ul class="hashes">{}{}</ul>').format(lines, rest)


def _added(item: Any) -> Markup:
    said: list[tuple[str, Callable[[], str]]] = [
        (item.received_from, lambda: f"from {item.received_from}"),
        (item.added_by, lambda: f"added by {item.added_by}"),
        (item.seen_utc, lambda: f"known to exist since {item.seen_utc[:10]}"),
    ]
    lines = Markup("").join(_beneath(text()) for known, text in said if known)
    return Markup("<span>{} UTC</span>{}").format(moment(item.created), lines)
