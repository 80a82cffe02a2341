"""The vault's originals on the page: those that a suspect will be compared with, and how it compares with each."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from irwm.errors import printable
from irwm.evidence.finding import FOUND
from irwm.report.numbers import counted, number
from ui.components import notices
from ui.components.markup import heads
from ui.jobs.results import open_originals
from ui.services.known_originals import KnownOriginals
from ui.services.results import OriginalRow

# Most originals that are named before the work.
_MOST_NAMED = 8
COLUMNS = (("Original", ""), ("Origin of the suspect", ""), ("Result", ""))


def all_originals_html(known: KnownOriginals, *, several: bool = False) -> str:
    """What happens if no original is chosen; "" if the vault has no original that can be read.

    Args:
        several: whether there are several suspects.
    """
    if not known.here:
        return ""
    which = "Each suspect" if several else "The suspect"
    said = Markup("{} is compared with <strong>{}</strong> of your vault: {}.").format(
        which, counted(len(known.here), "original"), _names(known.names)
    )
    if known.missing:
        said += Markup(" Not where a release was made from them, and so left out: {}.").format(_names(known.missing))
    return notices.note_html(said)


def compared_html(rows: Sequence[OriginalRow]) -> str:
    """The originals that a suspect was compared with, the likeliest first, folded; "" if there are none."""
    if not rows:
        return ""
    said = Markup("<p>Keys of these were tried, and the probabilities are corrected for all of them: {}.</p>").format(
        _names([row["name"] for row in rows if row["keys"]])
    )
    if unknown := open_originals(rows):
        said += Markup("<p>Keys of these were not tried: {}. Nothing is known about them.</p>").format(_names(unknown))
    found = [row["name"] for row in rows if row["verdict"] == FOUND]
    brief = Markup("marks found of {}").format(_names(found)) if found else Markup("no mark found")
    return str(
        Markup(
            '<section class="model-card" aria-label="Originals of the vault"><details class="model-fold"{open}>'
            '<summary><h2>{head}</h2><span class="model-brief">{brief}</span></summary>{said}<div class="table-scroll">'
            '<table class="model-table"><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>'
            "</details></section>"
        ).format(
            open=Markup("" if found else " open"),
            head=Markup("Compared with {}").format(counted(len(rows), "original")),
            brief=brief,
            said=said,
            columns=heads(COLUMNS),
            body=Markup("").join(map(_row, rows)),
        )
    )


def _row(row: OriginalRow) -> Markup:
    tried = Markup("{} tried").format(counted(row["keys"], "key")) if row["keys"] else Markup("no key tried")
    origin = row["lineage"] or "not compared"
    return Markup(
        '<tr><td title="{path}">{name}</td><td>{origin}<span class="beneath">{reason}</span></td>'
        '<td class="snug">{verdict}<span class="beneath">{tried}</span></td></tr>'
    ).format(
        path=row["path"],
        name=printable(row["name"], 80),
        origin=origin,
        reason=printable(row["reason"], 400) if not row["keys"] else "",
        verdict=", ".join([row["verdict"] or "not examined", *(printable(who, 80) for who in row["whose"])]),
        tried=tried,
    )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name, 80) for name in names[:_MOST_NAMED])
    left = len(names) - _MOST_NAMED
    return f"{shown} and {number(left)} more" if left > 0 else shown
