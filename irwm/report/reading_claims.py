"""Claims about a document's readings, forms of evidence and odds: all values that follow from the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from irwm import Parameters
from irwm.evidence.detection import ENOUGH_LOG10_RISK, WAYS
from irwm.evidence.finding import COMBINATIONS, FINGERPRINT, FORMS, MARK, other_place
from irwm.report import schema
from irwm.report.claims import Claim, digest, each, equal, must, one_of, present_and_count, within
from irwm.report.document import comparisons_of
from irwm.report.plots.detection import PLAUSIBLE_SHARES
from irwm.report.plots.summaries import LEVELS
from irwm.report.reproduction import ABSOLUTE
from irwm.scheme.parameters import NEURONS, PLACES, chance_of_counting
from irwm.scheme.probabilities import (
    LN10,
    binomial_tail_log,
    check_trials,
    fisher_log10,
    log10_random_user,
    log10_wrong_user,
    rademacher_tail_log10,
    success_probability,
)

# A rank is a whole number of steps 1 / (N + 1), to the rounding of one division.
_RANK_RELATIVE = 1e-9
# A quantile is between two of its sample's values, to the rounding of one interpolation.
_QUANTILE_RELATIVE = 1e-9
PAPERS_WAY = WAYS[1]


def reading(where: str, recorded: schema.Reading, p: Parameters) -> Iterator[Claim]:
    """Counts and chances of a reading follow from its ranks, and the observed values can have these ranks."""
    positions = recorded["positions"]
    yield f"{where}.positions", len(positions), p.positions
    yield from each(f"{where}.null.shape", recorded["null"]["shape"], [p.positions, p.permutations])
    yield from each(f"{where}.null.quantile_levels", recorded["null"]["quantile_levels"], list(LEVELS))
    yield from digest(f"{where}.null.sha256", recorded["null"]["sha256"])
    ranks, counted = [], 0
    for i, position in enumerate(positions):
        yield from _position(f"{where}.positions[{i}]", position, i, p)
        if position["rank"] is not None:
            ranks.append(position["rank"])
            counted += position["rank"] < p.rank_threshold
    chance = chance_of_counting(p)
    yield f"{where}.count", recorded["count"], counted
    yield f"{where}.present", recorded["present"], len(ranks)
    yield f"{where}.gone", recorded["gone"], p.positions - len(ranks)
    yield f"{where}.rule_met", recorded["rule_met"], counted >= p.required_positions
    yield f"{where}.chance_of_counting", recorded["chance_of_counting"], chance
    yield f"{where}.log10_p", recorded["log10_p"], fisher_log10(ranks)
    yield f"{where}.log10_p_count", recorded["log10_p_count"], binomial_tail_log(counted, len(ranks), chance) / LN10


def fisher_bounds(count: int, present: int, p: Parameters) -> tuple[float, float]:
    """The smallest and the largest log10 of Fisher's p of `present` ranks of which `count` are below the threshold."""
    check_trials(present)
    check_trials(count)
    steps = 1 + p.permutations
    beyond = round(chance_of_counting(p) * steps) + 1  # the first step that does not count
    least = fisher_log10([1 / steps] * count + [min(1.0, beyond / steps)] * (present - count))
    most = fisher_log10([max(1, beyond - 1) / steps] * count + [1.0] * (present - count))
    return least, most


def counted(where: str, read: schema.Counted, p: Parameters) -> Iterator[Claim]:
    """The counts of a reading whose ranks are not in the document, and its p, as far as the counts determine it."""
    count, present = read["count"], read["present"]
    yield from present_and_count(where, present, count, p.positions)
    chance = binomial_tail_log(count, present, chance_of_counting(p)) / LN10
    yield f"{where}.log10_p_count", read["log10_p_count"], chance
    least, most = fisher_bounds(count, present, p)
    inside = least - ABSOLUTE <= read["log10_p"] <= most + ABSOLUTE
    yield from must(inside, f"{where}.log10_p", read["log10_p"], f"from {least} to {most} for this count")


