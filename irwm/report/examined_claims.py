"""Claims about the items examined and the controls of a document: items, alignment, lineage, controls, decoys.

Most of these values were measured on the models. The claims here say what one of them implies about another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

import numpy as np

from irwm import Parameters
from irwm.checkpoint.served_model import ANSWERS
from irwm.checkpoint.served_source import GENERATED, TEXT_ALONE, VECTORS, utc_text
from irwm.errors import printable
from irwm.evidence import lineage as lineages
from irwm.evidence.decoys import BANK_ROWS, MOST_PERMUTATIONS, MOST_POSITIONS, NUMBER, PER_MAP, clopper_pearson
from irwm.evidence.examination import BORROWED
from irwm.evidence.finding import FOUND, INCONCLUSIVE
from irwm.evidence.unrelated import Agreement, agreement_of, kept_models
from irwm.report import schema, tracing
from irwm.report.claims import Claim, at_least, digest, each, equal, item, must, one_of, present_and_count, within
from irwm.report.document import ROWS_LISTED
from irwm.report.error_rates import LEVELS
from irwm.report.items import answers_of, control_of_neutral
from irwm.report.plots.summaries import BINS, DECOY_BIN
from irwm.report.recorded import finding_of, neurons_of
from irwm.report.structure import LONGEST_TEXT
from irwm.report.tracing_claims import allowed
from irwm.report.wording import is_generated, measured
from irwm.scheme.parameters import EMBEDDING, PLACES

_SLACK = 1e-9
# Ten times as many decoys as a task ranks.
MOST_MAPS = 10 * NUMBER // PER_MAP


def items(document: schema.Report) -> Iterator[Claim]:
    """Suspect and original; the original is the one that the key was made for and that the rows were aligned with."""
    found = document["items"]
    yield from item("items.suspect", found["suspect"], answers=True)
    yield from item("items.original", found["original"])
    original = found["original"]
    if found["suspect"]["answers"] is not None:
        yield from answers(found["suspect"], found["suspect"]["answers"], original)
        if is_generated(found["suspect"]["answers"]):
            yield "rows_disclosed", document["rows_disclosed"], False
    yield "key.model_fingerprint", document["key"]["model_fingerprint"], original["fingerprint"]
    scale = document["parameters"]["scale"]
    if not isinstance(scale, str):
        yield "key.scale", document["key"]["scale"], scale
    yield from digest("key.commitment", document["key"]["commitment"])
    yield from must(document["key"]["scale"] > 0.0, "key.scale", document["key"]["scale"], "above 0")


def answers(suspect: schema.Item, heard: schema.Answers, original: schema.Item) -> Iterator[Claim]:
    """A suspect that only answers: its name is that of the model and the endpoint, its rows are the tokens in its
    answers, and they are enough for a head as wide as the original's."""
    where, width = "items.suspect", original["hidden_size"]
    generated = is_generated(heard)
    yield f"{where}.hidden_size", suspect["hidden_size"], width
    yield f"{where}.vocab_size", suspect["vocab_size"], original["vocab_size"] if generated else heard["tokens"]
    yield from equal(where, suspect, {"family": ANSWERS, "dtype": ANSWERS, "tied": False})
    yield from equal(where, suspect, {"heads": 0, "kv_heads": 0, "head_dim": 0})
    yield from must(len(suspect["files"]) <= 1, f"{where}.files", len(suspect["files"]), "at most one answers file")
    if generated:
        # A response may hold several answers.
        yield from at_least(1, f"{where}.answers", heard, "given", "used")
        yield from at_least(0, f"{where}.answers", heard, "tokens")
        yield f"{where}.answers.directions", heard["directions"], None
        text = heard["form"] == TEXT_ALONE or heard["recording"] is not None
        yield from must(text, f"{where}.answers.form", heard["form"], f"“{TEXT_ALONE}” without a recording")
    else:
        yield from within(f"{where}.answers.used", heard["used"], width + 1)
        yield from within(f"{where}.answers.given", heard["given"], heard["used"])
        yield from within(f"{where}.answers.tokens", heard["tokens"], 2 * width, original["vocab_size"])
    if heard["directions"] is not None:
        yield from within(f"{where}.answers.directions", heard["directions"], 1, heard["used"])
    who = heard["recording"]
    if who is None:
        return
    yield f"{where}.name", suspect["name"], printable(answers_of(who["model"], who["endpoint"]), LONGEST_TEXT)
    at = f"{where}.answers.recording"
    yield f"{where}.answers.form", heard["form"], who["scale"] if who["scale"] in GENERATED else VECTORS
    yield from at_least(0, at, who, "prompt_seed")
    yield from at_least(1, at, who, "requests", "prompts")
    yield from digest(f"{at}.requests_sha256", who["requests_sha256"])
    yield from digest(f"{at}.responses_sha256", who["responses_sha256"])
    began, ended = datetime.fromisoformat(who["began"]), datetime.fromisoformat(who["ended"])
    yield from equal(at, who, {"began": utc_text(began), "ended": utc_text(ended)})
    yield from must(began <= ended, f"{at}.ended", who["ended"], f"{who['began']} or later")


