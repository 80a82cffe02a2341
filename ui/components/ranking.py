"""The recipients of a tracing as a table: who is named, how strongly, and the result of the published rule."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from irwm.report import schema, tracing_words
from irwm.report.numbers import decimal, number, power_html
from irwm.report.tracing import shown
from ui.components.icons import icon
from ui.components.markup import heads, own


def _unseen(text: str) -> Markup:
    """A heading for screen readers only; the column is clear without it to users who see the table."""
    return Markup('<span class="unseen">{}</span>').format(text)


COLUMNS = (
    (_unseen("Place"), "number"),
    ("Recipient", ""),
    (_unseen("Named"), ""),
    ("z", "number"),
    ("Probability, corrected for all keys", "number"),
    ("Weight", "number"),
    ("Published count", "number"),
    ("Rank rule", ""),
)


def ranking_html(document: schema.Report) -> str:
    """The section as HTML; "" if no recipient was traced."""
    found = document["tracing"]
    if found is None:
        return ""
    rows = shown(found)
    accuses = tracing_words.accuses(document)
    body = Markup("").join(_row(row, accuses) for row in rows)
    left = found["recipients"] - len(rows)
    more = (
        Markup("<p>Recipients not shown because their z is smaller: {}. None of them is named.</p>").format(
            number(left)
        )
        if left
        else ""
    )
    return str(
        Markup(
            '<section class="ranking" aria-label="Recipients"><h2>Recipients</h2><p>{risk}</p>'
            '<div class="ranking-rows" tabindex="0" role="region" aria-label="Recipients by rank">'
            "<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
            "<p>{rule} {estimate}</p></section>"
        ).format(
            risk=_risk(found, accuses),
            head=heads(COLUMNS),
            body=body,
            more=more,
            rule=tracing_words.read_by_rule(found),
            estimate=tracing_words.ESTIMATE if found["named"] and not tracing_words.is_of_text(found) else "",
        )
    )


def _risk(found: schema.Tracing, accuses: bool) -> str:
    needed = decimal(found["z_needed"], 2)
    if not found["named"]:
        return f"No one is named, because no recipient reached z = {needed}. {tracing_words.COMPARED}"
    if not accuses:
        return f"{tracing_words.points_to(found['named']).capitalize()}."
    return (
        f"A recipient is named if z is at least {needed}. With this threshold, the chance of naming anyone whose copy "
        "was not used is at most one in a million across all keys."
    )


def _row(row: schema.Recipient, accuses: bool) -> Markup:
    mark = row["mark"]
    count = f"{mark['paper_count']} of {mark['paper_present']}" if mark and mark["paper_count"] is not None else "–"
    named: Any = "indicated" if row["named"] else "not named"
    if row["named"] and accuses:
        named = Markup('<span class="named">{}named</span>').format(icon("done"))
    whose = own(row["recipient"] or row["owner"])
    return Markup(
        '<tr class="{}"><td class="number">{}</td><th scope="row" title="Key {}">{}</th><td>{}</td>'
        '<td class="number">{}</td><td class="number">{}</td><td class="number">{}</td><td class="number">{}</td>'
        "<td>{}</td></tr>"
    ).format(
        "is-named" if row["named"] and accuses else "",
        number(row["place"]),
        row["commitment"][:16],
        whose,
        named,
        _number(row["z"], 1),
        power_html(row["log10_risk"]),
        _number(row["share"], 2),
        count,
        mark["verdict"] if mark else "not read",
    )


def _number(value: float | None, places: int) -> str:
    return "–" if value is None or math.isnan(value) else decimal(value, places)


# In addition to style.css, which several pages share.
CSS = """
.ranking { margin-top: 28px; padding-top: 28px; border-top: 1px solid var(--irwm-line); color: var(--irwm-ink); }
.ranking h2 { font-size: 22px; line-height: 30px; font-weight: 600; margin: 0 0 12px; }
.ranking p { margin: 0 0 12px; line-height: 24px; max-width: 72ch; }
.ranking-rows { max-height: 406px; overflow: auto; margin-bottom: 16px; border-bottom: 1px solid var(--irwm-line); }
.ranking table { width: 100%; border: 0; border-collapse: collapse; font-size: 14px; line-height: 20px;
  font-variant-numeric: tabular-nums; margin: 0; }
.ranking tr { border: 0; background: none; }
.ranking th, .ranking td { text-align: left; vertical-align: baseline; padding: 7px 20px 7px 0; font-weight: 400;
  border: 0; border-bottom: 1px solid var(--irwm-line); background: none; color: var(--irwm-quiet); }
.ranking thead th { position: sticky; top: 0; background: var(--irwm-paper); font-size: 13px;
  border-bottom: 1px solid var(--irwm-edge); }
.ranking tbody th { color: var(--irwm-ink); overflow-wrap: anywhere; min-width: 144px; }
.ranking .number { text-align: right; white-space: nowrap; }
.ranking .is-named th, .ranking .is-named td { color: var(--irwm-ink); }
.ranking .is-named th { font-weight: 600; }
.ranking .named { font-weight: 600; color: var(--irwm-accent); white-space: nowrap; }
.ranking .named .icon { width: 16px; height: 16px; margin-right: 5px; vertical-align: -3px; }
"""