def _position(where: str, position: schema.Position, i: int, p: Parameters) -> Iterator[Claim]:
    rank, observed, threshold = position["rank"], position["observed"], position["threshold"]
    quantiles = position["null_quantiles"]
    known_quantiles = [value for value in quantiles if value is not None]
    yield f"{where}.position", position["position"], i + 1
    yield f"{where}.state", position["state"], "gone" if rank is None else "ranked"
    counts = rank is not None and rank < p.rank_threshold
    yield f"{where}.counts", position["counts"], counts
    if len(quantiles) != len(LEVELS) or 0 < len(known_quantiles) < len(LEVELS):
        either = f"a list of {len(LEVELS)} numbers, or of the same number of nulls"
        yield f"{where}.null_quantiles", f"a list with {len(known_quantiles)} numbers", either
    if rank is None:  # only a row without a statistic has no rank
        yield f"{where}.observed", observed, None
        yield f"{where}.threshold", threshold, None
        yield from each(f"{where}.null_quantiles", quantiles, [None] * len(LEVELS))
        return
    # A rank is a share of the permutations; it counts exactly if the observed value is small.
    steps = 1 + p.permutations
    step = round(rank * steps)
    if observed is None:
        yield f"{where}.observed", None, "a number"
        return
    if not 1 <= step <= steps or not math.isclose(rank, step / steps, rel_tol=_RANK_RELATIVE):
        yield f"{where}.rank", rank, f"a whole number from 1 to {steps}, divided by {steps}"
    # The k-th smallest value of the null decides: above it a position does not count.
    k = round(chance_of_counting(p) * steps)
    unread = not known_quantiles
    if (threshold is None) != (unread or k < 1):
        yield (
            f"{where}.threshold",
            threshold,
            None if unread or k < 1 else "the null value that decides whether the position counts",
        )
    if threshold is not None:
        below = observed < threshold
        yield f"{where}.observed", observed, observed if below == counts else None
    if len(known_quantiles) == len(LEVELS):
        known = [(step - 2, observed, True), (step - 1, observed, False)]
        known += [] if threshold is None else [(k - 1, threshold, True), (k - 1, threshold, False)]
        yield from _quantiles(f"{where}.null_quantiles", known_quantiles, p.permutations, known)


def _quantiles(
    where: str, quantiles: Sequence[float], n: int, known: Sequence[tuple[int, float, bool]]
) -> Iterator[Claim]:
    """Quantiles of a null of n values ascend and are consistent with the known bounds of some of the values.

    Args:
        known: place among the null's values in ascending order, a number, and whether the value there is at most that
            number (otherwise at least).
    """
    for i, (level, value) in enumerate(zip(LEVELS, quantiles, strict=True)):
        slack = _QUANTILE_RELATIVE * max(1.0, abs(value))
        place = level * (n - 1)
        sound = i == 0 or value >= quantiles[i - 1] - slack
        for at, number, at_most in known:
            if at_most and math.ceil(place) <= at:
                sound = sound and value <= number + slack
            elif not at_most and math.floor(place) >= at:
                sound = sound and value >= number - slack
        yield from must(
            sound, f"{where}[{i}]", value, "consistent with the other quantiles, the threshold and the rank"
        )


def rows(document: schema.Report) -> Iterator[Claim]:
    """The marked rows are rows of the original, each once; both readings have them, or both withhold them."""
    positions = document["reading"]["positions"]
    tokens = [position["token"] for position in positions]
    most = document["items"]["original"]["vocab_size"] - 1
    yield "rows_disclosed", document["rows_disclosed"], not all(token is None for token in tokens)
    for i, position in enumerate(positions):
        where, token, text = f"reading.positions[{i}]", position["token"], position["text"]
        if document["rows_disclosed"]:
            sound = token is not None and 0 <= token <= most and tokens.count(token) == 1
            yield from must(sound, f"{where}.token", token, f"a row number from 0 to {most} that occurs only once")
        else:
            yield f"{where}.token", token, None
            yield f"{where}.text", text, None
    if document["paper"] is None:
        return
    paper = document["paper"]
    yield "paper.statistic", paper["statistic"], PAPERS_WAY[0]
    yield "paper.invariant", paper["invariant"], PAPERS_WAY[1]
    yield "paper.by", paper["by"], document["reading"]["by"]
    for i, (one, other) in enumerate(zip(paper["positions"], positions, strict=True)):
        yield from equal(f"paper.positions[{i}]", one, other, "token", "text")


def places(document: schema.Report, p: Parameters, best: float, comparisons: int) -> Iterator[Claim]:
    """Where the mark was read: in the other place too, unless there is none or the first showed enough."""
    place, elsewhere, number = document["place"], document["elsewhere"], document["evaluation"]["places"]
    yield from must(place in p.places and place in PLACES, "place", place, "a place that the key marks")
    yield from within("evaluation.places", number, 1 if elsewhere is None else 2, len(p.places))
    if elsewhere is None:
        enough = min(0.0, best + math.log10(COMBINATIONS * comparisons)) <= ENOUGH_LOG10_RISK
        # One of the places may be the neurons, which have no mark.
        alone = number == 1 or (number == 2 and NEURONS in p.places)
        yield from must(alone or enough, "elsewhere", None, "the reading in the other place")
        return
    yield from equal("elsewhere", elsewhere, document["reading"], "statistic", "invariant")
    for i, position in enumerate(elsewhere["positions"]):
        yield from equal(f"elsewhere.positions[{i}]", position, {"token": None, "text": None})


