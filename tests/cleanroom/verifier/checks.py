"""Compares a report with what follows from the key and the two models."""

from __future__ import annotations

import hashlib
import math
from datetime import datetime
from typing import Any

import numpy as np

from .keys import Key, PlaceKey, draw
from .ledger import Ledger
from .maps import LeastSquares, Map, align, cosines, median_row, sample_size, varied_rows
from .models import Checkpoint, Layer0
from .neurons import Neurons
from .reading import (
    Noise,
    Reading,
    chance_of_counting,
    floors,
    judge,
    likelihood_ratio,
    log10_of_z,
    log10_p,
    odds,
    read,
    risk,
    z_needed,
)
from .written import Original

TOLERANCE = 1e-9
OF_OBSERVED = 1e-4  # of the position's threshold; below it the tolerance is absolute
OF_Z = 10.0  # z and share within 1e-9 of themselves or 1e-8 (reading.md)
OF_COSINE = 1e3  # cosines within 1e-6 (reading.md)


class Place:
    """A suspect compared with the original in one place."""

    def __init__(self, original: Original, suspect: Checkpoint, name: str | None = None) -> None:
        self.original, self.key, self.suspect = original, original.key, suspect
        self.tensor = name or suspect.matrix(self.key.name)
        stored = suspect.array(self.tensor)[: self.key.s]
        self.theirs = np.full((self.key.s, stored.shape[1]), np.nan, np.float32)
        self.theirs[: len(stored)] = stored
        self.gone = np.arange(self.key.s) >= len(stored)
        self.constants = (
            self.key.name == "embedding" and original.model.drops_row_constants() and suspect.drops_row_constants()
        )
        self.aligned: Map = align(stored, original.single, self.constants)
        self.stored = stored
        self._fit: LeastSquares | None = None

    def mapped(self, by: str, ids: np.ndarray) -> np.ndarray:
        """Rows of these tokens in the original's coordinates."""
        if by == "aligned":
            return self.aligned(self.theirs[ids], self.original.single[ids], self.constants)
        if self._fit is None:
            self._fit = LeastSquares(self.stored, self.original.single, self.key.sample_key)
        return self._fit(self.theirs[ids], ids)

    def close(self) -> bool:
        """Whether nine tenths of a secret sample of rows are nearly the original's, so that no second map is read."""
        ids = draw(self.key.s, 1024, self.key.sample_key)
        ours = self.original.single[ids].astype(np.float64)
        rows = self.mapped("aligned", ids) / self.aligned.row_scale
        rows[self.gone[ids] | (self.theirs[ids] == self.theirs[ids][:, :1]).all(1)] = np.nan
        near = np.linalg.norm(rows - ours, axis=1) <= 0.2 * np.linalg.norm(ours - ours.mean(0), axis=1)
        return float(near.mean()) >= 0.9

    def in_place(self) -> bool:
        """Whether rows match their namesakes, so that no row has to be placed by its content."""
        ids = np.flatnonzero(~self.gone & (self.theirs != self.theirs[:, :1]).any(1) & np.isfinite(self.theirs).all(1))
        ours = self.original.single
        middle = median_row(varied_rows(ours, sample_size(ours.shape[1]), self.constants))
        like = np.full(self.key.s, np.nan)
        like[ids] = cosines(
            self.mapped("aligned", ids) / self.aligned.row_scale - middle, self.original.rows[ids] - middle
        )
        own = like[np.concatenate(self.key.tokens)]
        limit = 0.4 * min(self.aligned.median_cosine, float(np.nanmedian(own)))
        return float((like[ids] >= 0.4 * np.nanmedian(like)).mean()) >= 0.98 and int((~(own >= limit)).sum()) <= 1

    def reading(self, by: str, seed: int, statistic: str = "joint", a: np.ndarray | None = None) -> Reading:
        """The ranks under a map."""
        marked = self.key.tokens[2]
        rows = self.theirs[marked]
        broken = self.gone[marked] | ~np.isfinite(rows).all(1) | (rows == rows[:, :1]).all(1)
        a = self.original.a if a is None else a
        return read(self.original, self.mapped(by, marked), broken, statistic, a, seed)

    def noise(self, by: str, row_scale: float) -> Noise:
        """The differences under a map, ready for z."""
        e = self.mapped(by, np.arange(self.key.s))
        return Noise(self.original, (e / row_scale if by == "aligned" else e) - self.original.rows, self.gone)


