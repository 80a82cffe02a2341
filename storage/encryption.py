"""Passphrase to key, and records sealed so that any change, exchange or move is detected.

    passphrase --NFC, UTF-8, Argon2id--> wrapping key --ChaCha20-Poly1305--> data key (random, 32 bytes)
    data key --HKDF-SHA256--> record key, audit key, key identifier

A new passphrase comes with a new data key, under which every record is sealed again (`storage.rekey`). Anyone who knew
the old passphrase and kept an old copy of the file has the old data key, but that key opens no part of the new file.
Python cannot reliably wipe memory, so locking only drops every reference to the keys.

A sealed value is `version (1 byte) | nonce (12 bytes) | ciphertext and tag`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import unicodedata
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from storage.canonical import json_bytes
from storage.errors import CostError, DamagedRecordError, PassphraseError, StorageError, WrongPassphraseError

# No user types this many; a pasted megabyte is a mistake, and normalising it would take time before any check.
LONGEST_PASSPHRASE = 1024
KEY_BYTES = 32
# Length of the data key's public identifier: enough that no two keys share one.
KEY_ID_BYTES = 16
# RFC 9106, section 3.1, recommends 16 bytes of salt.
SALT_BYTES = 16
# ChaCha20-Poly1305's nonce. Random ones collide with probability 2^-33 after 2^32 seals under one key, far more
# than a vault will ever hold.
NONCE_BYTES = 12
SEAL_VERSION = 1
# Eight times the default in each direction, and 4 GiB of memory traffic in all, bound an unlock to about 15 s and
# 512 MiB for any file.
MOST_MEMORY_KIB = 512 * 1024
MOST_PASSES = 24
MOST_LANES = 8
MOST_WORK_KIB = 4 * 1024 * 1024
# One derivation at a time in a process: each may use half a gigabyte, and anyone may request one.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one guess at the passphrase (Argon2id's m, t and p of RFC 9106).

    Attributes:
        memory_kib: m, memory in KiB.
        passes: t, passes over that memory.
        lanes: p, parallel lanes.

    Raises:
        CostError: outside the accepted range. The numbers are read from a file that anyone may have edited, and
            are checked before any of that memory is allocated.
    """

    memory_kib: int
    passes: int
    lanes: int

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("lanes", self.lanes, 1, MOST_LANES),
            ("passes", self.passes, 1, MOST_PASSES),
            # Argon2 itself needs 8 KiB per lane.
            ("memory_kib", self.memory_kib, 8, MOST_MEMORY_KIB),
        ):
            if type(value) is not int or not low <= value <= high:
                raise CostError(
                    f"the key-derivation cost {name} is out of range",
                    expected=f"a whole number from {low} to {high}",
                    found=repr(value),
                )
        if self.memory_kib < 8 * self.lanes:
            raise CostError("Argon2id needs 8 KiB of memory per lane", found=f"{self.memory_kib} KiB")
        if self.memory_kib * self.passes > MOST_WORK_KIB:
            raise CostError(
                "the key-derivation cost is out of range",
                expected=f"at most {MOST_WORK_KIB} for memory_kib × passes",
                found=str(self.memory_kib * self.passes),
            )


# RFC 9106's second recommended option is 64 MiB and 3 passes. Its 4 lanes help only with 4 free cores; one lane costs
# a guesser the same memory and works the same everywhere. About 0.2 s on an office computer.
DEFAULT_COST = Cost(memory_kib=64 * 1024, passes=3, lanes=1)


def passphrase_bytes(passphrase: str) -> bytes:
    """The bytes that are hashed: NFC, then UTF-8, nothing stripped.

    NFC, because keyboards and systems write the same accented letter in one code point or two. Spaces count, also
    leading and trailing ones: silently dropping typed characters would weaken the passphrase.

    Raises:
        PassphraseError: empty, longer than `LONGEST_PASSPHRASE` characters, or not valid Unicode.
    """
    if not isinstance(passphrase, str):
        raise PassphraseError("a passphrase must be text", found=type(passphrase).__name__)
    if not passphrase:
        raise PassphraseError("the passphrase is empty", advice="choose several words that only you would put together")
    if len(passphrase) > LONGEST_PASSPHRASE:
        raise PassphraseError(
            "the passphrase is too long",
            expected=f"at most {LONGEST_PASSPHRASE} characters",
            found=f"{len(passphrase)} characters",
        )
    if any("\ud800" <= character <= "\udfff" for character in passphrase):
        # Checked explicitly: the encoder's own exception contains the passphrase, and a log may print it.
        raise PassphraseError("the passphrase contains half of a surrogate pair, which is not valid Unicode")
    return unicodedata.normalize("NFC", passphrase).encode("utf-8")


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """The data key as it is stored in the vault's header."""

    cost: Cost
    salt: bytes
    sealed: bytes


def wrap(data_key: bytes, passphrase: str, vault: str, cost: Cost = DEFAULT_COST) -> WrappedKey:
    """Seals the data key under a passphrase with a fresh salt.

    Raises:
        PassphraseError: see `passphrase_bytes`.
        StorageError: not enough memory for the cost.
    """
    salt = secrets.token_bytes(SALT_BYTES)
    cipher = ChaCha20Poly1305(_derive(passphrase, salt, cost))
    return WrappedKey(cost, salt, _seal(cipher, data_key, _wrap_context(vault, salt, cost)))


