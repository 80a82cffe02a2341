"""docs/demo-vectors.json follows from docs/key-format.md, docs/reading.md and docs/maps.md: a second implementation,
with only numpy and a library's ChaCha20, gives the same digests, ranks, p and z.

It supports the features of the demo model: Llama's layer 0, rows at their ids, columns reordered or rotated.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.keys.second import Basis, Floats, Ints, Part, canonical, hkdf, long_words, orders, public
from tools import demo_vectors
from tools.small_models import DEMO

PLACES = {"embedding": "model.embed_tokens.weight", "head": "lm_head.weight"}


# ---- files


def tensors(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    found = json.loads(raw[8 : 8 + size])
    found.pop("__metadata__", None)
    data = raw[8 + size :]
    return {n: (e["dtype"], tuple(e["shape"]), data[slice(*e["data_offsets"])]) for n, e in found.items()}


def from_bfloat16(raw: bytes, shape: tuple[int, ...]) -> NDArray[np.float32]:
    bits = np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(shape)


def to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """Float64 to float32 and then to bfloat16, each to the nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def rounded(values: Floats) -> Floats:
    return from_bfloat16(to_bfloat16(values).tobytes(), values.shape).astype(np.float64)


class Model:
    def __init__(self) -> None:
        self.stored = tensors(DEMO / "model.safetensors")
        self.config = json.loads((DEMO / "config.json").read_text())
        self.rows = {place: self.read(name) for place, name in PLACES.items()}

    def read(self, name: str) -> Floats:
        dtype, shape, raw = self.stored[name]
        assert dtype == "BF16"
        return from_bfloat16(raw, shape).astype(np.float64)

    def fingerprint(self, place: str) -> str:
        _, shape, raw = self.stored[PLACES[place]]
        head = b"".join(struct.pack("<Q", len(text)) + text for text in (b"irwm-embedding-v1", b"bfloat16"))
        return hashlib.sha256(head + struct.pack("<2Q", *shape) + raw).hexdigest()

    def layer0_digest(self) -> str:
        def digest(name: str) -> str:
            values = self.read(name).astype("<f4")
            shape = b"".join(struct.pack("<Q", n) for n in values.shape)
            return hashlib.sha256(shape + values.tobytes()).hexdigest()

        c, at = self.config, "model.layers.0."
        facts: dict[str, Any] = dict.fromkeys(
            ("q_bias", "k_bias", "embedding_projection", "position", "token_type", "embedding_norm", "q_norm", "k_norm")
        )
        facts |= {
            "scores": "attention",
            "heads": c["num_attention_heads"],
            "kv_heads": c["num_key_value_heads"],
            "head_dim": c["head_dim"],
            "embedding_scale": 1.0,
            "clip": None,
            "q": digest(at + "self_attn.q_proj.weight"),
            "k": digest(at + "self_attn.k_proj.weight"),
            "input_norm": {
                "kind": "rms",
                "over": "head",
                "eps": c["rms_norm_eps"],
                "offset": 0.0,
                "weights": [digest(at + "input_layernorm.weight")],
                "bias": None,
            },
        }
        return hashlib.sha256(b"irwm/v3/layer0\0" + canonical(facts)).hexdigest()

    def invariant(self, query: Floats, reference: Floats) -> Floats:
        """A from the (noisy) embedding rows of the tokens."""
        c, at = self.config, "model.layers.0."
        gain = self.read(at + "input_layernorm.weight")
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

        def projected(rows: Floats, name: str, count: int) -> Floats:
            x = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + c["rms_norm_eps"]) * gain
            return (x @ self.read(at + f"self_attn.{name}_proj.weight").T).reshape(len(rows), count, dim)

        q, k = projected(query, "q", heads), projected(reference, "k", kv_heads)
        scores = sum(q[:, h] @ k[:, h // (heads // kv_heads)].T for h in range(heads))
        return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)


# ---- docs/key-format.md: the written rows


def noisy(part: Part, model: Model, tokens: Ints, place: str) -> Floats:
    rows = model.rows[place][tokens]
    if place != part.place:
        return rows
    basis, (at, signs) = part.basis(tokens), part.places(tokens)
    inside, length = basis.into(rows), np.linalg.norm(rows, axis=1, keepdims=True)
    noise = signs * part.p["spread"] * length / math.sqrt(part.d)
    np.put_along_axis(inside, at, np.take_along_axis(inside, at, axis=1) + noise, axis=1)
    changed = (length[:, 0] > 0) & ~np.isin(tokens, part.marked)
    return np.where(changed[:, None], basis.out_of(inside), rows)


def equations(part: Part, model: Model) -> Floats:
    """A with the recipient's noise: unrounded, and for the head none, because A is of the embedding."""
    return model.invariant(*(noisy(part, model, tokens, "embedding") for tokens in (part.query, part.reference)))


def solved(part: Part, model: Model, a: Floats) -> tuple[int, float, Floats]:
    """Attempt, scale and (l, d) marked rows before rounding."""
    p, t, basis = part.p, part.t, part.basis(part.marked)
    for attempt in range(1000):
        permuted = np.take_along_axis(a, part.constraint_orders(attempt), axis=1)
        if np.linalg.cond(permuted[:, -t:]) < p["condition_limit"]:
            break
    inside = basis.into(model.rows[part.place][part.marked])
    shuffled = np.take_along_axis(inside, part.row_orders, axis=1)
    x = np.linalg.solve(permuted[:, -t:], -permuted[:, :-t] @ shuffled[:, :-t].T).T
    scale = math.sqrt((x**2).mean() / (inside**2).mean()) if p["scale"] == "auto" else p["scale"]
    np.put_along_axis(inside, part.row_orders[:, -t:], x / part.scale, axis=1)
    return attempt, scale, basis.out_of(inside)


def copy_of(part: Part, model: Model, marked: Floats) -> NDArray[np.uint16]:
    made = to_bfloat16(noisy(part, model, np.arange(part.s), part.place))
    made[part.marked] = to_bfloat16(marked)
    return made


# ---- docs/maps.md


def lower_median(values: Floats) -> Any:
    return np.partition(values, (len(values) - 1) // 2, axis=0)[(len(values) - 1) // 2]


def draw(count: int, wanted: int, secret: bytes = bytes(32)) -> Ints:
    if count <= wanted:
        return np.arange(count)
    key = hkdf(secret, b"irwm", b"irwm/v1/alignment-sample")
    return np.sort(orders(key, 1, count)[0][:wanted])


class Side:
    """Rows in units of their typical length, as float32 numbers."""

    def __init__(self, rows: Floats) -> None:
        sample = rows[draw(len(rows), min(4096, max(1024, 2**22 // rows.shape[1])))]
        norms = np.sqrt((sample**2).sum(axis=1))
        self.rows, self.length = rows, float(lower_median(norms[norms > 0]))
        self.units = (rows.astype(np.float32) / np.float32(self.length)).astype(np.float64)


def usable(theirs: Floats) -> NDArray[np.bool_]:
    """Finite rows that are not constant, and not of extreme length."""
    length = np.linalg.norm(theirs, axis=1)
    return (np.ptp(theirs, axis=1) > 0) & (length <= 20 * lower_median(length))


def factor(theirs: Floats, ours: Floats) -> float:
    n, d = ours.shape
    every = max(1, n // min(2048, max(1, 2**20 // d)))
    theirs, ours = theirs[::every], ours[::every]
    size = np.abs(ours)
    large = size >= lower_median(size.ravel()[:: max(1, size.size // 100_000)])
    return float(lower_median(theirs[large] / ours[large]))


Map = tuple[Callable[[Floats, Ints], Floats], float]


def by_columns(suspect: Side, original: Side) -> Map:
    """For a sample of all rows, and without offsets, as the demo model requires."""
    kept = usable(suspect.units)
    a, b = (side.units[kept] - lower_median(side.units[kept]) for side in (suspect, original))
    even, odd = (a[::2], b[::2]), (a[1::2], b[1::2])
    normal = [rows / np.linalg.norm(rows, axis=0) for rows in even]
    if ((normal[0] * normal[1]).sum(axis=0) >= 0.3).all():
        return (lambda rows, tokens: rows), factor(a, b) * suspect.length / original.length
    cosine = normal[1].T @ normal[0]
    columns = np.abs(cosine).argmax(axis=1)
    assert (np.abs(cosine).argmax(axis=0)[columns] == np.arange(len(columns))).all()
    signs = np.sign(cosine[np.arange(len(columns)), columns])
    scale = factor(odd[0][:, columns] * signs, odd[1]) * suspect.length / original.length
    return (lambda rows, tokens: rows[:, columns] * signs), scale


def by_rotation(suspect: Side, original: Side) -> Map:
    kept = usable(suspect.units)
    theirs, ours = suspect.units[kept], original.units[kept]
    u, _, vt = np.linalg.svd(theirs.T @ ours)
    turn = u @ vt
    scale = factor(theirs @ turn, ours) * suspect.length / original.length
    return (lambda rows, tokens: rows @ turn), scale


def by_least_squares(suspect: Side, original: Side, secret: bytes) -> Map:
    s, d = original.rows.shape
    tokens = draw(s, 8 * d, secret)
    halves, fits = (tokens[::2], tokens[1::2]), []
    for half in halves:
        kept = half[usable(suspect.units[half])]
        theirs, ours = suspect.units[kept], original.units[kept]
        here, there = lower_median(theirs), lower_median(ours)
        weights = 1 / np.linalg.norm(theirs - here, axis=1, keepdims=True)
        x, y = (theirs - here) * weights, (ours - there) * weights
        products = x.T @ x
        products += 1e-3 * np.trace(products) / d * np.eye(d)
        matrix = np.linalg.solve(products, x.T @ y) * (original.length / suspect.length)
        fits.append((matrix, here * suspect.length, there * original.length))

    def restore(rows: Floats, of: Ints) -> Floats:
        both = [(rows - here) @ matrix + there for matrix, here, there in fits]
        return np.where(np.isin(of, halves[0])[:, None], both[1], both[0])

    return restore, 1.0


# ---- docs/reading.md


def reading(part: Part, a: Floats, rows: Floats) -> dict[str, Any]:
    p, t, d = part.p, part.t, part.d
    m = np.take_along_axis(a, part.constraint_orders(part.fields["attempt"]), axis=1)
    m[:, -t:] *= part.scale
    centred = m - m.mean(axis=1, keepdims=True)
    w = np.linalg.solve(np.linalg.cholesky(centred @ centred.T), m)
    v = np.take_along_axis(part.basis(part.marked).into(rows), part.row_orders, axis=1)
    v /= v.std(axis=1, ddof=1, keepdims=True)
    observed = np.linalg.norm(v @ w.T, axis=1)
    shared = orders(public(0, b"irwm/v3/null-shared"), p["permutations"], d)
    own = orders(public(0, b"irwm/v3/null-positions"), part.l, d)
    apart = np.take_along_axis(v, own, axis=1)
    null = np.stack([np.linalg.norm(apart[:, order] @ w.T, axis=1) for order in shared], axis=1)
    n = p["permutations"] + 1
    places = 1 + (null <= observed[:, None] * (1 + 1e-9)).sum(axis=1)
    count = int((places / n < p["rank_threshold"]).sum())
    x = float(-np.log(places / n).sum())
    log_terms = [k * math.log(x) - math.lgamma(k + 1) for k in range(part.l)]
    q = max(k for k in range(n) if k / n < p["rank_threshold"]) / n
    tail = math.fsum(math.comb(part.l, k) * q**k * (1 - q) ** (part.l - k) for k in range(count, part.l + 1))
    return {
        "observed": observed[:10].tolist(),
        "ranks": places[:10].tolist(),
        "count": count,
        "log10_p": (-x + max(log_terms) + math.log(sum(math.exp(each - max(log_terms)) for each in log_terms)))
        / math.log(10),
        "log10_p_count": math.log10(tail),
    }


def fingerprint(part: Part, original: Floats, restored: Floats) -> dict[str, float]:
    """`restored` are all the suspect's rows in the original's coordinates and units."""
    s, d, m = part.s, part.d, part.p["noise_coordinates"]
    units = np.linalg.norm(original, axis=1) / math.sqrt(d)
    values = part.basis(np.arange(s)).into(restored - original)
    key = hkdf(part.purpose("basis", False), b"irwm", b"irwm/v3/first-pass")
    share, starts = s // 8, long_words(key, 8).tolist()
    assert share > 256
    sample = np.concatenate(
        [np.arange(256) + number * share + word % (share - 255) for number, word in enumerate(starts)]
    )
    changed = sample[(units[sample] > 0) & (np.ptp(values[sample], axis=1) > 0)]
    sizes = (values[changed] ** 2).mean(axis=1)
    ordinary = values[changed][sizes <= 100 * np.median(sizes)]
    centre = ordinary.mean(axis=0)
    usual = np.median(((ordinary - centre) ** 2).mean(axis=1))
    values[(values != 0).any(axis=1)] -= centre
    variance = (values**2).mean(axis=1)
    weights = np.where((units > 0) & (variance > 0), units / np.maximum(variance, 0.01 * usual), 0)
    gauges = np.where(variance <= 100 * usual, units, 0)
    at, signs = part.places(np.arange(s))
    there = np.take_along_axis(values.astype(np.float32), at, axis=1).astype(np.float64)
    sums = (there * signs).sum(axis=1)
    z = (sums * weights).sum() / math.sqrt(((there**2).sum(axis=1) * weights**2).sum())
    return {"z": z, "share": (sums * gauges).sum() / (m * part.p["spread"] * (gauges * units).sum())}


# ---- the tests


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(demo_vectors.VECTORS.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        if name in ("ranks", "count"):
            assert value == expected[name], name
        else:
            assert value == pytest.approx(expected[name], rel=1e-9, abs=1e-9), name


@pytest.mark.slow
def test_the_program_gives_the_published_numbers(published: dict[str, Any]) -> None:
    again = demo_vectors.vectors()
    for made, key in zip(map(json.loads, again["keys"]), map(json.loads, published["keys"]), strict=True):
        # The last bits of the scale depend on the CPU.
        for part, there in ((made, key), (made["head"], key["head"])):
            assert part.pop("scale") == pytest.approx(there.pop("scale"), rel=1e-12)
        assert made == key
    for place, facts in again["written"].items():
        assert facts["invariant"] == pytest.approx(published["written"][place]["invariant"], rel=1e-9)
        assert {**facts, "invariant": 0} == {**published["written"][place], "invariant": 0}
    for name, suspect in again["suspects"].items():
        before = published["suspects"][name]
        assert suspect["sha256"] == before["sha256"]
        assert suspect["row_scale"] == pytest.approx(before["row_scale"], rel=1e-9)
        for who in demo_vectors.RECIPIENTS:
            for place in PLACES:
                for by, numbers in suspect[who][place].items():
                    same(numbers, before[who][place][by])


@pytest.mark.slow
def test_documentation_alone_gives_the_published_numbers(published: dict[str, Any], model: Model) -> None:
    keys = [json.loads(each) for each in published["keys"]]
    copies: list[dict[str, NDArray[np.uint16]]] = []
    for text, key in zip(published["keys"], keys, strict=True):
        assert canonical(key).decode() == text
        assert key["layer0_digest"] == model.layer0_digest()
        copies.append({})
        for place in PLACES:
            part = Part(key, place)
            assert part.fields["model_fingerprint"] == model.fingerprint(place)
            read = [model.rows["embedding"][part.query], model.rows["embedding"][part.reference]]
            read.append(model.rows[place][part.marked])
            values = np.concatenate(read).astype("<f4").tobytes()
            assert part.fields["rows_digest"] == hashlib.sha256(b"irwm/v3/rows\0" + values).hexdigest()
            a = equations(part, model)
            attempt, scale, marked = solved(part, model, a)
            assert attempt == part.fields["attempt"]
            assert math.isclose(scale, part.scale, rel_tol=1e-9)
            made = copies[-1][place] = copy_of(part, model, marked)
            if key is keys[0]:
                expected = published["written"][place]
                assert part.query.tolist() == expected["query_tokens"]
                assert part.marked[:10].tolist() == expected["marked_rows"]
                assert a[0, :10].tolist() == pytest.approx(expected["invariant"], rel=1e-9)
                units = np.rint(a / 1e-6).astype("<i8").tobytes()
                assert hashlib.sha256(units).hexdigest() == expected["invariant_sha256"]
                assert hashlib.sha256(made[part.marked].tobytes()).hexdigest() == expected["marked_bytes_sha256"]
                assert hashlib.sha256(made.tobytes()).hexdigest() == expected["tensor_sha256"]
    for name, suspect in suspects(copies).items():
        before = published["suspects"][name]
        for place in PLACES:
            assert hashlib.sha256(suspect[place].tobytes()).hexdigest() == before["sha256"][place]
            shape = model.rows[place].shape
            theirs = Side(from_bfloat16(suspect[place].tobytes(), shape).astype(np.float64))
            original = Side(model.rows[place])
            fit = by_rotation if name == "turned" and place == "embedding" else by_columns
            found = {"aligned": fit(theirs, original)}
            assert found["aligned"][1] == pytest.approx(before["row_scale"][place], rel=1e-9)
            for key in keys:
                part = Part(key, place)
                a = equations(part, model)
                maps = found | {"least squares": by_least_squares(theirs, original, part.samples)}
                for by, (restore, scale) in maps.items():
                    rows = restore(theirs.rows[part.marked], part.marked)
                    everything = restore(theirs.rows, np.arange(part.s)) / scale
                    numbers = reading(part, a, rows) | fingerprint(part, model.rows[place], everything)
                    same(numbers, before[key["recipient"]][place][by])


def suspects(copies: list[dict[str, NDArray[np.uint16]]]) -> dict[str, dict[str, NDArray[np.uint16]]]:
    """The four suspects of docs/reading.md, *Test vectors*."""
    first = copies[0]
    d = first["embedding"].shape[1]
    order = orders(public(1, b"irwm/demo/columns"), 1, d)[0]
    reordered = first["embedding"][:, order].copy()
    reordered[:, ::3] ^= 0x8000
    numbers = [{p: from_bfloat16(v.tobytes(), v.shape).astype(np.float64) for p, v in each.items()} for each in copies]
    basis = Basis(public(1, b"irwm/demo/turn"), d, np.zeros(1, dtype=np.int64), 1)
    return {
        "released": first,
        "reordered": {**first, "embedding": reordered},
        "turned": {**first, "embedding": to_bfloat16(basis.into(numbers[0]["embedding"]))},
        "mixed": {place: to_bfloat16((numbers[0][place] + numbers[1][place]) / 2) for place in PLACES},
    }
