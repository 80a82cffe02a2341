"""Checks whether a lab's numbers follow from one another. `STATED` lists the inputs, such as measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator

import irwm
from irwm import Parameters
from irwm.evidence.detection import WAYS
from irwm.evidence.finding import COMBINATIONS, FORMS, FOUND, INCONCLUSIVE, MAPS, NOT_FOUND
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from irwm.report import schema, verify_sentences
from irwm.report.claims import (
    CASE,
    CUSTODY,
    PARTICULARS,
    SHOWN_OF_SIGNATURE,
    SIGNER,
    VERSIONS,
    Claim,
    contradicted,
    digest,
    each,
    equal,
    item,
    must,
    within,
)
from irwm.report.lab import LIMITATIONS, SCHEMA, VERSION
from irwm.report.lab_rows import ATTACK, CONTROL, MANY, NOT_AN_ATTACK, SINGLE, TOP, number_of
from irwm.report.reading_claims import counted
from irwm.report.reproduction import Difference
from irwm.report.tracing import MARK, TRACING
from irwm.report.value_states import Stated
from irwm.scheme.parameters import chance_of_counting
from irwm.scheme.probabilities import rademacher_tail_log10
from irwm.tracing.recipients import RISK

_AGAIN = "only rerunning the same trials can show this"
# The inputs of a lab's report; all other values follow from them.
STATED = (
    CASE,
    PARTICULARS,
    VERSIONS,
    SIGNER,
    CUSTODY,
    Stated("the original’s name, files and structure", _AGAIN, ("original*",), carries=True),
    Stated(
        "the marked copies’ names, files and structure",
        _AGAIN,
        ("marks[].release*",),
        carries=True,
    ),
    Stated(
        "the keys and the settings of their marks",
        "only the opened keys can show this",
        ("marks[].key*", "marks[].parameters*", "rehearsal"),
        carries=True,
    ),
    Stated(
        "the planned attacks, their text and their seed",
        "there is only the signer’s word for this",
        ("settings*", "trials", "marks[].unmeasured*"),
        carries=True,
    ),
    Stated(
        "the attacked copies, and their readings",
        _AGAIN,
        ("marks[].rows*",),
        carries=True,
    ),
)
SHOWN = SHOWN_OF_SIGNATURE


def contradictions(document: schema.Lab, assigned: set[str] | None = None) -> list[Difference]:
    """The values that do not follow from the rest of a lab's document.

    Raises:
        ReportError: a value cannot be computed from the document's.
    """
    return contradicted(claims(document), "the numbers of the Lab report cannot be computed", assigned)


def claims(document: schema.Lab) -> Iterator[Claim]:
    """The values of a lab's document that follow from the rest of it, recorded and expected."""
    yield from verify_sentences.frame(document, SCHEMA, VERSION, LIMITATIONS)
    yield from item("original", document["original"])
    rows = [len(mark["rows"]) for mark in document["marks"]]
    yield from within("trials", document["trials"], 1)
    yield from must(sum(rows) <= document["trials"], "trials", document["trials"], f"at least {sum(rows)}")
    yield "complete", document["complete"], sum(rows) == document["trials"]
    settings = document["settings"]
    yield from within("settings.tokens", settings["tokens"], 1)
    yield from within("settings.text.characters", settings["text"]["characters"], 1)
    yield from digest("settings.text.sha256", settings["text"]["sha256"])
    for i, mark in enumerate(document["marks"]):
        yield from _mark(f"marks[{i}]", mark, document)


