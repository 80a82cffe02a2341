"""Cases as HTML: the list of cases, and the items, runs, notes and custody log of one case. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from irwm.errors import printable
from irwm.report.numbers import counted, number
from storage.audit import AuditEntry
from storage.records import CaseRecord, FileDigest, ItemRecord, NoteRecord, RunEntry
from ui.components.markup import beneath, each, moment, own, record_row, table, verdict_word
from ui.components.notices import copyable, empty_html
from ui.units import size_text

NO_CASES = empty_html(
    "No cases yet",
    "When you investigate a suspect, a case is opened for it and listed here. You can also open a case below and add "
    "items.",
)
NO_ITEMS = empty_html(
    "No items yet", "Add what you received, such as a model, a file or a letter. It is hashed in place."
)
NO_RUNS = empty_html("No runs yet", "Investigate a suspect under this case’s title, or resolve a dispute below.")
NO_NOTES = empty_html("No notes yet", "Write down what the files do not show, such as who called or what was agreed.")
# Most files of one item that are listed with their hashes; a model has a few, a folder may have thousands.
MOST_FILES = 12


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
    rows = (
        record_row(
            line.id,
            own(line.title, 120),
            line.id == chosen,
            Markup('<td>{}</td><td class="number">{}</td><td class="number">{}</td><td>{}</td>').format(
                moment(line.opened), number(line.items), number(line.runs), _verdict(line.last) if line.last else "–"
            ),
        )
        for line in lines
    )
    names = ("Case", "Opened (UTC)", ("Items", "number"), ("Runs", "number"), "Last verdict")
    return str(table("Cases", names, rows))


def case_head_html(case: CaseRecord) -> str:
    """Title, day and note of the case that is shown."""
    note = Markup("<p>{}</p>").format(own(case.note, 1000)) if case.note else ""
    return str(
        Markup('<section class="case-head"><h2>{}</h2><p class="quiet">Opened {} UTC</p>{}</section>').format(
            own(case.title), moment(case.created), note
        )
    )


def items_html(items: Iterable[ItemRecord]) -> str:
    """The items: each one's files with their hashes, who sent it, who added it and when."""
    rows = [
        Markup('<tr><th scope="row"><span>{}</span>{}</th><td>{}</td><td>{}</td></tr>').format(
            own(item.name, 120), beneath(printable(item.note, 400)), _hashes(item.files), _added(item)
        )
        for item in items
    ]
    names = ("Item", "Files and SHA-256 hashes", "Received")
    return str(table("Items in this case", names, rows, "items")) if rows else NO_ITEMS


def runs_html(runs: Iterable[RunEntry]) -> str:
    """Every examination filed in the case."""
    rows = [
        record_row(
            run.id,
            own(short_path(run.suspect), 120),
            False,
            Markup("<td>{}</td><td>{}</td>").format(_verdict(run.verdict), moment(run.created)),
            beneath(printable(run.note, 400)),
        )
        for run in runs
    ]
    return str(table("Runs in this case", ("Examined", "Verdict", "Filed (UTC)"), rows)) if rows else NO_RUNS


def notes_html(notes: Iterable[NoteRecord]) -> str:
    """The notes in the order in which they were written."""
    lines = each(
        '<li><p class="quiet">{} UTC{}</p><p>{}</p></li>',
        (
            (
                moment(note.created),
                f", {printable(note.added_by, 80)}" if note.added_by else "",
                own(note.text, 4000),
            )
            for note in notes
        ),
    )
    return str(Markup('<ul class="case-notes">{}</ul>').format(lines)) if lines else NO_NOTES


def custody_html(entries: Iterable[AuditEntry]) -> str:
    """The entries of the vault's log about this case, oldest first."""
    rows = (
        Markup('<tr><td class="number">{}</td><td>{}</td><th scope="row">{}</th><td><code>{}</code></td></tr>').format(
            number(entry.sequence), moment(entry.time), printable(entry.event, 80), entry.hash[:16]
        )
        for entry in entries
    )
    return str(table("Custody log", (("Entry", "number"), "Time (UTC)", "Event", "Hash"), rows))


def short_path(text: str) -> str:
    """The last two parts of a path, which distinguish suspects."""
    return "/".join(text.rstrip("/").split("/")[-2:])


def _verdict(word: str) -> Markup:
    return verdict_word(word, unknown="file")


def _hashes(files: Mapping[str, FileDigest]) -> Markup:
    """Each file's hash; of several files folded to one line, so that the items of a case fit on the screen."""
    named = sorted(files.items())
    lines = each(
        '<li><span>{} <span class="quiet">{}</span></span>{}</li>',
        ((printable(name, 120), size_text(int(size)), copyable(digest)) for name, (size, digest) in named[:MOST_FILES]),
    )
    more = len(named) - MOST_FILES
    rest = Markup("<li>and {} more; the exported case lists all files</li>").format(number(more)) if more > 0 else ""
    listed = Markup('<ul class="hashes">{}{}</ul>').format(lines, rest)
    if len(named) < 2:
        return listed
    whole = sum(int(size) for _, (size, _) in named)
    head = f"{counted(len(named), 'file')}, {size_text(whole)}"
    return Markup("<details><summary>{}</summary>{}</details>").format(head, listed)


def _added(item: ItemRecord) -> Markup:
    said = (
        item.received_from and f"from {item.received_from}",
        item.added_by and f"added by {item.added_by}",
        item.seen_utc and f"known to exist since {item.seen_utc[:10]}",
    )
    lines = Markup("").join(beneath(printable(text, 400)) for text in said)
    return Markup("<span>{} UTC</span>{}").format(moment(item.created), lines)
