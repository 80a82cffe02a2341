"""docs/demo-vectors.json follows from docs/key-format.md, docs/reading.md and docs/maps.md.

The verifier that was written from these pages alone (tests/cleanroom) gives the same digests, ranks, p and z.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cleanroom.verifier.checks import Place
from tests.cleanroom.verifier.keys import Key, cosine_transform, hkdf, orders, stream
from tests.cleanroom.verifier.models import Checkpoint, Layer0, encode
from tests.cleanroom.verifier.reading import log10_p
from tests.cleanroom.verifier.written import Original
from tools import demo_vectors
from tools.small_models import DEMO

PLACES = ("embedding", "head")
Bits = NDArray[np.uint16]
Floats = NDArray[np.float64]


class Changed(Checkpoint):
    """The demo model with other rows, in bfloat16 as its own."""

    def __init__(self, rows: dict[str, Bits]) -> None:
        super().__init__(DEMO)
        self.rows = {self.matrix(place): bits for place, bits in rows.items()}

    def raw(self, name: str) -> bytes:
        return self.rows[name].tobytes() if name in self.rows else super().raw(name)


def sha256(values: NDArray[Any]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def suspects(copies: list[dict[str, Bits]]) -> dict[str, dict[str, Bits]]:
    """The four suspects of docs/reading.md, *Test vectors*."""
    first = copies[0]
    one, other = ({place: numbers_in(bits) for place, bits in each.items()} for each in copies)
    order = orders(public(b"irwm/demo/columns"), 1, first["embedding"].shape[1])[0]
    reordered = first["embedding"][:, order]
    reordered[:, ::3] ^= 0x8000
    return {
        "released": first,
        "reordered": {**first, "embedding": reordered},
        "turned": {**first, "embedding": encode(turned(one["embedding"]), "BF16")},
        "mixed": {place: encode((one[place] + other[place]) / 2, "BF16") for place in PLACES},
    }


def numbers_in(bits: Bits) -> Floats:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def public(info: bytes) -> bytes:
    return hkdf((1).to_bytes(16, "little"), b"irwm", info)


def turned(rows: Floats) -> Floats:
    """Every row times the basis of row 0 under a public key."""
    d, key = rows.shape[1], public(b"irwm/demo/turn")
    words = stream(hkdf(key, b"irwm", b"irwm/v3/row-signs"), 0, 2 * -(-d // 32), 32)
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(2, -1)[:, :d]
    outer, inner = 1.0 - 2.0 * bits
    c = cosine_transform(d)
    return (((rows * outer) @ c)[:, orders(key, 1, d)[0]] * inner) @ c


def reading(place: Place, by: str) -> dict[str, Any]:
    found, n = place.reading(by, seed=0), place.key.parameters["permutations"]
    fisher, counted = log10_p(found, n)
    z, share = place.noise(by, place.aligned.row_scale).score()
    return {
        "observed": found.observed[:10].tolist(),
        "ranks": np.rint(found.ranks[:10] * (n + 1)).astype(int).tolist(),
        "count": found.count,
        "log10_p": fisher,
        "log10_p_count": counted,
        "z": z,
        "share": share,
    }


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(demo_vectors.VECTORS.read_text(encoding="utf-8"))
    return found


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
    assert again["layer0"].keys() == published["layer0"].keys()
    for name, facts in again["layer0"].items():
        before = published["layer0"][name]
        assert facts["invariant"] == pytest.approx(before["invariant"], rel=1e-9, abs=1e-12)
        assert {**facts, "invariant": 0} == {**before, "invariant": 0}
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


@pytest.mark.parametrize("name", demo_vectors.FAMILIES)
def test_layer_0_of_other_families_follows_from_the_documentation(published: dict[str, Any], name: str) -> None:
    model, expected = Checkpoint(demo_vectors.SMALL / name), published["layer0"][name]
    layer0, rows = Layer0(model), model.array(model.embedding).astype(np.float64)
    first, stop = demo_vectors.QUERIES.start, demo_vectors.QUERIES.stop
    a = layer0.invariant(rows[first:stop], rows[stop : stop + rows.shape[1]])
    assert layer0.digest() == expected["layer0_digest"]
    assert a[0, :10].tolist() == pytest.approx(expected["invariant"], rel=1e-9, abs=1e-12)
    assert sha256(np.rint(a / 1e-6).astype("<i8")) == expected["invariant_sha256"]


@pytest.mark.slow
def test_documentation_alone_gives_the_published_numbers(published: dict[str, Any]) -> None:
    model = Checkpoint(DEMO)
    originals: list[dict[str, Original]] = []
    for text in published["keys"]:
        key = Key(text.encode())
        assert key.fields["layer0_digest"] == Layer0(model).digest()
        originals.append({place: Original(model, key.place(place)) for place in PLACES})
        for original in originals[-1].values():
            assert original.key.fingerprint == model.fingerprint(original.name)
            assert original.key.rows_digest == original.rows_digest.hexdigest()
            assert original.key.attempt == original.attempt
            assert original.key.scale == pytest.approx(original.scale, rel=1e-9)
    copies = [{place: original.written_matrix() for place, original in each.items()} for each in originals]
    for place, original in originals[0].items():
        made, expected = copies[0][place], published["written"][place]
        query, _, marked = original.key.tokens
        assert query.tolist() == expected["query_tokens"]
        assert marked[:10].tolist() == expected["marked_rows"]
        assert original.a[0, :10].tolist() == pytest.approx(expected["invariant"], rel=1e-9)
        assert sha256(np.rint(original.a / 1e-6).astype("<i8")) == expected["invariant_sha256"]
        assert sha256(made[marked]) == expected["marked_bytes_sha256"]
        assert sha256(made) == expected["tensor_sha256"]
    for name, rows in suspects(copies).items():
        suspect, before = Changed(rows), published["suspects"][name]
        assert {place: sha256(bits) for place, bits in rows.items()} == before["sha256"]
        for original in (original for each in originals for original in each.values()):
            place = Place(original, suspect)
            who, where = original.key.recipient, original.key.name
            assert place.aligned.row_scale == pytest.approx(before["row_scale"][where], rel=1e-9)
            for by in ("aligned", "least squares"):
                same(reading(place, by), before[who][where][by])