def _mark(where: str, mark: schema.LabMark, document: schema.Lab) -> Iterator[Claim]:
    original, key, p = document["original"], mark["key"], Parameters.from_dict(mark["parameters"])
    yield f"{where}.mode", mark["mode"], MANY if key["recipient"] else SINGLE
    yield from digest(f"{where}.key.commitment", key["commitment"])
    yield f"{where}.key.model_fingerprint", key["model_fingerprint"], original["fingerprint"]
    if not isinstance(p.scale, str):
        yield f"{where}.key.scale", key["scale"], p.scale
    yield from must(key["scale"] > 0.0, f"{where}.key.scale", key["scale"], "above 0")
    yield from item(f"{where}.release", mark["release"])
    yield from equal(f"{where}.release", mark["release"], original, "vocab_size", "hidden_size")
    tried = [(row["attack"], row["value"]) for row in mark["rows"]]
    yield from must(
        len(set(tried)) == len(tried),
        f"{where}.rows",
        tried,
        "a list in which each attack occurs only once at each strength",
    )
    utilities = [row["utility"] for row in mark["rows"] if row["utility"] is not None]
    before = [each["perplexity_reference"] for each in utilities if _whole_text(each)]
    for i, row in enumerate(mark["rows"]):
        at = f"{where}.rows[{i}]"
        yield from _named(at, row)
        yield from _read(at, row, p)
        utility = row["utility"]
        if utility is not None:
            yield from _utility(f"{at}.utility", utility, document["settings"]["tokens"])
            if _whole_text(utility):
                known = min(before, key=lambda each: math.inf if each is None else number_of(each))
                yield f"{at}.utility.perplexity_reference", utility["perplexity_reference"], known
        if row["proof"] is not None:
            yield from _proof(f"{at}.proof", row["proof"])


def _whole_text(utility: schema.Utility) -> bool:
    """Whether a perplexity is compared with the marked copy's on the whole text."""
    return utility["perplexity"] is not None and utility["compared"] == utility["tokens"]


def _named(where: str, row: schema.LabRow) -> Iterator[Claim]:
    """An attack has the words of the catalogue; two rows are not attacked."""
    attack = irwm.attacks.catalogue.ATTACKS.get(row["attack"])
    if attack is None:
        known = {name: (role, label) for role, (name, label) in NOT_AN_ATTACK.items()}
        role, label = known.get(row["attack"], ("that of an attack in the catalogue", ""))
        expected: tuple[object, ...] = (role, label, "", "", "", False)
        yield f"{where}.value", row["value"], 0
    else:
        strength = attack.label_of(row["value"])
        expected = (ATTACK, attack.label, strength, attack.group, attack.symbol, attack.keeps_function)
        yield from must(attack.takes(row["value"]), f"{where}.value", row["value"], f"one of {attack.offer}")
    names = ("role", "label", "strength", "group", "symbol", "keeps_function")
    yield from equal(where, row, dict(zip(names, expected, strict=True)))
    yield from within(f"{where}.seconds", row["seconds"])


def _read(where: str, row: schema.LabRow, p: Parameters) -> Iterator[Claim]:
    """The reading in each way, and the row's verdict, which rests on the first reading or on the noise."""
    if not row["ways"]:
        yield from equal(where, row, dict.fromkeys(("verdict", "log10_risk", "traced", "utility", "proof")))
        why = "the reason why the attack was not carried out"
        yield from must(bool(row["reason"]), f"{where}.reason", row["reason"], why)
        yield f"{where}.rests_on", row["rests_on"], MARK
        return
    ways = [(way["statistic"], way["invariant"]) for way in row["ways"]]
    yield from each(f"{where}.ways", [list(way) for way in ways], [list(way) for way in WAYS])
    for i, way in enumerate(row["ways"]):
        yield from _way(f"{where}.ways[{i}]", way, p)
        if row["role"] == CONTROL:  # the original has every row
            yield f"{where}.ways[{i}].present", way["present"], p.positions
    first, named = row["ways"][0], False
    yield f"{where}.log10_risk", row["log10_risk"], first["log10_risk"]
    traced = row["traced"]
    if traced is None or not p.noise_coordinates:
        yield f"{where}.traced", traced, "a result for the copy’s own recipient" if p.noise_coordinates else None
    else:
        z = math.nan if traced["z"] is None else traced["z"]
        factor = math.log10(traced["tensors_read"] * len(MAPS) * FORMS * traced["places"])
        yield from _places(f"{where}.traced", traced, p)
        named = float(rademacher_tail_log10(z)) + factor <= math.log10(RISK)
        yield f"{where}.traced.named", traced["named"], named
    # If a suspect cannot be judged, its noise gives no verdict either.
    if named and (first["verdict"] != INCONCLUSIVE or row["verdict"] == FOUND):
        yield f"{where}.verdict", row["verdict"], FOUND
    else:
        yield f"{where}.verdict", row["verdict"], first["verdict"]
    by_noise = row["verdict"] == FOUND and first["verdict"] != FOUND
    yield f"{where}.rests_on", row["rests_on"], TRACING if by_noise else MARK