def check_key(ledger: Ledger, key: Key, model: Checkpoint, report: dict[str, Any]) -> dict[str, Original]:
    """The key's bindings to the original, and what the report says about the key."""
    said, originals = report["key"], {}
    names = ("owner", "recipient", "scale", "model_fingerprint")
    ledger.fields("key", said, commitment=key.commitment, **{name: key.fields[name] for name in names})
    ledger.check("key: parameters", key.fields["parameters"], report["parameters"])
    ledger.check("key: settings out of range", key.out_of_range(), [])
    ledger.check("key: layer-0 digest of the original", Layer0(model).digest(), key.fields["layer0_digest"])
    for place in key.places:
        own = key.place(place)
        original = originals[place] = Original(model, own)
        ledger.check(f"{place}: geometry", list(model.tensors[original.name][2]), [own.s, own.d])
        ledger.check(f"{place}: fingerprint of the original", model.fingerprint(original.name), own.fingerprint)
        ledger.check(f"{place}: rows' digest", original.rows_digest.hexdigest(), own.rows_digest)
        ledger.check(f"{place}: attempt", original.attempt, own.attempt)
        ledger.check(f"{place}: scale", original.scale, own.scale, 1e-6)
    return originals


def check_items(ledger: Ledger, report: dict[str, Any], suspect: Checkpoint, model: Checkpoint) -> None:
    """The models that the report names."""
    for name, checkpoint in (("suspect", suspect), ("original", model)):
        item = report["items"][name]
        s, d = checkpoint.tensors[checkpoint.embedding][2]
        fingerprint = checkpoint.fingerprint(checkpoint.embedding)
        ledger.fields(name, item, fingerprint=fingerprint, vocab_size=s, hidden_size=d)
        for file in item["files"]:
            if file["sha256"]:
                path = checkpoint.folder / file["name"]
                mine = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
                ledger.check(f"{name}: SHA-256 of {file['name']}", mine, file["sha256"])


def check_reading(ledger: Ledger, name: str, mine: Reading, said: dict[str, Any], key: PlaceKey) -> None:
    """One reading of the ranks, number by number."""
    n = int(key.parameters["permutations"])
    rows, levels = said["positions"], said["null"]["quantile_levels"]
    marked = key.tokens[2]
    for field in ("token", "text"):
        if all(r[field] is None for r in rows):
            ledger.note(f"{name}: the report holds no {field}")
    if any(r["token"] is not None for r in rows):
        ledger.check(f"{name}: marked rows", marked, [r["token"] for r in rows])
    ledger.check(f"{name}: positions", list(range(1, key.l + 1)), [r["position"] for r in rows])
    ranked = np.isfinite(mine.ranks)
    ledger.check(f"{name}: states", ["ranked" if r else "gone" for r in ranked], [r["state"] for r in rows])
    units = np.array([1.0 if x is None else x for x in mine.thresholds()])
    said_observed = np.array([math.nan if r["observed"] is None else r["observed"] for r in rows])
    ledger.check(f"{name}: observed", mine.observed / units, said_observed / units, TOLERANCE, OF_OBSERVED)
    ledger.check(f"{name}: ranks", mine.ranks, [r["rank"] for r in rows])
    ledger.check(f"{name}: counts", mine.ranks < mine.beta, [r["counts"] for r in rows])
    ledger.check(f"{name}: thresholds", mine.thresholds(), [r["threshold"] for r in rows], TOLERANCE)
    ledger.check(f"{name}: null quantiles", mine.quantiles(levels), [r["null_quantiles"] for r in rows], TOLERANCE)
    ledger.check(f"{name}: shape of the null", [key.l, n], said["null"]["shape"])
    rule_met = mine.count >= key.parameters["required_positions"]
    present = int(ranked.sum())
    ledger.fields(name, said, count=mine.count, present=present, gone=key.l - present, rule_met=rule_met)
    fisher, counted = log10_p(mine, n)
    chance = chance_of_counting(n, mine.beta)
    ledger.fields(name, said, TOLERANCE, chance_of_counting=chance, log10_p=fisher, log10_p_count=counted)


