"""A lab (attacks on one's own release) as a versioned JSON document, and as a page drawn from that document alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict

import plotly.graph_objects as go
from markupsafe import Markup

from irwm import Key
from irwm.report import schema
from irwm.report.document import opening, read_document
from irwm.report.html import page
from irwm.report.items import ItemDescription, KeyInfo
from irwm.report.lab_rows import (
    MODES,
    USABLE,
    WAY_WORDS,
    headline,
    is_usable,
    largest_difference,
    lost_tokens,
    number_of,
    remarks,
    verdict_way,
    word,
)
from irwm.report.numbers import decimal, power_of_ten
from irwm.report.plots import lab as lab_plots
from irwm.report.structure import plain

SCHEMA, VERSION = "irwm-lab", 8
NAME = "lab"
LAB_JSON, LAB_HTML = f"{NAME}.json", f"{NAME}.html"
LIMITATIONS = (
    "Each attack was tried once, with the seed stated here and as implemented in this program. An attacker may carry "
    "it out better, for longer, or in a different order.",
    "Perplexity on one text shows whether a model still predicts that text, not whether it is useful for other tasks.",
    "Attacks that include training use a separate text and few steps. Distillation and training from scratch are not "
    "among the attacks, because no mark in the weights survives them.",
    "The mark is read in several ways for comparison, but a verdict rests on the first of them alone.",
)
REHEARSAL = (
    "This was a rehearsal. The mark is a trial mark whose secret is public. It was inserted into a copy of the model "
    "only for these attacks. Neither the copy nor the key is kept, and neither protects any model."
)
NOT_AGAIN = "this command does not repeat a lab’s attacks; run the lab again with the same release, key, text and seed"


def lab_document(
    *,
    original: ItemDescription,
    rehearsal: bool,
    trials: int,
    settings: schema.LabSettings,
    case: Mapping[str, str],
    created_utc: str,
    tool_versions: Mapping[str, str],
    extra: Mapping[str, schema.Detail],
) -> schema.Lab:
    """The document of a lab that has just begun; `mark_section`s are added to "marks", and trials to their "rows".

    Args:
        original: the unmarked model.
        rehearsal: whether the marks are trial marks.
        trials: the number of rows at the end.
        settings: text, tokens and seed.
        case, created_utc, tool_versions, extra: as for `irwm.report.finding_document`.
    """
    document: schema.Lab = plain(
        {
            **opening((SCHEMA, VERSION), created_utc, case),
            "rehearsal": rehearsal,
            "complete": False,
            "trials": trials,
            "settings": dict(settings),
            "original": asdict(original),
            "marks": [],
            "versions": dict(tool_versions),
            "extra": dict(extra),
            "limitations": LIMITATIONS,
        }
    )
    return document


def mark_section(mode: str, key: Key, release: ItemDescription, unmeasured: str) -> schema.LabMark:
    """One marked copy under attack.

    Args:
        mode: one of `MODES`.
        unmeasured: why it cannot be run; "" if it can.
    """
    section: schema.LabMark = plain(
        {
            "mode": mode,
            "key": {"commitment": key.commitment, **asdict(KeyInfo.of(key))},
            "parameters": key.parameters.to_dict(),
            "release": asdict(release),
            "unmeasured": unmeasured,
            "rows": [],
        }
    )
    return section


def from_json(data: bytes) -> schema.Lab:
    """The document that `to_json` wrote.

    Raises:
        ReportError: not a lab's document, of another version, or of another structure.
    """
    return read_document(
        data,
        (SCHEMA, VERSION),
        schema.Lab,
        "this is not a Lab report’s JSON file",
        "the Lab report has a different schema",
    )


def figures(document: schema.Lab) -> dict[str, go.Figure]:
    """The page's figures by element id: for each mark all trials, then a curve for each attack of several strengths."""
    found: dict[str, go.Figure] = {}
    for number, mark in enumerate(document["marks"], 1):
        found[f"trials-{number}"] = lab_plots.trials(mark)
        for attack in lab_plots.curved(mark["rows"]):
            found[f"curve-{number}-{attack}"] = lab_plots.curve(mark, attack)
    return found


def lab_html(document: schema.Lab, json_name: str = "") -> str:
    """The document as one self-contained file.

    Args:
        json_name: name of its JSON file, printed with its SHA-256.
    """
    drawn = {name: json.loads(fig.to_json()) for name, fig in figures(document).items()}
    return page(
        "lab.html.j2",
        document,
        json_name,
        drawn,
        headline=headline(document),
        remarks=remarks(document),
        word=word(document),
        rehearsal=REHEARSAL,
        modes=MODES,
        ways=list(WAY_WORDS.items()),
        usable=USABLE,
        is_usable=is_usable,
        rested=verdict_way,
        changed=_changed,
        nats=_nats,
        largest=lambda row: Markup(power_of_ten(largest_difference(row))),
        lost_tokens=lost_tokens,
        figures={name: spec["layout"]["height"] for name, spec in drawn.items()},
    )


def _changed(change: schema.Extended) -> str:
    """A change of perplexity in few characters; the JSON has it in full."""
    value = number_of(change)
    if math.isinf(value):
        return "too large to measure"
    if abs(value) < 5e-6:
        return "0%"
    return f"{100 * value:+.3g}%".replace("-", "\u2212") if value < 9 else f"× {decimal(1 + value, 0)}"


def _nats(kl: schema.Extended) -> str:
    value = number_of(kl)
    if math.isinf(value):
        return "infinite"
    return "under 0.0001" if 0 < value < 1e-4 else f"{value:.3g}"
