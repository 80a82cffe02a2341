"""A finding as one plain JSON document that holds every number the printed report shows.

The report is drawn from this document alone (`irwm.report.html`), so the JSON is the complete report, and
`irwm.report.reproduce` recomputes it. NaN becomes null; the JSON is strict. docs/report-schema.md names every field.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from irwm import Finding, IrwmError, Parameters, Reading
from irwm.canonical import strict_json
from irwm.errors import ParameterError, printable
from irwm.evidence.finding import COMBINATIONS, FOUND
from irwm.evidence.lineage import with_mark
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK, log10_risk
from irwm.report import error_rates as rates
from irwm.report import likelihood, schema, tracing, wording
from irwm.report.items import ItemDescription, KeyInfo, SelfTest, after_controls
from irwm.report.plots.detection import PLAUSIBLE_SHARES
from irwm.report.plots.summaries import LEVELS, ReadingSummary, similarity_section, summarise
from irwm.report.structure import fault, plain
from irwm.scheme.parameters import chance_of_counting
from irwm.scheme.probabilities import (
    fisher_floor_log10,
    log10_random_user,
    log10_wrong_user,
    success_probability,
)

SCHEMA, VERSION = "irwm-report", 22
# Particulars that differ from run to run of the same case.
TIMINGS = ("Seconds",)
# Most rows with NaN that are listed; their total number is given too.
ROWS_LISTED = 20
_Kind = TypeVar("_Kind")


class ReportError(IrwmError):
    """A report cannot be written or read; the message says why."""


def finding_document(
    finding: Finding,
    *,
    suspect: ItemDescription,
    original: ItemDescription,
    key_info: KeyInfo,
    case: Mapping[str, str],
    created_utc: str,
    tool_versions: Mapping[str, str],
    extra: Mapping[str, schema.Detail] | None = None,
    tokens: Mapping[int, str] | None = None,
    self_tests: Sequence[SelfTest] = (),
    disclose_rows: bool = True,
    traced: tracing.Traced | None = None,
    supporting: Sequence[Finding] = (),
    time_stamp: schema.TimeStamp | None = None,
    suspect_seen_utc: str | None = None,
    error_rates: rates.ErrorRates | None = None,
    keys_held: int | None = None,
) -> schema.Report:
    """Everything a report says, as strict JSON values.

    Args:
        finding: what `irwm.detect` returned.
        suspect, original: the items examined.
        key_info: whose key it is.
        case: label to value, printed in this order (reference, examiner, client, ...).
        created_utc: when the examination ended, ISO 8601 in UTC; given, because nothing here reads a clock.
        tool_versions: see `installed_versions`.
        extra: label to value, printed under "Further details" (device, duration, ...).
        tokens: token text by id.
        self_tests: controls run the same way; their absence is stated.
        disclose_rows: False withholds which rows carry the mark; anyone who knows them can remove it from other copies.
        traced: the result of tracing by noise, if any key has noise.
        supporting: readings of the same key in other ways, which accuse nobody on their own.
        time_stamp: the timestamp of the key's commitment, from `irwm.report.stamps.StampedCommitment.section`.
        suspect_seen_utc: since when the suspect is known to exist, ISO 8601 with its zone; None if that is unknown.
        error_rates: the readings of decoy keys and neutral models; their absence is stated.
        keys_held: how many keys of this original there were to try; None if they were not counted.

    Raises:
        ValueError: `suspect_seen_utc` is not ISO 8601 or has no zone.
        ParameterError: a finding of a screening, whose ranks no verifier can compute again.
    """
    marks = () if traced is None else traced.marks.values()
    if any(each.screened for each in (finding, *supporting, *marks)):
        raise ParameterError(
            "a screened finding cannot be reported",
            expected="ranks among all permutations of the key",
            found="ranks among the first of them",
            advice="Detect this key again without screening",
        )
    rows = finding.marked_rows.tolist() if disclose_rows else None
    found = None if traced is None else tracing.section(traced)
    computed = examination(finding, rows, tokens, found, supporting)
    controls: list[schema.SelfTest] = plain([asdict(test) for test in self_tests])
    computed["verdict"] = {**computed["verdict"], **after_controls(computed["verdict"], controls)}
    document: schema.Report = plain(
        {
            **opening((SCHEMA, VERSION), created_utc, case),
            "key": {"commitment": finding.commitment, **asdict(key_info)},
            "keys": {"tried": finding.keys_tried, "held": keys_held},
            "rows_disclosed": disclose_rows,
            **computed,
            "error_rates": None if error_rates is None else rates.section(error_rates, finding),
            "standing": likelihood.standing_section(time_stamp, suspect_seen_utc, computed),
            "time_stamp": time_stamp,
            "propositions": wording.propositions(computed, finding.commitment, key_info.recipient),
            "self_tests": controls,
            "items": {"suspect": asdict(suspect), "original": asdict(original)},
            "versions": dict(tool_versions),
            "extra": dict(extra or {}),
            "limitations": wording.limitations(
                finding, (suspect, original), self_tests, disclose_rows, found, error_rates is not None
            ),
            "reproduce": wording.reproduction(finding, suspect, original, found),
        }
    )
    return document


def opening(form: tuple[str, int], created_utc: str, case: Mapping[str, str]) -> dict[str, object]:
    """The first sections of a document, which is not signed yet."""
    return {
        "schema": {"name": form[0], "version": form[1]},
        "created_utc": created_utc,
        "status": {"signed": False, "court_ready": False, "note": wording.STATUS},
        "case": dict(case),
    }


def withheld(document: schema.Report) -> schema.Report:
    """The same report for outsiders: what `finding_document` gives with `disclose_rows` False."""

    def unnamed(reading: schema.Reading) -> schema.Reading:
        return {**reading, "positions": [{**each, "token": None, "text": None} for each in reading["positions"]]}

    if not document["rows_disclosed"]:
        return document
    return {
        **document,
        "rows_disclosed": False,
        "reading": unnamed(document["reading"]),
        "paper": document["paper"] and unnamed(document["paper"]),
        "limitations": [*document["limitations"], wording.ROWS_WITHHELD],
    }


def examination(
    finding: Finding,
    rows: Sequence[int] | None = None,
    tokens: Mapping[int, str] | None = None,
    found: schema.Tracing | None = None,
    supporting: Sequence[Finding] = (),
) -> schema.Examination:
    """The computed part, which must be the same when the examination is run again; `found` is the tracing's section."""
    p, reading = finding.parameters, finding.reading
    verdict = tracing.verdict(finding, found)
    computed: schema.Examination = plain(
        {
            "verdict": {
                **verdict,
                "mark": finding.verdict,
                "mark_reason": finding.reason,
                "count": reading.count,
                "present": reading.present,
                "positions": p.positions,
                "expected_by_chance": chance_of_counting(p) * reading.present,
                "required": p.required_positions,
                "rule_met": reading.passes,
            },
            "evaluation": {
                "log10_p": reading.log10_p,
                "log10_p_count": reading.log10_p_count,
                "log10_p_floor": fisher_floor_log10(reading.present, p.permutations),
                "log10_p_count_floor": _smallest_count_log10(p, reading.present),
                "smallest_rank": 1 / (1 + p.permutations),
                "combinations": COMBINATIONS,
                "keys_tried": finding.keys_tried,
                "tensors_read": finding.tensors_read,
                "maps": finding.maps,
                "forms": finding.forms,
                "places": finding.places,
                "log10_risk": log10_risk(reading, finding.comparisons),
                "found_at_log10_risk": FOUND_LOG10_RISK,
                "dismissed_above_log10_risk": DISMISSED_LOG10_RISK,
                **likelihood.likelihood(finding),
            },
            "place": finding.place,
            "reading": _reading(reading, p, rows, tokens),
            "elsewhere": None if finding.elsewhere is None else _reading(finding.elsewhere, p, None, None),
            "evidence": [asdict(each) | {"log10_risk": finding.log10_risk_of(each)} for each in finding.evidence],
            "paper": None if finding.paper is None else _reading(finding.paper, p, rows, tokens),
            "supporting": [_supporting(each) for each in supporting],
            "tracing": found,
            "odds": _odds(p, reading, finding.keys_tried * finding.tensors_read),
            "alignment": _alignment(finding),
            "lineage": asdict(with_mark(finding.lineage) if verdict["word"] == FOUND else finding.lineage),
            "parameters": p.to_dict(),
            "seed": finding.seed,
        }
    )
    return computed