def check_alignment(ledger: Ledger, place: Place, said: dict[str, Any]) -> None:
    """The map that the report names."""
    steps = {s["name"] for s in said["steps"]}
    mine = place.aligned
    ledger.holds(
        "alignment: rows are at their ids",
        not any("rows" in s for s in steps) and place.in_place(),
        "rows were moved or must be placed by content, which this verifier does not do",
    )
    ledger.check("alignment: steps but for the scale", sorted(mine.steps()), sorted(steps - {"scale"}))
    turned = mine.kind == "turned"
    ledger.fields(
        "alignment", said, embedding_tensor=place.tensor, aligned=mine.aligned, rows_compared=mine.compared,
        needed_median_cosine=0.25 if turned else 0.3, minor_components=turned, rows_of_original=place.key.s,
        rows_of_original_gone=int(place.gone.sum()), marked_rows_gone=int(place.gone[place.key.tokens[2]].sum()),
    )  # fmt: skip
    near = {"row_scale": mine.row_scale}
    for name, cosine in (("median_cosine", mine.median_cosine), ("whole", mine.whole)):
        ledger.check(f"alignment: {name}", cosine, said[name], TOLERANCE, OF_COSINE)
    if mine.kind == "columns":
        moved = int((mine.columns != np.arange(len(mine.columns))).sum())
        ledger.fields("alignment", said, columns=len(mine.columns), columns_moved=moved)
        near["columns_mutual_share"] = mine.share
    ledger.fields("alignment", said, TOLERANCE, **near)


def read_places(
    places: dict[str, Place], n: int, factors: dict[str, int], seed: int
) -> tuple[dict[str, Any], dict[str, str], str]:
    """The mark's reading of each place under the map used, the words, and the place used; factors: c of each place."""
    made, words = {}, {}
    for name, place in places.items():
        c = factors[name]
        options = {"aligned": place.reading("aligned", seed)}
        if risk(log10_p(options["aligned"], n), c) > -30 and not place.close():
            options["least squares"] = place.reading("least squares", seed)
        best = "aligned"
        alone = {by: risk(log10_p(one, n), 1) for by, one in options.items()}
        if len(options) == 2 and (not len(options["aligned"].ranked) or alone["least squares"] < alone["aligned"]):
            best = "least squares"
        made[name] = (best, options[best])
        words[name] = judge(options[best], place.key, c, place.aligned.aligned)
        if risk(log10_p(options[best], n), c) <= -30:
            break
    chosen = next(iter(made))
    if len(made) == 2:
        order = {"found": 0, "inconclusive": 1, "not found": 2}
        other = next(p for p in made if p != chosen)
        smaller = risk(log10_p(made[other][1], n), 1) < risk(log10_p(made[chosen][1], n), 1)
        if order[words[other]] < order[words[chosen]] or (words[other] == words[chosen] == "found" and smaller):
            chosen = other
    return made, words, chosen


def forms_of(key: Key) -> int:
    """2, mark and fingerprint, for a key with noise."""
    return 2 if int(key.fields["parameters"]["noise_coordinates"]) else 1


def factors_of(report: dict[str, Any], key: Key, places: dict[str, Place]) -> dict[str, int]:
    """c of each place: it has the number of tensors that were read there, according to the mark's evidence.

    A place without evidence was not read, and counts as one tensor.
    """
    e, number = report["evaluation"], key.all_places
    read = {x["place"]: x["tensors_read"] for x in report["evidence"] if x["form"] == "mark"}
    return {name: e["keys_tried"] * read.get(name, 1) * 2 * forms_of(key) * number for name in (*places, "neurons")}


def noise_in(
    report: dict[str, Any], name: str, by: str, places: dict[str, Place], neurons: Neurons | None
) -> tuple[Noise, bool]:
    """The suspect's differences in a place, and whether it is aligned there."""
    if name == "neurons":
        assert neurons is not None
        suspect = next(iter(places.values())).suspect
        return Noise(neurons, neurons.differences(suspect), np.zeros(len(neurons.rows), bool)), True
    place = places[name]
    scale = report["alignment"]["row_scale"] if name == report["place"] else place.aligned.row_scale
    return place.noise(by, scale), place.aligned.aligned


def check_fingerprint(
    ledger: Ledger, report: dict[str, Any], places: dict[str, Place], neurons: Neurons | None, c: dict[str, int]
) -> float:
    """The fingerprint in the place where it was read; the log10 of its odds, 0 where the report has none."""
    lowest = 0.0
    tensors = {x["place"]: x["tensors_read"] for x in report["evidence"] if x["form"] == "mark"}
    for said in (x for x in report["evidence"] if x["form"] == "fingerprint"):
        title = f"fingerprint in the {said['place']}"
        noise, _ = noise_in(report, said["place"], said["by"], places, neurons)
        z, _ = noise.score()
        lowest = min(0.0, log10_of_z(z) + math.log10(c[said["place"]]))
        ledger.check(f"{title}: z", z, said["z"], TOLERANCE, OF_Z)
        ledger.fields(title, said, TOLERANCE, log10_p=log10_of_z(z), log10_risk=lowest)
        ledger.fields(title, said, rows=noise.rows, tensors_read=tensors.get(said["place"], 1))
    return lowest