def alignment(document: schema.Report) -> Iterator[Claim]:
    """Similarities agree with their histogram, and counts add up."""
    a, original = document["alignment"], document["items"]["original"]
    positions = document["parameters"]["positions"]
    needed = lineages.NEEDED[a["minor_components"]]
    yield "alignment.needed_median_cosine", a["needed_median_cosine"], needed
    yield "alignment.rows_of_original", a["rows_of_original"], original["vocab_size"]
    yield "alignment.columns", a["columns"], original["hidden_size"]
    turned = a["aligned"] and a["minor_components"]  # a rotation leaves no columns to reorder
    yield from within("alignment.columns_moved", a["columns_moved"], 0, 0 if turned else a["columns"])
    yield from within("alignment.rows_of_original_gone", a["rows_of_original_gone"], 0, a["rows_of_original"])
    most = min(positions, a["rows_of_original_gone"])
    yield from within("alignment.marked_rows_gone", a["marked_rows_gone"], 0, most)
    yield from at_least(0, "alignment", a, "broken_rows", "rows_compared")
    listed = min(a["broken_rows"], ROWS_LISTED)
    yield "alignment.first_broken_rows", len(a["first_broken_rows"]), listed
    yield from must(-1.001 <= a["whole"] <= 1.001, "alignment.whole", a["whole"], "a similarity from -1 to 1")
    share = a["columns_mutual_share"]
    yield from must(share is None or 0 <= share <= 1, "alignment.columns_mutual_share", share, "a share from 0 to 1")
    if a["aligned"]:
        reached = a["median_cosine"] is not None and a["median_cosine"] >= needed
        unless = f"False unless the median cosine is at least {needed}"
        yield from must(reached, "alignment.aligned", True, unless)
        yield from _lost(a)
    for i, step in enumerate(a["steps"]):
        sure = step["confidence"]
        yield from must(0 <= sure <= 1, f"alignment.steps[{i}].confidence", sure, "in [0, 1]")
    yield from each("alignment.histogram.edges", a["histogram"]["edges"], np.linspace(-1.0, 1.0, BINS + 1))
    histogram = a["histogram"]
    yield from _histogram("rows", histogram["rows"], a, "median_cosine", a["median_cosine"])
    yield from _histogram("decoys", histogram["decoys"], a, "median_decoy_cosine", a["median_decoy_cosine"])


def _lost(a: schema.Alignment) -> Iterator[Claim]:
    """A step of the alignment gives the number of rows that are gone."""
    said = [step["said"] for step in a["steps"] if step["name"] == "rows" and step["said"].endswith(" rows are gone")]
    gone, s = a["rows_of_original_gone"], a["rows_of_original"]
    expected = [f"{gone} of the original's {s} rows are gone"] if gone else []
    yield from each("alignment.steps", said, expected)


