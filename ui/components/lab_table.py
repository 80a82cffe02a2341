"""A lab's rows as a table, and their result in one or two sentences. All functions are pure."""

from __future__ import annotations

import math

from markupsafe import Markup

from irwm.errors import printable
from irwm.report import schema
from irwm.report.lab import REHEARSAL
from irwm.report.lab_rows import (
    ATTACK,
    HELD,
    LOST,
    MODES,
    WAY_WORDS,
    all_rows,
    change_of,
    headline,
    is_usable,
    largest_difference,
    lost_tokens,
    number_of,
    remarks,
    word,
)
from irwm.report.numbers import decimal, number, power_html, power_text, why_capped
from irwm.report.plots.lab import change_text
from ui.components.icons import icon
from ui.components.markup import beneath, each, paragraphs, verdict_word

_STATES = {HELD: "found", LOST: "fault"}


def summary_html(document: schema.Lab, *, running: bool) -> str:
    """The results of a lab so far."""
    done, total = len(all_rows(document)), document["trials"]
    said = remarks(document)
    if not document["complete"]:
        how = "The job is still running." if running else "The job ended early. Press Continue to run the rest."
        said.insert(0, f"Rows done: {done} of {total}. {how}")
    if document["rehearsal"]:
        said.append(REHEARSAL)
    state = word(document)
    sign = icon(_STATES[state]) if state in _STATES and (document["complete"] or state == LOST) else ""
    kind = " notice-fault" if state == LOST else ""
    return str(
        Markup(
            '<section class="notice lab-summary{}" aria-label="Outcome">{}<div><h2>{}</h2>{}</div></section>'
        ).format(kind, sign, headline(document), paragraphs(said))
    )


def table_html(document: schema.Lab) -> str:
    """Every row, the marks one below the other."""
    parts = [_mark(mark, several=len(document["marks"]) > 1) for mark in document["marks"] if mark["rows"]]
    why = why_capped(*parts)
    return str(Markup("").join([*parts, Markup('<p class="note">{}</p>').format(why) if why else ""]))


def _mark(mark: schema.LabMark, *, several: bool) -> Markup:
    noise = bool(mark["parameters"]["noise_coordinates"])
    beta = mark["parameters"]["rank_threshold"]
    ways = each('<th scope="col" class="number">{}</th>', ((head,) for head, _ in WAY_WORDS.values()))
    heads = Markup(
        '<tr><th scope="col" rowspan="2">Attack</th><th scope="col" rowspan="2">Mark</th>'
        '<th scope="colgroup" colspan="{}" class="over">Positions that count, of those present (by chance: {:g}%)</th>'
        '<th scope="col" rowspan="2" class="number">Probability by chance (p)</th>{}'
        '<th scope="col" rowspan="2">Perplexity</th><th scope="col" rowspan="2">Same token (KL)</th></tr><tr>{}</tr>'
    ).format(len(WAY_WORDS), 100 * beta, Markup('<th scope="col" rowspan="2">Recipient</th>') if noise else "", ways)
    columns = 5 + len(WAY_WORDS) + noise
    rows = Markup("").join(_row(row, noise, columns) for row in mark["rows"])
    title = Markup("<h3>{}</h3>").format(MODES[mark["mode"]]) if several else ""
    why = f"The model was not measured: {printable(mark['unmeasured'], 400)}" if mark["unmeasured"] else ""
    note = Markup('<p class="note">{}</p>').format(why) if why else ""
    return Markup(
        '<section class="lab-mark">{0}{1}<div class="lab-scroll" tabindex="0" role="region" aria-label="{2}">'
        '<table class="case-table lab-table" aria-label="{2}">'
        "<thead>{3}</thead><tbody>{4}</tbody></table></div></section>"
    ).format(title, note, f"Attacks: {MODES[mark['mode']]}", heads, rows)


def _row(row: schema.LabRow, noise: bool, columns: int) -> Markup:
    strength = row["strength"] if row["strength"] not in ("", "once") else ""
    name = Markup('<th scope="row">{}{}</th>').format(
        printable(row["label"], 80), beneath(strength + _proof(row, bool(strength)))
    )
    kind = Markup(' class="lab-aside"') if row["role"] != ATTACK else ""
    if not row["ways"]:
        why = Markup('<td colspan="{}"><span class="quiet">Not run: {}</span></td>').format(
            columns - 1, printable(row["reason"].rstrip("."), 600) + "."
        )
        return Markup("<tr{}>{}{}</tr>").format(kind, name, why)
    counts = each(
        '<td class="number">{}</td>',
        ((f"{way['count']} / {way['present']}" if way["present"] else "–",) for way in row["ways"]),
    )
    rested = row["ways"][0]
    odds = Markup('<td class="number">{}</td>').format(power_html(rested["log10_risk"]) if rested["present"] else "–")
    found, recipient = verdict_word(row["verdict"] or rested["verdict"]), _recipient(row) if noise else ""
    return Markup("<tr{}>{}<td>{}</td>{}{}{}{}</tr>").format(kind, name, found, counts, odds, recipient, _utility(row))


def _proof(row: schema.LabRow, more: bool) -> str:
    """Whether the model computes the same, where the attack claims it."""
    lead = ", " if more else ""
    if row["proof"] is not None:
        largest = f"largest logit difference {power_text(largest_difference(row))}"
        left = " for the remaining tokens" if lost_tokens(row) else ""
        said = f"same function proved{left}" if row["proof"]["same"] else f"not the same function{left}"
        return f"{lead}{said} ({largest})"
    return f"{lead}same function not proved" if row["keeps_function"] and row["ways"] else ""


def _recipient(row: schema.LabRow) -> Markup:
    traced = row["traced"]
    if traced is None:
        return Markup("<td>–</td>")
    z = "" if traced["z"] is None else beneath(f"z = {decimal(traced['z'], 1)}")
    return Markup("<td>{}{}</td>").format("Named" if traced["named"] else "Not named", z)


def _utility(row: schema.LabRow) -> Markup:
    u, change = row["utility"], change_of(row)
    if u is None:
        return Markup('<td colspan="2">Not measured{}</td>').format(beneath(printable(row["reason"], 200)))
    same = Markup("–")
    if u["top1"] is not None:
        kl = "" if u["kl"] is None else _nats(number_of(u["kl"]))
        same = Markup("{}{}").format(f"{100 * u['top1']:.1f}\u00a0%", beneath(kl))
    if change is None:
        alike = "" if u["similarity"] is None else f"hidden-state similarity {number_of(u['similarity']):.4f}"
        return Markup("<td>–{}</td><td>{}</td>").format(beneath(alike or printable(u["reason"], 200)), same)
    value = math.inf if u["perplexity"] is None else number_of(u["perplexity"])
    text = "too large to measure" if math.isinf(value) else f"{value:.2f}" if value < 1000 else _large(value)
    ruined = Markup('<span class="lab-ruined">ruined</span>') if not is_usable(row) else ""
    return Markup('<td class="lab-utility">{}{}{}</td><td>{}</td>').format(
        text, beneath(change_text(change)), ruined, same
    )


def _large(value: float) -> str:
    """A large number in readable form."""
    return "over a million" if value > 1e6 else number(round(value))


def _nats(value: float) -> str:
    return "under 0.0001 nats" if 0 < value < 1e-4 else f"{value:.2g} nats"