def check_evaluation(ledger: Ledger, report: dict[str, Any], key: Key, reading: Reading, c: int) -> None:
    """The chances and counts of the reading, with the c of its place."""
    e, n = report["evaluation"], int(key.fields["parameters"]["permutations"])
    both = log10_p(reading, n)
    p_floor, count_floor = floors(len(reading.ranked), n, reading.beta)
    ledger.fields(
        "evaluation", e, TOLERANCE, log10_p=both[0], log10_p_count=both[1], log10_p_floor=p_floor,
        log10_p_count_floor=count_floor, smallest_rank=1 / (n + 1), log10_risk=risk(both, c),
        evidence_bits=-risk(both, c) / math.log10(2) + 0.0,
    )  # fmt: skip
    ledger.fields(
        "evaluation", e, found_at_log10_risk=-6.0, dismissed_above_log10_risk=-3.0, combinations=2,
        keys_tried=report["keys"]["tried"],
    )  # fmt: skip
    if e["log10_lr"] is not None:
        ratio = likelihood_ratio(reading.ranked)
        each = ratio - math.log10(c)
        ledger.fields("evaluation", e, TOLERANCE, log10_lr=ratio, log10_lr_per_comparison=each, verbal=verbal(each))
    v, p = report["verdict"], key.fields["parameters"]
    ledger.fields(
        "verdict", v, count=reading.count, present=len(reading.ranked), positions=p["positions"],
        required=p["required_positions"], rule_met=reading.count >= p["required_positions"],
    )  # fmt: skip
    expected = len(reading.ranked) * chance_of_counting(n, reading.beta)
    ledger.fields("verdict", v, TOLERANCE, expected_by_chance=expected)


def check_marks(
    ledger: Ledger,
    report: dict[str, Any],
    key: Key,
    places: dict[str, Place],
    neurons: Neurons | None,
    suspect: Checkpoint,
) -> str:
    """Readings, corrections and the mark's own verdict."""
    e, seed = report["evaluation"], report["seed"]
    ledger.fields("evaluation", e, maps=2, places=key.all_places, forms=forms_of(key))
    factors, n = factors_of(report, key, places), int(key.fields["parameters"]["permutations"])
    made, words, chosen = read_places(places, n, factors, seed)
    ledger.check("place", chosen, report["place"])
    others = [p for p in made if p != chosen]
    ledger.holds("elsewhere: present or absent as expected", bool(others) == (report["elsewhere"] is not None))
    for title, name in [("reading", chosen)] + [("elsewhere", p) for p in others if report["elsewhere"]]:
        ledger.fields(title, report[title], by=made[name][0], statistic="joint", invariant="original")
        mine = made[name][1]
        if report[title]["by"] != made[name][0]:
            mine = places[name].reading(report[title]["by"], seed)
        check_reading(ledger, title, mine, report[title], places[name].key)
    check_alignment(ledger, places[chosen], report["alignment"])
    if report["paper"]:
        own, embedding = places[chosen], places["embedding"]
        query, reference, _ = own.key.tokens
        rows = embedding.stored.astype(np.float64)
        a = Layer0(suspect).invariant(rows[query], rows[reference])
        ledger.fields("paper", report["paper"], by=report["reading"]["by"], statistic="sum", invariant="suspect")
        check_reading(ledger, "paper", own.reading(report["paper"]["by"], seed, "sum", a), report["paper"], own.key)
    check_evaluation(ledger, report, key, made[chosen][1], factors[chosen])
    evidence = [x for x in report["evidence"] if x["form"] == "mark"]
    ledger.check("evidence: tensors read in the place", [x["tensors_read"] for x in evidence[:1]], [e["tensors_read"]])
    for said, name in zip(evidence, [chosen, *others], strict=False):
        p = log10_p(made[name][1], n)
        title = f"evidence: mark in the {name}"
        ledger.fields(title, said, place=name, by=made[name][0], rows=len(made[name][1].ranked))
        ledger.fields(title, said, TOLERANCE, log10_p=risk(p, 1), log10_risk=risk(p, factors[name]))
    ledger.check("evidence: how many of the mark", len(made), len(evidence))
    word, own_risk = words[chosen], check_fingerprint(ledger, report, places, neurons, factors)
    word = "found" if own_risk <= -6 else "inconclusive" if own_risk <= -3 and word == "not found" else word
    ledger.check("verdict: the mark's word", word, report["verdict"]["mark"])
    return word