def _way(where: str, way: schema.LabReading, p: Parameters) -> Iterator[Claim]:
    count, present = way["count"], way["present"]
    yield from counted(where, way, p)
    yield f"{where}.share", way["share"], count / present if present else None
    yield from _top(f"{where}.top", way, p)
    yield f"{where}.rule_met", way["rule_met"], count >= p.required_positions
    best = min(way["log10_p"], way["log10_p_count"])
    yield from _places(where, way, p)
    forms = FORMS if p.noise_coordinates else 1
    risk = min(0.0, best + math.log10(COMBINATIONS * way["tensors_read"] * len(MAPS) * forms * way["places"]))
    yield f"{where}.log10_risk", way["log10_risk"], risk
    word = way["verdict"]
    if word == FOUND or risk <= FOUND_LOG10_RISK:
        yield from must(
            risk <= FOUND_LOG10_RISK, f"{where}.verdict", word, f"other than “found” at a probability of 10^{risk:.1f}"
        )
        yield from must(
            word != NOT_FOUND, f"{where}.verdict", word, f"other than “not found” at a probability of 10^{risk:.1f}"
        )
    if word == NOT_FOUND:
        clear = risk > DISMISSED_LOG10_RISK and not way["rule_met"]
        yield from must(clear, f"{where}.verdict", word, f"“inconclusive” at a probability of 10^{risk:.1f}")


def _top(where: str, way: schema.LabReading, p: Parameters) -> Iterator[Claim]:
    """Positions below thresholds: the more, the higher the threshold, and those below β among them. With few orders no
    rank can be below a small threshold."""
    beta = p.rank_threshold
    yield from must(len(way["top"]) == len(TOP), where, way["top"], f"a list of length {len(TOP)}")
    below = sorted([*zip(TOP, way["top"], strict=True), (beta, way["count"])])
    counts = [count for _, count in below]
    words = f"counts that agree with the {way['count']} of {way['present']} below {beta}"
    same = all(count == way["count"] for level, count in below if level == beta)
    fits = counts == sorted(counts) and counts[0] >= 0 and counts[-1] <= way["present"] and same
    for i, count in enumerate(way["top"]):
        possible = count == 0 or chance_of_counting(p, TOP[i]) > 0.0
        yield from must(fits and possible, f"{where}[{i}]", count, words)


def _places(where: str, read: schema.LabReading | schema.LabTraced, p: Parameters) -> Iterator[Claim]:
    """The number of tensors and places that were read."""
    yield from within(f"{where}.tensors_read", read["tensors_read"], 1)
    yield from within(f"{where}.places", read["places"], 1, len(p.places))


def _utility(where: str, found: schema.Utility, most: int) -> Iterator[Claim]:
    """The change of perplexity, and numbers in their possible range."""
    yield from within(f"{where}.tokens", found["tokens"], 0, most)
    yield from within(f"{where}.compared", found["compared"], 0, found["tokens"])
    if found["perplexity"] is None or found["perplexity_reference"] is None:
        yield from equal(where, found, dict.fromkeys(("perplexity", "perplexity_reference", "change", "change_error")))
    else:
        before, after = number_of(found["perplexity_reference"]), number_of(found["perplexity"])
        change = after / before - 1
        recorded = None if found["change"] is None else number_of(found["change"])
        yield f"{where}.change", recorded, change if math.isfinite(change) else math.inf
    for name, value, low, high in (
        ("kl", found["kl"], 0.0, math.inf),
        ("top1", found["top1"], 0.0, 1.0),
        ("similarity", found["similarity"], -1.001, 1.001),
        ("change_error", found["change_error"], 0.0, math.inf),
        ("kl_error", found["kl_error"], 0.0, math.inf),
    ):
        sound = value is None or low <= number_of(value) <= high
        yield from must(sound, f"{where}.{name}", value, f"from {low} to {high}")


def _proof(where: str, proof: schema.Proof) -> Iterator[Claim]:
    """Two models compute the same function only if no difference is larger than rounding allows."""
    small = number_of(proof["largest"]) <= number_of(proof["tolerance"])
    small = small and number_of(proof["typical"]) <= number_of(proof["typical_tolerance"])
    yield from must(
        small or not proof["same"], f"{where}.same", proof["same"], "False, because the differences are too large"
    )
    for name, value in proof.items():
        if isinstance(value, (int, float)):  # the others are words
            yield from must(value >= 0.0, f"{where}.{name}", value, "at least 0")