def evidence(document: schema.Report) -> Iterator[Claim]:
    """A mark's p is that of its ranks, in each place where it was read; a fingerprint's p follows from its z. Each is
    corrected for the tensors that were read in its place."""
    forms, evaluation, place, elsewhere = (
        document["evidence"], document["evaluation"], document["place"], document["elsewhere"]
    )  # fmt: skip
    tensors: dict[str, int] = {}  # read in each place, according to the marks
    read = [document["reading"]] if elsewhere is None else [document["reading"], elsewhere]
    yield "evidence", len(forms), len(read) + max(0, min(len(forms) - len(read), 1))
    noisy = document["parameters"]["noise_coordinates"] > 0
    yield "evaluation.forms", evaluation["forms"], FORMS if noisy else 1
    usual = (document["reading"]["statistic"], document["reading"]["invariant"]) == WAYS[0]
    separate = noisy and usual and document["tracing"] is None
    yield from must(separate or len(forms) == len(read), "evidence", len(forms), str(len(read)))
    for i, one in enumerate(forms):
        where, marked = f"evidence[{i}]", i < len(read)
        yield f"{where}.form", one["form"], MARK if marked else FINGERPRINT
        if marked:
            bound = min(read[i]["log10_p"], read[i]["log10_p_count"]) + math.log10(COMBINATIONS)
            here = place if i == 0 else other_place(place)
            if i == 0:
                yield f"{where}.tensors_read", one["tensors_read"], evaluation["tensors_read"]
            else:
                yield from within(f"{where}.tensors_read", one["tensors_read"], 1)
            tensors[here] = one["tensors_read"]
            yield f"{where}.place", one["place"], here
            yield f"{where}.by", one["by"], read[i]["by"]
            yield f"{where}.z", one["z"], None
            yield f"{where}.rows", one["rows"], read[i]["present"]
        else:
            bound = float(rademacher_tail_log10(math.nan if one["z"] is None else one["z"]))
            yield from must(one["z"] is not None, f"{where}.z", None, "the sum of the fingerprint’s signs")
            # A fingerprint is looked for only after the mark was read in every place, on the same tensors.
            if NEURONS in document["parameters"]["places"]:
                tensors[NEURONS] = 1
            yield from one_of(f"{where}.place", one["place"], tuple(tensors))
            here = one["place"]
            yield f"{where}.tensors_read", one["tensors_read"], tensors[here]
            most = math.inf if here == NEURONS else document["items"]["original"]["vocab_size"]
            yield from within(f"{where}.rows", one["rows"], 1, most)
        factor = math.log10(comparisons_of(evaluation, tensors[here]))
        yield f"{where}.log10_p", one["log10_p"], min(0.0, bound)
        yield f"{where}.log10_risk", one["log10_risk"], min(0.0, min(0.0, bound) + factor)


def odds(document: schema.Report, p: Parameters) -> Iterator[Claim]:
    """Equations 1 to 3 at this setting."""
    recorded, read, evaluation = document["odds"], document["reading"], document["evaluation"]
    l, rho, beta = p.positions, p.required_positions, p.rank_threshold
    share = read["count"] / read["present"] if read["present"] else None
    yield "odds.observed_share", recorded["observed_share"], share
    success = [{"p": q, "probability": success_probability(l, rho, q)} for q in PLAUSIBLE_SHARES]
    yield from each("odds.success", recorded["success"], success)
    yield "odds.log10_random_user", recorded["log10_random_user"], log10_random_user(l, rho, beta)
    yield "odds.keys", recorded["keys"], evaluation["keys_tried"] * evaluation["tensors_read"]
    yield "odds.log10_wrong_user", recorded["log10_wrong_user"], log10_wrong_user(l, rho, beta, recorded["keys"])


def supporting(document: schema.Report, p: Parameters) -> Iterator[Claim]:
    """Other readings of the key: what follows from their counts, and odds that the counts allow."""
    chance, evaluation = chance_of_counting(p), document["evaluation"]
    factor = comparisons_of(evaluation)
    for i, one in enumerate(document["supporting"]):
        where = f"supporting[{i}]"
        yield from present_and_count(where, one["present"], one["count"], p.positions)
        yield f"{where}.expected_by_chance", one["expected_by_chance"], chance * one["present"]
        yield f"{where}.rule_met", one["rule_met"], one["count"] >= p.required_positions
        least = binomial_tail_log(one["count"], one["present"], chance) / LN10 + math.log10(COMBINATIONS * factor)
        yield from must(
            one["log10_risk"] <= min(0.0, least) + 1e-6,
            f"{where}.log10_risk",
            one["log10_risk"],
            f"at most {min(0.0, least)}, the value for the count alone",
        )