STEPS = {
    "": math.log10(2), "weak": 1, "moderate": 2, "moderately strong": 3, "strong": 4, "very strong": 6,
    "extremely strong": math.inf,
}  # fmt: skip


def verbal(ratio: float) -> str:
    """The words for a likelihood ratio (log10)."""
    word = next(word for word, limit in STEPS.items() if abs(ratio) < limit)
    side = "first" if ratio > 0 else "second"
    return f"{word} support for the {side} proposition" if word else "no support for one proposition over the other"


def of_tracing(t: dict[str, Any]) -> int:
    """The factor of every p of a tracing."""
    names = ("keys_tried", "tensors_read", "maps", "places", "forms", "looks", "tries")
    return math.prod(int(t[name]) for name in names)


def check_tracing(
    ledger: Ledger, report: dict[str, Any], places: dict[str, Place], neurons: Neurons | None, key: Key, word: str
) -> str:
    """Tracing by noise: this key's own numbers, all decoys, and what follows from the list."""
    t = report["tracing"]
    noise, aligned = noise_in(report, t["place"], t["by"], places, neurons)
    z, share = noise.score()
    product = math.log10(of_tracing(t))
    ledger.fields(
        "tracing", t, rows=noise.rows, keys_tried=report["evaluation"]["keys_tried"], forms=2,
        aligned=aligned, tries=1, tries_made=1, tries_ended="all made", growth=[],
    )  # fmt: skip
    tensors = [x["tensors_read"] for x in report["evidence"] if (x["form"], x["place"]) == ("mark", t["place"])]
    ledger.holds("tracing: tensors read, as for the mark there", all(n == t["tensors_read"] for n in tensors))
    whole = (t["recipients"] + len(t["decoys"])) * noise.key.s * noise.key.m
    ledger.check("tracing: looks", 2 if whole > 2e9 else 1, t["looks"])
    ledger.holds("tracing: this key is in the list", any(r["commitment"] == key.commitment for r in t["ranked"]))
    ledger.check(
        "tracing: first-pass rows, others",
        [t["rows"] if t["looks"] == 1 else t["first_pass_rows"], t["recipients"] - len(t["ranked"])],
        [t["first_pass_rows"], t["others"]["count"]],
    )
    ledger.check("tracing: places in the list", list(range(1, len(t["ranked"]) + 1)), [r["place"] for r in t["ranked"]])
    for said in t["ranked"]:
        title = f"tracing: {said['recipient']}"
        if said["commitment"] == key.commitment:
            ledger.check(f"{title}: z", z, said["z"], TOLERANCE, OF_Z)
            ledger.check(f"{title}: share", share, said["share"], TOLERANCE, OF_Z)
            names = {name: key.fields[name] for name in ("owner", "recipient")}
            ledger.fields(title, said, rows=noise.rows, **names)
            v, e, paper = report["verdict"], report["evaluation"], report["paper"] or {"count": None, "present": None}
            if said["mark"]:
                ledger.fields(
                    f"{title}: its mark, as elsewhere in the report", said["mark"], verdict=v["mark"], count=v["count"],
                    present=v["present"], rule_met=v["rule_met"], log10_risk=e["log10_risk"],
                    paper_count=paper["count"], paper_present=paper["present"],
                )  # fmt: skip
        else:
            ledger.note(f"{title}: another key's; z is taken as it stands")
        its = math.nan if said["z"] is None else said["z"]
        its_risk = min(0.0, log10_of_z(its) + product)
        ledger.fields(title, said, TOLERANCE, log10_p=log10_of_z(its), log10_risk=its_risk)
        ledger.fields(title, said, named=its_risk <= math.log10(t["risk"]))
    decoys = sorted((noise.score(f"decoy-noise/{k}")[0] for k in range(1, len(t["decoys"]) + 1)), reverse=True)
    ledger.check("tracing: z of decoys", decoys, t["decoys"], TOLERANCE, OF_Z)
    ledger.check("tracing: largest z of decoys", decoys[0] if decoys else None, t["z_of_decoys"], TOLERANCE, OF_Z)
    named = [r for r in t["ranked"] if r["named"]]
    ledger.fields(
        "tracing", t, TOLERANCE, named=len(named), z_needed=z_needed(math.log10(t["risk"]) - product),
        log10_risk=max(r["log10_risk"] for r in named) if named else None,
        copies_estimated=len(named) / sum(r["share"] for r in named) if named else None,
    )  # fmt: skip
    if named:
        return "found"
    close = min(r["log10_risk"] for r in t["ranked"]) <= -3
    return "inconclusive" if close and word == "not found" else word