def comparisons_of(evaluation: schema.Evaluation, tensors_read: int | None = None) -> int:
    """The factor of every p in a document's "evaluation": `Finding.comparisons`.

    Args:
        tensors_read: of a place; None for the place of the document's reading.
    """
    others = evaluation["keys_tried"] * evaluation["maps"] * evaluation["forms"] * evaluation["places"]
    return others * (evaluation["tensors_read"] if tensors_read is None else tensors_read)


def without_times(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without the values that depend on the clock: the same case, run again, gives the same bytes.

    Left out are `created_utc`, the particulars in `TIMINGS`, and `status.custody` of a signed report, which names the
    head of an audit log that grows with every run.
    """
    kept = {name: part for name, part in document.items() if name != "created_utc"}
    if "extra" in kept:
        kept["extra"] = {name: part for name, part in kept["extra"].items() if name not in TIMINGS}
    if "status" in kept:
        kept["status"] = {name: part for name, part in kept["status"].items() if name != "custody"}
    return kept


def _smallest_count_log10(p: Parameters, present: int) -> float:
    """log10 p if every position counts; 0 if the permutations are too few for any to count."""
    chance = chance_of_counting(p)
    return present * math.log10(chance) if chance else 0.0


def _reading(
    reading: Reading, parameters: Parameters, rows: Sequence[int] | None, tokens: Mapping[int, str] | None
) -> dict[str, object]:
    s = summarise(reading, parameters)
    positions = [
        {
            "position": i + 1,
            "token": None if rows is None else rows[i],
            "text": (tokens or {}).get(rows[i]) if rows is not None else None,
            "state": "ranked" if math.isfinite(s.ranks[i]) else "gone",
            "observed": s.observed[i],
            "rank": s.ranks[i],
            "counts": bool(s.ranks[i] < parameters.rank_threshold),
            "threshold": s.thresholds[i],
            "null_quantiles": s.bands[i],
        }
        for i in range(s.ranks.size)
    ]
    return {
        "statistic": s.statistic,
        "invariant": s.invariant,
        "by": reading.by,
        "count": s.count,
        "present": s.present,
        "gone": s.ranks.size - s.present,
        "rule_met": s.passes,
        "chance_of_counting": chance_of_counting(parameters),
        "log10_p": reading.log10_p,
        "log10_p_count": reading.log10_p_count,
        "null": {
            "shape": list(reading.null.shape),
            "sha256": null_digest(reading),
            "quantile_levels": list(LEVELS),
        },
        "positions": positions,
    }


def _supporting(finding: Finding) -> dict[str, object]:
    """Another reading of the same key as a few numbers without a verdict: it accuses nobody on its own."""
    reading = finding.reading
    return {
        "statistic": reading.statistic,
        "invariant": reading.invariant,
        "seed": finding.seed,
        "count": reading.count,
        "present": reading.present,
        "expected_by_chance": chance_of_counting(finding.parameters) * reading.present,
        "rule_met": reading.passes,
        "log10_risk": log10_risk(reading, finding.comparisons),
    }


def null_digest(reading: Reading) -> str:
    """Hex SHA-256 of the null: little-endian float64, row by row, every NaN with the bits of NumPy's nan."""
    null = np.array(reading.null, dtype="<f8", order="C")
    null[np.isnan(null)] = np.nan
    return hashlib.sha256(null.tobytes()).hexdigest()


def _odds(p: Parameters, reading: Reading, keys: int) -> dict[str, object]:
    l, rho, beta = p.positions, p.required_positions, p.rank_threshold
    share = reading.count / reading.present if reading.present else math.nan
    return {
        "observed_share": share,
        "success": [{"p": q, "probability": success_probability(l, rho, q)} for q in PLAUSIBLE_SHARES],
        "log10_random_user": log10_random_user(l, rho, beta),
        "keys": keys,
        "log10_wrong_user": log10_wrong_user(l, rho, beta, keys),
    }


def _alignment(finding: Finding) -> dict[str, object]:
    alignment = finding.alignment
    return similarity_section(alignment) | {
        "aligned": alignment.aligned,
        "exhausted": alignment.exhausted,
        "steps": [asdict(step) for step in alignment.steps],
        "embedding_tensor": alignment.embedding.name,
        "whole": alignment.whole,
        "rows_compared": int(alignment.cosines.size),
        "rows_of_original": int(alignment.rows.size),
        "rows_of_original_gone": alignment.lost,
        "marked_rows_gone": int((alignment.rows[finding.marked_rows] < 0).sum()),
        "row_scale": alignment.scale,
        "columns": int(alignment.columns.size),
        "columns_moved": int((alignment.columns != np.arange(alignment.columns.size)).sum()),
        "columns_mutual_share": alignment.uniqueness,
        "broken_rows": int(alignment.broken_rows.size),
        "first_broken_rows": alignment.broken_rows[:ROWS_LISTED],
    }


def reading_summary(reading: schema.Reading) -> ReadingSummary:
    """The summary for figures, from a document's "reading" or "paper"."""
    positions = reading["positions"]
    return ReadingSummary(
        statistic=reading["statistic"],
        invariant=reading["invariant"],
        count=reading["count"],
        present=reading["present"],
        passes=reading["rule_met"],
        permutations=reading["null"]["shape"][1],
        observed=column(positions, "observed"),
        ranks=column(positions, "rank"),
        bands=column(positions, "null_quantiles").reshape(len(positions), len(LEVELS)),
        thresholds=column(positions, "threshold"),
    )


def column(positions: Sequence[Mapping[str, object]], name: str) -> NDArray[np.float64]:
    """One value of each position, NaN for null."""
    return np.array([position[name] for position in positions], dtype=np.float64)


def to_json(document: Mapping[str, object]) -> bytes:
    """The document as strict JSON in ASCII, the same bytes for the same document."""
    return b"".join(json_pieces(document))


def json_pieces(document: Mapping[str, object]) -> Iterator[bytes]:
    """The bytes of `to_json`, piece by piece."""
    for piece in json.JSONEncoder(ensure_ascii=True, allow_nan=False, indent=1).iterencode(document):
        yield piece.encode("ascii")
    yield b"\n"


def from_json(data: bytes) -> schema.Report:
    """The document that `to_json` wrote.

    Raises:
        ReportError: not a report's document, of another version, or of another structure.
    """
    return read_document(
        data,
        (SCHEMA, VERSION),
        schema.Report,
        "this is not a report’s JSON file",
        "the report has a different schema",
        advice="Use the version of this program that wrote the report",
    )


def schema_of(data: bytes) -> str:
    """The name of the schema that these bytes state; "" if they state none. The kind's own reader checks the rest."""
    try:
        return str(strict_json(data)["schema"]["name"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def read_document(
    data: bytes,
    form: tuple[str, int],
    kind: type[_Kind],
    unreadable: str,
    other: str,
    advice: str = "",
) -> _Kind:
    """A document of one kind from its JSON.

    Args:
        form: name and version.
        kind: its structure, a type of `irwm.report.schema`.
        unreadable, other: the problems of bytes that are no document, and of a document of another kind.

    Raises:
        ReportError: not a document of this kind, version and structure.
    """
    try:
        document = strict_json(data)
        name, version = document["schema"]["name"], document["schema"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = printable(f"{type(error).__name__}: {error}", 120)
        raise ReportError(unreadable, found=what, advice=advice) from error
    if (name, version) != form or type(version) is not int:  # 12.0 equals 12
        found = f"{str(name)[:40]}, version {str(version)[:40]}"
        raise ReportError(other, expected=f"{form[0]}, version {form[1]}", found=found, advice=advice)
    if (wrong := fault(document, kind)) is not None:
        problem = f"{wrong.place} does not have the required form"
        raise ReportError(problem, expected=wrong.expected, found=wrong.found, advice=advice)
    checked: _Kind = document
    return checked
