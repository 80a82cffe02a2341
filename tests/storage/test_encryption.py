from __future__ import annotations

import secrets
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import Cost, CostError, DamagedRecordError, PassphraseError, WrongPassphraseError, encryption
from storage.encryption import DEFAULT_COST, Place, Sealer, WrappedKey, passphrase_bytes, unwrap, wrap
from tests.storage.conftest import CHEAP

DATA_KEY = bytes(range(32))
PLACE = Place(1, "keys", "00ff", "meta", 7, "2026-01-01T00:00:00.000Z")


def test_key_derivation_is_argon2id_as_its_authors_published_it() -> None:
    # github.com/P-H-C/phc-winner-argon2, src/test.c, Argon2id version 0x13: t = 2, m = 2^8 KiB, p = 1.
    expected = "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe"
    assert encryption._derive("password", b"somesalt", Cost(256, 2, 1)).hex() == expected


def test_the_default_cost_is_rfc_9106s_for_ordinary_machines() -> None:
    assert Cost(64 * 1024, 3, 1) == DEFAULT_COST


@pytest.mark.fault(47)
def test_composed_and_decomposed_letters_are_one_passphrase() -> None:
    composed, decomposed = (unicodedata.normalize(form, "Zürich Ångström é") for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert unwrap(wrap(DATA_KEY, composed, "v", CHEAP), decomposed, "v") == DATA_KEY


@pytest.mark.fault(47)
@pytest.mark.parametrize("other", [" secret", "secret ", "secret\n", "Secret", "se cret", " "])
def test_spaces_and_capitals_count(other: str) -> None:
    with pytest.raises(WrongPassphraseError):
        unwrap(wrap(DATA_KEY, "secret", "v", CHEAP), other, "v")
    assert unwrap(wrap(DATA_KEY, other, "v", CHEAP), other, "v") == DATA_KEY


@pytest.mark.parametrize("passphrase", ["", "x" * 1025, "\ud800", None])
def test_what_cannot_be_a_passphrase_is_refused(passphrase: Any) -> None:
    with pytest.raises(PassphraseError) as caught:
        passphrase_bytes(passphrase)
    assert caught.value.__context__ is None  # an encoder's exception would put the passphrase into a log


@pytest.mark.fault(47)
def test_megabyte_passphrase_is_refused_at_once(derives: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "unicodedata", None)  # normalising that much takes long
    with pytest.raises(PassphraseError):
        wrap(DATA_KEY, "é" * 2**20, "v", DEFAULT_COST)
    assert not derives


def test_the_longest_passphrase_works_in_any_script() -> None:
    longest = "語" * 1024
    assert unwrap(wrap(DATA_KEY, longest, "v", CHEAP), longest, "v") == DATA_KEY


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    "numbers",
    [
        *((2**32 - 1, 1, 1), (2**70, 1, 1), (encryption.MOST_MEMORY_KIB + 1, 1, 1), (encryption.MOST_MEMORY_KIB, 9, 1)),
        *((64, encryption.MOST_PASSES + 1, 1), (64, 1, encryption.MOST_LANES + 1), (8, 1, 2)),
        *((0, 1, 1), (64, 0, 1), (64, 1, -1), (64.0, 1, 1), (True, 1, 1), ("64", 1, 1), (None, 1, 1)),
    ],
)
def test_excessive_cost_is_refused_before_derivation(numbers: tuple[int, int, int], derives: list[bytes]) -> None:
    with pytest.raises(CostError):
        wrap(DATA_KEY, "secret", "v", Cost(*numbers))
    assert not derives


def test_all_unwrap_failures_have_the_same_message() -> None:
    wrapped = wrap(DATA_KEY, "right", "v", CHEAP)
    broken = bytearray(wrapped.sealed)
    broken[20] ^= 1
    tries: list[tuple[WrappedKey, str, str]] = [
        (wrapped, "wrong", "v"),
        (wrapped, "right", "another vault"),
        (replace(wrapped, sealed=bytes(broken)), "right", "v"),
        (replace(wrapped, sealed=b""), "right", "v"),
        (replace(wrapped, sealed=b"\x09" + wrapped.sealed[1:]), "right", "v"),
        (replace(wrapped, salt=secrets.token_bytes(16)), "right", "v"),
        (replace(wrapped, salt=b"short"), "right", "v"),
        (replace(wrapped, cost=Cost(16, 1, 1)), "right", "v"),
        (wrap(b"not 32 bytes", "right", "v", CHEAP), "right", "v"),
    ]
    messages = set()
    for attempt in tries:
        with pytest.raises(WrongPassphraseError) as caught:
            unwrap(*attempt)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_two_wraps_share_no_salt_and_no_bytes() -> None:
    first, second = (wrap(DATA_KEY, "same", "v", CHEAP) for _ in range(2))
    assert first.salt != second.salt
    assert first.sealed != second.sealed


@given(st.binary(max_size=300))
def test_sealed_value_opens_in_its_place(plain: bytes) -> None:
    sealer = Sealer(DATA_KEY, "v")
    sealed = sealer.seal(plain, PLACE)
    assert sealer.open(sealed, PLACE) == plain
    assert sealer.seal(plain, PLACE) != sealed


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"table": "cases"},
        {"record": "00fe"},
        {"part": "body"},
        {"sequence": 8},
        {"created": "2026-01-01T00:00:00.001Z"},
    ],
    ids=str,
)
def test_sealed_value_does_not_open_elsewhere(change: dict[str, Any]) -> None:
    sealer = Sealer(DATA_KEY, "v")
    moved = replace(PLACE, **change)
    with pytest.raises(DamagedRecordError) as caught:
        sealer.open(sealer.seal(b"plain", PLACE), moved)
    assert (caught.value.table, caught.value.record) == (moved.table, moved.record)


def test_another_vault_or_key_opens_nothing() -> None:
    sealed = Sealer(DATA_KEY, "v").seal(b"plain", PLACE)
    for other in (Sealer(DATA_KEY, "w"), Sealer(bytes(32), "v")):
        with pytest.raises(DamagedRecordError):
            other.open(sealed, PLACE)


def test_sealed_value_is_bound_to_vault_and_key() -> None:
    assert PLACE.associated_data("v") != PLACE.associated_data("w")


def test_any_flipped_bit_and_any_cut_is_noticed() -> None:
    sealer = Sealer(DATA_KEY, "v")
    sealed = sealer.seal(b"plain", PLACE)
    changed: list[object] = [sealed[:n] for n in range(len(sealed))] + [sealed + b"\0", None, 7, sealed.hex()]
    for bit in range(len(sealed) * 8):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        changed.append(bytes(flipped))
    for value in changed:
        with pytest.raises(DamagedRecordError):
            sealer.open(value, PLACE)


def test_tags_fit_their_message_alone() -> None:
    sealer = Sealer(DATA_KEY, "v")
    tag = sealer.tag(b"message")
    assert sealer.tag_fits(b"message", tag)
    assert not sealer.tag_fits(b"messagf", tag)
    assert not Sealer(DATA_KEY, "w").tag_fits(b"message", tag)
    assert not sealer.tag_fits(b"message", None)