def check_odds(ledger: Ledger, report: dict[str, Any]) -> None:
    """The published equations."""
    o, p = report["odds"], report["parameters"]
    for said in o["success"]:
        ledger.check(f"odds: equation 1 at {said['p']}", 10 ** odds(p, said["p"]), said["probability"], TOLERANCE)
    user = odds(p, p["rank_threshold"])
    wrong = math.log10(-math.expm1(o["keys"] * math.log1p(-(10**user))))
    v = report["verdict"]
    share = v["count"] / v["present"] if v["present"] else None
    ledger.fields("odds", o, TOLERANCE, log10_random_user=user, log10_wrong_user=wrong, observed_share=share)


def check_standing(ledger: Ledger, report: dict[str, Any]) -> None:
    """Evidence minus search, in bits."""
    s, on_tracing = report["standing"], report["verdict"]["rests_on"] == "tracing"
    named = report["tracing"]["log10_risk"] if on_tracing else None
    rests = min(x["log10_risk"] for x in report["evidence"]) if named is None else named
    bits = max(0.0, -rests / math.log10(2))
    committed, seen = (s[name] and datetime.fromisoformat(s[name]) for name in ("committed_utc", "suspect_seen_utc"))
    if not committed:
        status = "not committed"
    elif not seen:
        status = "suspect not dated"
    else:
        status = "committed before" if committed < seen else "committed too late"
    search = 0.0 if status == "committed before" else 80.0
    said = {"evidence_bits": bits, "search_bits": search, "margin_bits": bits - search}
    ledger.fields("standing", s, TOLERANCE, **said)
    ledger.check("standing: status", status, s["status"])


DECOYS = {f"decoy key {number}, never inserted, on the suspect": number for number in (1, 2, 3)}


def decoy_place(place: Place, key: Key) -> Place:
    """The same suspect for a decoy key, with the attempt and the scale that its key generation finds."""
    original = Original(place.original.model, key.place(place.key.name))
    original.key.attempt, original.key.scale = original.attempt, original.scale
    return Place(original, place.suspect, place.tensor)


def check_controls(ledger: Ledger, report: dict[str, Any], places: dict[str, Place], key: Key) -> None:
    """The controls that can be repeated: this key on the unmarked original, decoy keys, and the decoys of a tracing."""
    t, n = report["tracing"], int(key.fields["parameters"]["permutations"])
    for said in report["self_tests"]:
        own: dict[str, Place] = {}
        if said["name"] == "this key on the unmarked original":
            # Read like a suspect, in the same place and under the same map.
            own = {name: Place(place.original, place.original.model) for name, place in places.items()}
            factors = dict.fromkeys(own, 2 * key.all_places * forms_of(key))
        elif said["name"] in DECOYS:
            decoy = key.decoy(DECOYS[said["name"]])
            own = {name: decoy_place(place, decoy) for name, place in places.items()}
            tried = report["evaluation"]["keys_tried"]
            factors = {name: c // tried for name, c in factors_of(report, key, places).items()}
        if own:
            made, words, chosen = read_places(own, n, factors, 0)
            mine = made[chosen][1]
            result, low = [words[chosen], mine.count, len(mine.ranked)], risk(log10_p(mine, n), factors[chosen])
        elif t and said["name"].endswith("who were never issued a copy, traced in the suspect"):
            product = math.log10(of_tracing(t))
            risks = [min(0.0, log10_of_z(math.nan if z is None else z) + product) for z in t["decoys"]]
            named = sum(r <= math.log10(t["risk"]) for r in risks)
            result, low = ["found" if named else "not found", named, len(risks)], min(risks)
        else:
            ledger.note(f"control {said['name']!r}: its reading follows from no page; not checked")
            continue
        verdict, count, present = result
        ledger.fields(f"control: {said['name']}", said, verdict=verdict, count=count, present=present)
        ledger.check(f"control: risk of {said['name']}", low, said["log10_risk"], TOLERANCE)
