"""Keys are derived again bit for bit: compared with the published vectors, and with an independent implementation."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import irwm
from irwm.errors import KeyFormatError, KeyMismatchError, ParameterError, holds_controls
from irwm.keys.key import Key
from irwm.keys.neurons import NeuronsKey
from irwm.scheme import keystream, permutations
from irwm.scheme.row_pool import RowPool
from tests.cleanroom.verifier import keys as independent
from tools.key_vectors import NOISE_ROWS, VECTORS, derived, keys, vector
from tools.small_models import write_llama

# Any text that is a valid name for a key: it can be encoded, and every character of it is visible or joins two.
NAMES = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda name: not holds_controls(name))


def a_key(**changes) -> Key:
    values = {
        "secret": bytes(range(32)),
        "parameters": irwm.Parameters(positions=12, constraints=3, required_positions=7),
        "model_fingerprint": hashlib.sha256(b"model").hexdigest(),
        "rows_digest": hashlib.sha256(b"rows").hexdigest(),
        "layer0_digest": hashlib.sha256(b"layer 0").hexdigest(),
        "vocab_size": 160,
        "hidden_size": 16,
        "pool": RowPool(160, ((0, 3), (40, 41), (150, 160))),
        "attempt": 2,
        "scale": 1000.0,
        "owner": "Ørsted & Co.",
        "recipient": "",
    }
    return Key(**(values | changes))


@given(
    st.integers(1, 40).flatmap(
        lambda d: st.lists(
            st.lists(st.one_of(st.integers(0, 70), st.integers(0, 2**64 - 1)), min_size=d, max_size=d),
            min_size=1,
            max_size=5,
        )
    )
)
def test_orders_are_stable_argsorts_for_any_ties(rows: list[list[int]]) -> None:
    """Small numbers agree in all but their lowest bits, which the fast method uses for the positions."""
    numbers = np.array(rows, dtype=np.uint64)
    assert np.array_equal(permutations.stable_orders(numbers), np.argsort(numbers, axis=1, kind="stable"))


def test_permutations_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.argsort(keystream.words(bytes(32), 9 * 1000).reshape(9, 1000), axis=1, kind="stable")
    for at_once in (1, 2500, 1 << 18):
        monkeypatch.setattr(permutations, "_WORDS_AT_ONCE", at_once)
        assert np.array_equal(permutations.permutations(bytes(32), 9, 1000), whole)
    assert permutations.permutations(bytes(32), 0, 7).shape == (0, 7)
    assert permutations.permutations(bytes(32), 2, 1).tolist() == [[0], [0]]


# RFC 8439, appendix A.1, test vectors 1 and 2: blocks 0 and 1 of key and nonce zero.
CHACHA20 = (
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
)


def test_keystream_follows_rfc_8439_and_rfc_5869() -> None:
    words = np.frombuffer(bytes.fromhex(CHACHA20), dtype="<u8").tolist()
    assert keystream.words(bytes(32), 16).tolist() == words
    assert keystream.words(bytes(32), 6, 10).tolist() == words[10:]
    # RFC 5869, test case 1, first 32 bytes of OKM.
    okm = keystream.derive(bytes([11]) * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert okm.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"


def documented_values(key: independent.PlaceKey) -> dict[str, np.ndarray]:
    """The values of tools/key_vectors.py, from the verifier that was written from docs/key-format.md alone."""
    query, reference, marked = key.tokens
    found = {
        "query_tokens": query,
        "reference_tokens": reference,
        "marked_rows": marked,
        "row_permutations": key.row_permutations,
        "constraint_permutations": key.constraint_permutations(key.attempt),
    }
    if key.parameters["hidden"]:
        signs = np.stack(key._signs(np.arange(NOISE_ROWS)), axis=1).reshape(2 * NOISE_ROWS, key.d)
        found |= {"basis_order": key._basis[1], "basis_signs": signs.astype(np.int64)}
    if key.m:
        places, signs = key.noise()
        found |= {"noise_places": places[:NOISE_ROWS], "noise_signs": signs[:NOISE_ROWS].astype(np.int64)}
        if not key.spread:
            found["noise_sizes"] = np.rint(1e9 * key.noise_sizes()[:NOISE_ROWS]).astype(np.int64)
    return found


def test_published_vectors_rederive() -> None:
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    assert vectors == [vector(key) for key in keys()]
    for each in vectors:
        raw = each["key"].encode("utf-8")
        key = Key.from_bytes(raw)
        documented = independent.Key(raw)
        assert key.commitment == documented.commitment == each["commitment"]
        again = documented_values(documented.place("embedding"))
        if key.head is not None:
            again |= {f"head_{name}": values for name, values in documented_values(documented.place("head")).items()}
        ours_by_name = derived(key)
        assert ours_by_name.keys() == again.keys()
        for name, ours in ours_by_name.items():
            assert ours.tolist() == again[name].tolist(), name
            assert hashlib.sha256(ours.astype("<i8").tobytes()).hexdigest() == each["sha256"][name], name
        for name in ("marked_rows", "query_tokens"):
            assert again[name].tolist() == each[name]


@pytest.mark.fault(86)
@pytest.mark.parametrize(
    ("name", "value"),
    [("scale", 1e9), ("constraints", 1), ("positions", 30_000), ("permutations", 10**9), ("rank_threshold", 0.9)],
)
def test_setting_out_of_range_is_refused_when_a_key_is_made_read_or_used(
    tiny_path: Path, name: str, value: float
) -> None:
    """The settings that made nine of twelve arbitrary keys "found" on an unmarked model, set without the check of
    `Parameters`."""
    model = irwm.open_checkpoint(tiny_path)
    smuggled = irwm.Parameters.paper()
    key = irwm.generate_key(model, irwm.Parameters.paper(), secret=bytes(32))
    for parameters in (smuggled, key.parameters):
        object.__setattr__(parameters, name, value)
    for error, refused in (
        (ParameterError, lambda: irwm.generate_key(model, smuggled)),
        (KeyFormatError, lambda: Key.from_bytes(key.to_bytes())),
        (ParameterError, lambda: irwm.detect(model, model, key)),
        (ParameterError, lambda: irwm.insert(model, key, tiny_path / "out")),
    ):
        with pytest.raises(error) as caught:
            refused()
        assert name in caught.value.problem
        assert caught.value.expected
    assert not (tiny_path / "out").exists()


@pytest.mark.parametrize("seed", [0, 7, -3, 2**126])
def test_public_orders_equal_the_documented_ones(seed: int) -> None:
    """docs/key-format.md, *The public permutations*."""
    positions, orders, d = 3, 4, 16
    found = permutations.NullOrders.of(seed, orders, positions, d)
    shared, own = independent.public_orders(seed, orders, positions, d)
    assert np.array_equal(found.shared, shared)
    assert np.array_equal(found.own, own)
    longer = permutations.NullOrders.of(seed, orders, positions + 2, d)  # a longer key does not change them
    assert longer.own[:positions].tolist() == found.own.tolist()


@given(st.binary(min_size=32, max_size=32), NAMES, NAMES)
def test_key_round_trips_through_bytes(secret: bytes, owner: str, recipient: str) -> None:
    key = a_key(secret=secret, owner=owner, recipient=recipient)
    raw = key.to_bytes()
    again = Key.from_bytes(raw)
    assert again == key
    assert again.to_bytes() == raw


def test_marked_rows_avoid_the_invariants_tokens_and_the_excluded_rows() -> None:
    key = a_key()
    choices = key.choices()
    used = np.concatenate((choices.marked_rows, choices.query_tokens, choices.reference_tokens))
    assert len(set(used.tolist())) == used.size
    assert not set(used.tolist()) & ({*range(3), 40} | set(range(150, 160)))


def test_the_recipient_decides_the_rows_but_not_the_tokens() -> None:
    """Algorithm 6 computes one A_m for all users; everything else must differ from recipient to recipient."""
    one, two = a_key(recipient="one").choices(), a_key(recipient="two").choices()
    assert one.query_tokens.tolist() == two.query_tokens.tolist()
    assert one.reference_tokens.tolist() == two.reference_tokens.tolist()
    assert one.marked_rows.tolist() != two.marked_rows.tolist()
    assert one.row_permutations.tolist() != two.row_permutations.tolist()
    # The two names are separate: no text can move from one to the other.
    a, b = a_key(owner="ab", recipient="c").choices(), a_key(owner="a", recipient="bc").choices()
    assert a.marked_rows.tolist() != b.marked_rows.tolist()


def test_the_secret_is_not_in_a_keys_text() -> None:
    key = a_key()
    assert key.secret.hex() not in repr(key)
    assert str(key.secret) not in repr(key)


VALUES = json.loads(a_key().to_bytes())
WRONG: dict[str, list[object]] = {
    "version": [1],
    "format": ["other"],
    "secret": ["00"],
    "attempt": [-1, True],
    "scale": [0.0],
    "excluded_rows": [[[5, 3]], [[0.0, 4.0]], [[False, 4]], [[0, 10**9]]],
    "vocab_size": [10**12],
    "hidden_size": ["16"],
    "parameters": [
        *({"positions": -1}, []),
        *(VALUES["parameters"] | wrong for wrong in ({"constraints": 1}, {"scale": 1e9}, {"rank_threshold": 0.6})),
    ],
    "model_fingerprint": ["zz"],
    "owner": [7],
    "extra": [1],
}


def written(values: object) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "raw",
    [
        *(written(VALUES | {name: value}) for name, values in WRONG.items() for value in values),
        *(written([VALUES]), b"{}", b"", b"\xff\xfe", b"null", b"[" * 5000, b" " + written(VALUES)),
    ],
)
def test_corrupted_keys_and_other_bytes_are_refused(raw: bytes) -> None:
    assert Key.from_bytes(written(VALUES)) == a_key()
    with pytest.raises(KeyFormatError):
        Key.from_bytes(raw)


@pytest.mark.fault(34)
def test_generation_binds_the_key_to_its_model(tiny_path, tmp_path) -> None:
    model = irwm.open_checkpoint(tiny_path)
    key = irwm.generate_key(model, owner="us", secret=bytes(32))
    assert key == irwm.generate_key(model, owner="us", secret=bytes(32))
    assert key.model_fingerprint == model.fingerprint
    other = irwm.open_checkpoint(write_llama(tmp_path / "other", seed=1))
    with pytest.raises(KeyMismatchError):
        irwm.detect(model, other, key)
    assert irwm.generate_key(model).secret != irwm.generate_key(model).secret


def test_decoy_keys_are_drawn_again_from_their_public_seed(tiny_path: Path) -> None:
    model, params = irwm.open_checkpoint(tiny_path), irwm.Parameters(positions=12, constraints=3, required_positions=7)
    first, again, second, seeded = (
        irwm.decoy_key(irwm.open_checkpoint(tiny_path), params, number, seed)
        for number, seed in ((1, 0), (1, 0), (2, 0), (1, 5))
    )
    assert first.to_bytes() == again.to_bytes()
    assert len({key.secret for key in (first, second, seeded)}) == 3
    assert irwm.detect(model, model, first).verdict == "not found"


def test_the_pool_and_the_parameters_are_bound_into_every_choice() -> None:
    """If the pool could be modified row by row, a forger could steer each permutation onto a row that ranks low by
    chance."""
    plain = a_key().choices()
    for changed in (
        a_key(pool=RowPool(160, ((0, 3), (40, 42), (150, 160)))),
        a_key(parameters=irwm.Parameters(positions=12, constraints=3, required_positions=8)),
        a_key(layer0_digest=hashlib.sha256(b"another layer 0").hexdigest()),
    ):
        assert changed.choices().row_permutations.tolist() != plain.row_permutations.tolist()
        assert changed.choices().query_tokens.tolist() != plain.query_tokens.tolist()


@pytest.mark.parametrize("change", [{"attempt": 7}, {"scale": 500.0}])
def test_key_with_a_chosen_attempt_or_scale_is_refused(tiny_path, change: dict) -> None:
    model = irwm.open_checkpoint(tiny_path)
    key = replace(irwm.generate_key(model, secret=bytes(32)), **change)
    with pytest.raises(KeyMismatchError):
        irwm.detect(model, model, key)


def test_a_key_of_absurd_size_is_refused_before_anything_is_computed(tiny_path) -> None:
    key = a_key(
        hidden_size=2**20, vocab_size=2**25, pool=RowPool(2**25, ()), parameters=irwm.Parameters(positions=5000)
    )
    with pytest.raises(KeyMismatchError):
        irwm.detect(irwm.open_checkpoint(tiny_path), irwm.open_checkpoint(tiny_path), key)


@pytest.mark.parametrize(
    "bad",
    [
        {"secret": b"short"},
        {"secret": 32},
        {"owner": "\ud800"},
        {"owner": "x" * 201},
        {"params": irwm.Parameters(positions=600)},
        {"params": irwm.Parameters(constraints=64)},
        {"params": irwm.Parameters(noise_coordinates=64)},
    ],
)
def test_impossible_keys_are_refused(tiny_path, bad: dict) -> None:
    with pytest.raises(ParameterError):
        irwm.generate_key(irwm.open_checkpoint(tiny_path), **bad)


@pytest.mark.fault(81, 99)
@pytest.mark.parametrize(
    "name",
    [
        *("a\nb", "a\x1b[2J", "\u202eabc", "a\u2028b", "a\u2066b", "a\x85", "\t"),
        *("\ufeffa", "a\U000e0041", "a\u200b", "a\u00ad", "a\u3164", "a\ufe0f"),
    ],
)
@pytest.mark.parametrize("who", ["owner", "recipient"])
def test_a_name_with_line_breaks_or_direction_characters_is_refused(tiny_path: Path, who: str, name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        irwm.generate_key(irwm.open_checkpoint(tiny_path), **{who: name})
    assert str(caught.value).isprintable()


NEURONS_VALUES = {"mlps": [0, 2], "fingerprint": "ab" * 32, "width": 64}
WRONG_NEURONS = [
    *({"mlps": mlps} for mlps in ([], [2, 0], [1, 1], [-1], [True], [0.0], ["0"], [1 << 21], "01", None)),
    *({"width": width} for width in (0, 8, -1, 1 << 24, 64.0, True, None)),
    *({"fingerprint": text} for text in ("ab" * 31, "AB" * 32, "", 7, None)),
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG_NEURONS)
def test_corrupted_parts_for_neurons_are_refused(tiny_path: Path, wrong: dict[str, object]) -> None:
    model = irwm.open_checkpoint(tiny_path)
    key = irwm.generate_key(model, irwm.Parameters(noise_coordinates=8, constraints=5), bytes(32))
    values = json.loads(key.to_bytes())
    assert "neurons" in values["parameters"]["places"]
    right = values | {"neurons": NEURONS_VALUES}
    assert Key.from_bytes(written(right)).neurons == NeuronsKey((0, 2), "ab" * 32, 64)
    with pytest.raises(KeyFormatError):
        Key.from_bytes(written(values | {"neurons": NEURONS_VALUES | wrong}))


def test_a_part_for_neurons_requires_the_setting(tiny_path: Path) -> None:
    model = irwm.open_checkpoint(tiny_path)
    params = irwm.Parameters(noise_coordinates=8, constraints=5, places=("embedding", "head"))
    values = json.loads(irwm.generate_key(model, params, bytes(32)).to_bytes())
    with pytest.raises(KeyFormatError, match="neurons"):
        Key.from_bytes(written(values | {"neurons": NEURONS_VALUES}))


def test_keys_of_one_release_share_their_neurons_and_other_secrets_choose_others(trained: dict[str, Path]) -> None:
    """With room for one MLP only."""
    model = irwm.open_checkpoint(trained["demo"])
    params = irwm.Parameters(noise_coordinates=8)
    one, other = (irwm.generate_key(model, params, bytes(32), recipient=name).neurons for name in ("ann", "bob"))
    assert one == other
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("irwm.keys.neurons.MOST_ROWS", 1)
        chosen = {irwm.generate_key(model, params, bytes([i]) * 32).neurons.mlps for i in range(20)}  # type: ignore[union-attr]
    assert len(chosen) > 1
    assert all(len(mlps) == 1 for mlps in chosen)