def unwrap(wrapped: WrappedKey, passphrase: str, vault: str) -> bytes:
    """The data key.

    Raises:
        PassphraseError: see `passphrase_bytes`.
        WrongPassphraseError: some part does not fit; the error never says which.
        StorageError: not enough memory for the cost.
    """
    cipher = ChaCha20Poly1305(_derive(passphrase, wrapped.salt, wrapped.cost))
    try:
        data_key = _open(cipher, wrapped.sealed, _wrap_context(vault, wrapped.salt, wrapped.cost))
    except InvalidTag:
        raise WrongPassphraseError() from None
    if len(data_key) != KEY_BYTES:
        raise WrongPassphraseError()
    return data_key


def _derive(passphrase: str, salt: bytes, cost: Cost) -> bytes:
    text = passphrase_bytes(passphrase)
    try:
        with _one_at_a_time:
            return Argon2id(
                salt=salt, length=KEY_BYTES, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory_kib
            ).derive(text)
    except MemoryError:
        raise StorageError(
            "there is not enough free memory to check the passphrase",
            expected=f"{cost.memory_kib // 1024} MiB",
            advice="close other programs and try again",
        ) from None
    except ValueError:
        # A salt shorter than Argon2 accepts: the header was edited.
        raise WrongPassphraseError() from None


def _wrap_context(vault: str, salt: bytes, cost: Cost) -> bytes:
    return json_bytes(
        {
            "purpose": "data key",
            "vault": vault,
            "kdf": "argon2id",
            "salt": salt.hex(),
            "memory_kib": cost.memory_kib,
            "passes": cost.passes,
            "lanes": cost.lanes,
        }
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sealed value belongs; bound to it as associated data.

    A value moved to another row, column, table or vault, or whose plain columns were edited, does not open.

    Attributes:
        version: schema version the record was written under.
        table, record, part: table, identifier and column.
        sequence, created: the record's other plain columns.
    """

    version: int
    table: str
    record: str
    part: str
    sequence: int
    created: str

    def associated_data(self, vault: str) -> bytes:
        """The canonical bytes that are authenticated with the value."""
        return json_bytes(
            {
                "schema": self.version,
                "vault": vault,
                "table": self.table,
                "record": self.record,
                "part": self.part,
                "sequence": self.sequence,
                "created": self.created,
            }
        )


class Sealer:
    """Seals and opens the records of one unlocked vault. Safe to share between threads.

    Attributes:
        vault: the vault's identifier.
        key_id: identifies the data key without revealing it, hex; it is stored in the vault's header.
    """

    __slots__ = ("_audit_key", "_cipher", "data_key", "key_id", "vault")

    def __init__(self, data_key: bytes, vault: str) -> None:
        self.vault = vault
        # Kept for `VaultSession.hand_over` alone: code that has the two subkeys can read everything anyway.
        self.data_key = data_key
        self._cipher = ChaCha20Poly1305(_subkey(data_key, vault, "records"))
        self._audit_key = _subkey(data_key, vault, "audit")
        self.key_id = _subkey(data_key, vault, "key identifier")[:KEY_ID_BYTES].hex()

    def seal(self, plain: bytes, place: Place) -> bytes:
        """The value sealed for its place, under a fresh random nonce."""
        return _seal(self._cipher, plain, place.associated_data(self.vault))

    def open(self, sealed: object, place: Place) -> bytes:
        """The value, if it was sealed for exactly this place.

        Raises:
            DamagedRecordError: the value was changed or moved.
        """
        try:
            return _open(self._cipher, sealed, place.associated_data(self.vault))
        except InvalidTag:
            raise DamagedRecordError(place.table, place.record) from None

    def tag(self, message: bytes) -> bytes:
        """HMAC-SHA256 of a message under the audit key."""
        return hmac.digest(self._audit_key, message, hashlib.sha256)

    def tag_fits(self, message: bytes, tag: object) -> bool:
        """Whether `tag` is this message's, compared in constant time."""
        return isinstance(tag, bytes) and hmac.compare_digest(self.tag(message), tag)


def job_key(secret: bytes, key: str, job: str) -> bytes:
    """A job's own key, from the jobs key with the identifier `key`; see `storage.job_keys`."""
    return _subkey(secret, key, f"job {job}")


def _subkey(data_key: bytes, vault: str, purpose: str) -> bytes:
    info = json_bytes({"app": "irwm-studio vault", "version": SEAL_VERSION, "vault": vault, "purpose": purpose})
    # No salt: the data key is already uniformly random (RFC 5869, section 3.1).
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(data_key)


def _seal(cipher: ChaCha20Poly1305, plain: bytes, context: bytes) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return bytes([SEAL_VERSION]) + nonce + cipher.encrypt(nonce, plain, context)


def _open(cipher: ChaCha20Poly1305, sealed: object, context: bytes) -> bytes:
    # SQLite lets any column hold any type, so an edited file may contain text or NULL here.
    if not isinstance(sealed, bytes) or len(sealed) <= NONCE_BYTES or sealed[0] != SEAL_VERSION:
        raise InvalidTag
    return cipher.decrypt(sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :], context)