def _histogram(
    name: str, counts: Sequence[int], a: schema.Alignment, median: str, value: float | None
) -> Iterator[Claim]:
    where, edges = f"alignment.histogram.{name}", a["histogram"]["edges"]
    if len(counts) != len(edges) - 1:
        yield where, f"a list of length {len(counts)}", f"a list of length {len(edges) - 1}"
        return
    for i, count in enumerate(counts):
        yield from within(f"{where}[{i}]", count, 0, a["rows_compared"])
    if value is None:  # no rows were compared, or the median is not finite
        return
    yield where, sum(counts), a["rows_compared"]
    if not sum(counts):
        yield f"alignment.{median}", value, None
        return
    upto = np.cumsum(counts)
    # The two values in the middle: the median is between the lower edge of one and the upper edge of the other.
    first = int(np.searchsorted(upto, (sum(counts) - 1) // 2, side="right"))
    last = int(np.searchsorted(upto, sum(counts) // 2, side="right"))
    inside = edges[first] - _SLACK <= min(1.0, max(-1.0, value)) <= edges[last + 1] + _SLACK
    yield from must(inside, f"alignment.{median}", value, f"from {edges[first]:.2f} to {edges[last + 1]:.2f}")


def lineage(document: schema.Report) -> Iterator[Claim]:
    """Status and reason follow from the similarities, which are the alignment's if both are of the same place."""
    found, place, number = document["lineage"], document["place"], document["evaluation"]["places"]
    status, said = found["status"], found["reason"]
    places = (place,) if number == 1 or document["elsewhere"] is None else PLACES
    yield from one_of("lineage.place", found["place"], places)
    if said == BORROWED.reason:
        yield from each("lineage", found, asdict(BORROWED))
        return
    for name, value in (("attention", found["attention"]), ("attention_decoy", found["attention_decoy"]),
                        ("fitted", found["fitted"]), ("similarity", found["similarity"]),
                        ("decoy_similarity", found["decoy_similarity"]), ("circuits", found["circuits"]),
                        ("circuits_decoy", found["circuits_decoy"])):  # fmt: skip
        yield from must(
            value is None or -1.001 <= value <= 1.001, f"lineage.{name}", value, "a similarity from -1 to 1"
        )
    for name, value, decoy in (("attention", found["attention"], found["attention_decoy"]),
                               ("circuits", found["circuits"], found["circuits_decoy"])):  # fmt: skip
        yield from must((value is None) == (decoy is None), f"lineage.{name}", value,
                        "given if and only if the value of the decoys is given")  # fmt: skip
    yield from _neurons(found)
    here = document["alignment"] if found["place"] == place else None
    yield from _among(found, here)
    if here is not None:
        yield "lineage.similarity", found["similarity"], here["median_cosine"]
        if found["decoy_similarity"] is not None or found["similarity"] is not None:
            yield "lineage.decoy_similarity", found["decoy_similarity"], here["median_decoy_cosine"]
    match = neurons_of(found)
    derived = match is not None and match.derived
    if found["similarity"] is None:
        yield "lineage.status", status, lineages.DERIVED if derived else lineages.CANNOT_TELL
        if here is not None:
            yield "lineage.reason", said, f"{lineages.BY_NEURONS}: {here['reason']}" if derived else here["reason"]
        return
    turned = (False, True) if here is None else (here["minor_components"],)
    wrong = math.nan if found["decoy_similarity"] is None else found["decoy_similarity"]
    ends = [lineages.compared(found["similarity"], wrong, minor=minor) for minor in turned]
    # Neither is the end of the other, so at most one fits.
    end = next((end for end in ends if said.endswith(f": {end}")), ends[-1])
    yield from must(said.endswith(f": {end}"), "lineage.reason", said, f"… {end}")
    denied = status == lineages.NOT_DERIVED and document["verdict"]["word"] == FOUND
    yield from must(not denied, "lineage.status", status, "a different status, because a mark was found")
    words = {lineages.SAID[each]: each for each in lineages.SAID} | {lineages.BY_NEURONS: lineages.DERIVED}
    word = words.get(said.removesuffix(f": {end}"))
    yield from must(
        (said == f"{lineages.BY_NEURONS}: {end}") == derived, "lineage.reason", said,
        "the reason of neurons if and only if they show descent",
    )  # fmt: skip
    yield "lineage.status", status, word or lineages.CANNOT_TELL
    if here is None:
        return
    seen = _agreement(found, here)
    layers = [math.nan if value is None else value for value in (found["circuits"], found["circuits_decoy"])]
    may = lineages.possible(
        status,
        seen,
        (layers[0], layers[1]),
        match,
        aligned=here["aligned"],
        exhausted=here["exhausted"],
        as_alike=kept_models().place(seen.value).as_alike,
    )
    yield from must(may, "lineage.status", status, "a status that these similarities allow")


def _neurons(found: schema.Lineage) -> Iterator[Claim]:
    """The numbers of the match of MLP neurons are in their ranges."""
    match = found["neurons"]
    if match is None:
        return
    for name, value in (("agreement", match["agreement"]), ("decoy", match["decoy"])):
        yield from must(-1.001 <= value <= 1.001, f"lineage.neurons.{name}", value, "a similarity from -1 to 1")
    for name, value in (("ours", match["ours"]), ("theirs", match["theirs"])):
        yield from must(0 <= value <= 1.001, f"lineage.neurons.{name}", value, "a share from 0 to 1")
    yield from must(match["pairs"] >= 0, "lineage.neurons.pairs", match["pairs"], "0 or more")
    for i, pair in enumerate(match["layers"]):
        numbers = len(pair) == 2 and all(number >= 0 for number in pair)
        yield from must(numbers, f"lineage.neurons.layers[{i}]", pair, "two numbers of layers")


def _agreement(found: schema.Lineage, here: schema.Alignment) -> Agreement:
    return agreement_of({**found, "needed": here["needed_median_cosine"], "whole": here["whole"]})


def _among(found: schema.Lineage, here: schema.Alignment | None) -> Iterator[Claim]:
    """The place among the models that this program keeps, which are compared only by their embeddings.

    Args:
        here: the alignment that lineage used; None if the document holds that of another place.
    """
    recorded = found["among"]
    nothing = found["similarity"] is None and found["fitted"] is None
    if found["place"] != EMBEDDING or nothing:
        yield "lineage.among", recorded, None
        return
    if recorded is None:
        yield "lineage.among", recorded, "a comparison with the unrelated models that come with this program"
        yield "lineage.status", found["status"], lineages.CANNOT_TELL
        return
    value = recorded["agreement"] if here is None else _agreement(found, here).value
    yield from each("lineage.among", recorded, asdict(kept_models().place(value)))


def controls(document: schema.Report) -> Iterator[Claim]:
    """Self-tests: a verdict that its odds allow; those of neutral models and of a tracing's decoys are given twice."""
    again = _stated_elsewhere(document)
    for i, test in enumerate(document["self_tests"]):
        where = f"self_tests[{i}]"
        yield from present_and_count(where, test["present"], test["count"])
        yield from equal(where, test, again.get(test["name"], {}))
        if test["name"] != tracing.control_name(test["present"]):
            yield from allowed(where, test["verdict"], test["log10_risk"])


def _stated_elsewhere(document: schema.Report) -> dict[str, Mapping[str, object]]:
    """The expected values of controls, by name, as far as another place of the document gives them."""
    found: dict[str, Mapping[str, object]] = {}
    for model in document["error_rates"]["neutral"] if document["error_rates"] else ():
        same = {"verdict": model["verdict"], "log10_risk": model["log10_risk"], "expected": INCONCLUSIVE}
        found[control_of_neutral(model["name"])] = same
    if document["tracing"] is not None and any(z is not None for z in document["tracing"]["decoys"]):
        control = tracing.control(document["tracing"])
        found[control["name"]] = control
    return found


def error_rates(document: schema.Report, p: Parameters, best: float) -> Iterator[Claim]:
    """Counts of wrong keys; the readings of each key can only be found by ranking them again."""
    rates = document["error_rates"]
    if rates is None:
        return
    if is_generated(document["items"]["suspect"]["answers"]):
        yield "error_rates", "present", "absent, because only recipients are traced in generated text"
    decoys = rates["decoys"]
    sizes = None if decoys is None else (decoys["positions"], decoys["permutations"])
    yield "error_rates.method", rates["method"], measured(sizes, p)
    for i, model in enumerate(rates["neutral"]):
        where = f"error_rates.neutral[{i}]"
        yield from within(f"{where}.rows", model["rows"], 1)
        yield from allowed(where, model["verdict"], model["log10_risk"])
        needed, similar = model["needed_similarity"], model["similarity"]
        known = tuple(lineages.NEEDED.values())
        yield from must(needed in known, f"{where}.needed_similarity", needed, " or ".join(map(str, known)))
        yield from must(
            similar is None or -1.0 <= similar <= 1.0, f"{where}.similarity", similar, "a similarity from -1 to 1"
        )
        reached = similar is not None and similar >= needed
        unless = f"False unless the similarity is at least {needed}"
        yield from must(reached or not model["aligned"], f"{where}.aligned", True, unless)
    if decoys is not None:
        yield from must(
            finding_of(document).judgeable,
            "error_rates.decoys",
            "present",
            "absent, because the suspect cannot be judged",
        )
        yield from _decoys(decoys, p, best)


def _decoys(decoys: schema.Decoys, p: Parameters, best: float) -> Iterator[Claim]:
    number, where = decoys["number"], "error_rates.decoys"
    # Bounded, because a verifier ranks the same number again.
    yield from within(f"{where}.maps", decoys["maps"], 1, MOST_MAPS)
    yield f"{where}.number", number, decoys["maps"] * PER_MAP
    yield from within(f"{where}.bank_rows", decoys["bank_rows"], decoys["positions"], BANK_ROWS)
    yield f"{where}.positions", decoys["positions"], min(p.positions, MOST_POSITIONS)
    yield f"{where}.permutations", decoys["permutations"], min(p.permutations, MOST_PERMUTATIONS)
    own = min(0.0, best + math.log10(2.0))
    yield f"{where}.suspect_log10_risk", decoys["suspect_log10_risk"], own
    edges, counts = decoys["histogram"]["edges"], decoys["histogram"]["counts"]
    yield from each(f"{where}.histogram.edges", edges, -DECOY_BIN * np.arange(len(counts), -1, -1))
    for i, count in enumerate(counts):
        yield from within(f"{where}.histogram.counts[{i}]", count, 0, number)
    yield f"{where}.number", number, sum(counts)
    smallest = decoys["smallest_log10_risk"]
    # The lowest bin is the one that holds the smallest.
    yield from must(len(counts) == max(1, math.floor(-smallest / DECOY_BIN) + 1) and smallest <= 0.0,
                    f"{where}.smallest_log10_risk", smallest, f"from {edges[0]} to {edges[1]}")  # fmt: skip
    yield from _shares(f"{where}.shares", decoys["shares"], number, edges, counts)
    least, most = _below(own, edges, counts)
    yield from within(f"{where}.as_low_as_suspect", decoys["as_low_as_suspect"], least, most)
    yield from within(f"{where}.largest_count", decoys["largest_count"], 0, decoys["positions"])
    mean, largest = decoys["mean_count"], decoys["largest_count"]
    counted = math.isclose(mean * number, round(mean * number), abs_tol=1e-6) and 0.0 <= mean <= largest
    counted = counted and (mean == 0.0) == (largest == 0) and mean * number >= largest
    words = f"a whole number divided by {number}, and no greater than {largest}"
    yield from must(counted, f"{where}.mean_count", mean, words)


def _shares(
    where: str, shares: Sequence[schema.Share], number: int, edges: Sequence[float], counts: Sequence[int]
) -> Iterator[Claim]:
    """The share at each level is that of the bins up to this level; every level is the upper edge of a bin."""
    expected = []
    for level in LEVELS:
        below = sum(count for edge, count in zip(edges[1:], counts, strict=True) if edge <= level + _SLACK)
        low, high = clopper_pearson(below, number)
        expected.append({"log10_risk": level, "count": below, "share": below / number, "low": low, "high": high})
    yield from each(where, shares, expected)


def _below(value: float, edges: Sequence[float], counts: Sequence[int]) -> tuple[int, int]:
    """The fewest and the most of the values counted in these bins that can be at or below `value`."""
    least = sum(count for edge, count in zip(edges[1:], counts, strict=True) if edge <= value)
    most = sum(count for edge, count in zip(edges[:-1], counts, strict=True) if edge < value)
    return least, max(least, most)
