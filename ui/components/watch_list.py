"""The results of a watch as a list, and one of them in full. All functions are pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from irwm.errors import printable
from irwm.report.numbers import counted, number, power_text, why_capped
from irwm.report.recognition_words import origin
from ui.components import notices
from ui.components.markup import beneath, facts, moment, own, record_row, table, verdict_word
from ui.services.outcomes import FOUND, INCONCLUSIVE, NOT_FOUND
from ui.services.results import NO_MATCH, Watched, WatchRow
from ui.services.stored_results import FAILED, finding_of, versions_of_models
from ui.units import size_text

# What the list shows.
FINDINGS, FAILURES, ALL = "findings", "failures", "all"
SHOWN = [("Findings", FINDINGS), ("Could not be screened", FAILURES), ("All suspects", ALL)]
PAGE_SIZE = 20
_ORDER = (FOUND, INCONCLUSIVE, NOT_FOUND, FAILED, NO_MATCH)
_HEADS = ("Suspect", "Result", "Most alike", ("Probability by chance", "snug"), ("Screened (UTC)", "snug"))
_COUNTS = {
    FOUND: "with a mark", INCONCLUSIVE: "inconclusive", NOT_FOUND: "alike without a mark", NO_MATCH: "without a match",
    FAILED: "not screened",
}  # fmt: skip
NOTHING_YET = notices.empty_html(
    "No suspects yet", "Enter the sources above. Each model in them is screened once, and listed here."
)
_NOTHING = {
    FINDINGS: ("No findings", "No suspect that was screened so far carries a mark or descends from an original."),
    FAILURES: ("No failures", "Every suspect so far could be screened."),
}


def id_of(row: WatchRow) -> str:
    """Names a row on the page."""
    return hashlib.sha256(f"{row['address']}\n{row['version']}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def word_of(row: WatchRow) -> str:
    return row["result"]["word"] if row["result"] else FAILED


def chosen_rows(rows: Iterable[WatchRow], shown: str) -> list[WatchRow]:
    """A row of each model that `shown` asks for, the strongest first, then the newest. It is that of the latest
    version, or of the one with the strongest finding."""
    wanted = list(filter(None, (_chosen(versions, shown) for versions in versions_of_models(rows))))
    wanted.sort(key=lambda row: row["utc"], reverse=True)
    return sorted(wanted, key=lambda row: _ORDER.index(word_of(row)))


def _chosen(versions: Sequence[WatchRow], shown: str) -> WatchRow | None:
    latest = versions[-1]
    if shown == FAILURES:
        return latest if latest["error"] is not None else None
    return finding_of(versions) or (latest if shown == ALL else None)


def summary_html(result: Watched) -> str:
    """What a pass did, in a few sentences."""
    counts = Counter(result["counts"])
    named = ", ".join(f"{number(counts[word])} {said}" for word, said in _COUNTS.items() if counts[word])
    new = counted(counts.total(), "new suspect") if counts else "no new suspects"
    said = f"This pass screened {new}{': ' if named else ''}{named}. So far: {counted(result['known'], 'suspect')}. "
    said += f"Compared with {counted(result['originals'], 'original')} and {counted(result['keys'], 'key')}."
    if left := sum(source["left"] for source in result["sources"]):
        said += f" Left for the next pass: {number(left)}."
    if result["originals_left_out"]:
        names = ", ".join(printable(name, 80) for name in result["originals_left_out"])
        said += f" Keys of these originals could not be tried: {names}."
    problems = Markup("").join(
        Markup(notices.error_html(source["error"])) for source in result["sources"] if source["error"]
    )
    return str(Markup('<section class="notice"><div><p>{}</p></div></section>{}').format(said, problems))


def list_html(rows: Sequence[WatchRow], chosen: str | None, shown: str) -> str:
    """One page of the list; titles are buttons, for mouse and keyboard."""
    if not rows:
        return notices.empty_html(*_NOTHING[shown]) if shown in _NOTHING else NOTHING_YET
    lines = [_row(row, id_of(row) == chosen) for row in rows]
    why = why_capped(*(_odds(row) for row in rows))
    return str(table("Suspects", _HEADS, lines, "watched")) + (notices.note_html(why) if why else "")


def _row(row: WatchRow, chosen: bool) -> Markup:
    result = row["result"]
    below = ", ".join(printable(who, 80) for who in result["whose"]) if result else ""
    alike = "–" if result is None or result["word"] == NO_MATCH else Path(result["original"]).name
    cells = Markup('<td>{}{}</td><td>{}{}</td><td class="snug">{}</td><td class="snug">{}</td>').format(
        verdict_word(word_of(row)),
        beneath(below),
        own(alike, 80),
        beneath(origin(result["lineage"]) if result and result["lineage"] else ""),
        _odds(row),
        moment(row["utc"]),
    )
    return record_row(id_of(row), printable(row["name"], 120), chosen, cells, beneath(printable(row["source"], 80)))


def _odds(row: WatchRow) -> str:
    risk = row["result"]["log10_risk"] if row["result"] else None
    return "–" if risk is None else power_text(risk)


def detail_html(row: WatchRow) -> str:
    """One result in full."""
    about: list[tuple[object, object]] = [("Address", notices.copyable(row["address"]))]
    if row["version"]:
        about.append(("Version", notices.copyable(row["version"])))
    result = row["result"]
    if result is None:
        about.append(("Tries", number(row["tries"])))
    else:
        if result["whose"]:
            about.insert(0, ("Made for", own(", ".join(result["whose"]))))
        if result["part"]:
            about.append(("Checkpoint", own(result["part"])))
        about.append(("Most alike", notices.copyable(result["original"])))
        alike = (
            "their tokens cannot be paired"
            if result["likeness"] is None
            else f"{result['likeness']:.2f} (1 for equal ones)"
        )
        about.append(("Likeness of the embeddings", alike))
        if result["bytes"]:
            about.append(("Read from the server", size_text(result["bytes"])))
        if kept := result.get("kept"):
            about.append(("Kept on this machine", notices.copyable(kept)))
        about.append(("Time", f"{result['seconds']:.1f} s"))
    reason = Markup("<p>{}</p>").format(notices.sentence(result["reason"])) if result else ""
    card = Markup('<section class="model-card" aria-label="Suspect"><h2>{}</h2>{}{}</section>').format(
        own(row["name"]), facts(about), reason
    )
    return str(Markup(notices.error_html(row["error"])) + card if row["error"] else card)
