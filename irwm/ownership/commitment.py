"""The public document of a key, which its owner publishes, notarises or has timestamped on the day the key is made.

It names the original by its digests, the scheme, the parameters and the owner, and holds `Key.commitment`, a SHA-256
over the whole key. It does not reveal the secret or name the recipient, though it is bound to both. An owner who later
opens the key shows that this document was made from it; a timestamp on the document proves that it existed by then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from irwm.errors import IrwmError, ParameterError
from irwm.keys.digests import check_sha256
from irwm.keys.key import MAX_NAME, Key
from irwm.scheme.derivation import canonical
from irwm.scheme.parameters import Parameters

FORMAT = "irwm-commitment"
VERSION = 2
SCHEME = "irwm/v3"
MAX_BYTES = 16 << 10  # a real document has less than 2 KiB; limits the bytes parsed from a hostile file
MAX_FAMILY = 100
# Fields that a document holds unchanged.
_OF_KEY = ("commitment", "model_fingerprint", "layer0_digest", "vocab_size", "hidden_size", "owner")
_PLAIN = (*_OF_KEY, "family", "made_utc")


class CommitmentError(IrwmError):
    """Bytes that are not a commitment document, or one of another version."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """The public data of one key.

    Attributes:
        commitment: `Key.commitment`, hex SHA-256 over the whole key with its secret and its recipient.
        model_fingerprint, layer0_digest: as in the key.
        vocab_size, hidden_size: s and d of the original.
        parameters: the mark's parameters.
        owner: the name that the key records.
        family: the original's model family, for the reader, or "".
        made_utc: the creation time according to the maker, ISO 8601 with its zone, or "". It proves nothing; a
            timestamp does.
    """

    commitment: str
    model_fingerprint: str
    layer0_digest: str
    vocab_size: int
    hidden_size: int
    parameters: Parameters
    owner: str = ""
    family: str = ""
    made_utc: str = ""

    def __post_init__(self) -> None:
        try:
            _check(self)
        except (TypeError, ValueError, AttributeError) as error:
            raise _malformed(str(error) or type(error).__name__) from error

    @classmethod
    def of(cls, key: Key, family: str = "", made_utc: str = "") -> Commitment:
        """The commitment to `key`.

        Raises:
            CommitmentError: the family is not a valid name, or the time is not ISO 8601 with its zone.
        """
        of_key = {name: getattr(key, name) for name in _OF_KEY}
        return cls(parameters=key.parameters, family=family, made_utc=made_utc, **of_key)

    def opens(self, key: Key) -> bool:
        """Whether the document commits to `key` and everything in it is true of the key."""
        return self == Commitment.of(key, self.family, self.made_utc)

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the document, for a notary or a timestamping authority."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Canonical JSON, UTF-8: sorted names, no spaces."""
        values = {"format": FORMAT, "version": VERSION, "scheme": SCHEME, "parameters": self.parameters.to_dict()}
        return canonical(values | {name: getattr(self, name) for name in _PLAIN})

    @classmethod
    def from_bytes(cls, data: bytes) -> Commitment:
        """The document that `to_bytes` wrote.

        Raises:
            CommitmentError: not a commitment, another version, a field out of its range, or not in canonical form: the
                digest is over bytes, so only one encoding of the same values is valid.
        """
        if len(data) > MAX_BYTES:
            raise _malformed(f"{len(data)} bytes", expected=f"at most {MAX_BYTES} bytes")
        try:
            values: dict[str, Any] = json.loads(data.decode("utf-8"))
            _check_kind(values)
            parameters = Parameters.from_dict(values["parameters"])
            document = cls(parameters=parameters, **{name: values[name] for name in _PLAIN})
            same = document.to_bytes() == data
        except ParameterError as error:
            raise _malformed(error.problem) from error
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise _malformed(type(error).__name__) from error
        if not same:
            raise _malformed("a different encoding of the same values", expected="canonical JSON, byte for byte")
        return document


def _malformed(found: str, expected: str | None = None) -> CommitmentError:
    return CommitmentError(
        "this is not a public commitment to a key",
        expected=expected,
        found=found,
        advice="Use the file exactly as it was exported, without editing it",
    )


def _check_kind(values: Mapping[str, object]) -> None:
    if values["format"] != FORMAT:
        raise _malformed(f"format {values['format']!r}"[:80], expected=f"format {FORMAT!r}")
    if type(values["version"]) is not int or values["version"] != VERSION or values["scheme"] != SCHEME:
        raise CommitmentError(
            "the commitment has a different version",
            expected=f"version {VERSION} of {SCHEME}",
            found=f"version {values['version']!r} of {values['scheme']!r}"[:80],
            advice="Export the commitment again from the vault, or use the version of this program that wrote it",
        )


def _check(document: Commitment) -> None:
    for name in ("commitment", "model_fingerprint", "layer0_digest"):
        check_sha256(name, getattr(document, name))
    for name, top in (("vocab_size", 2**31), ("hidden_size", 2**24)):
        value = getattr(document, name)
        if type(value) is not int or not 0 < value < top:
            raise ValueError(f"{name} is out of range")
    if not isinstance(document.parameters, Parameters):
        raise TypeError("the parameters have the wrong type")
    for name, longest in (("owner", MAX_NAME), ("family", MAX_FAMILY)):
        text = getattr(document, name)
        if not isinstance(text, str) or len(text) > longest:
            raise ValueError(f"{name} is not a valid name (at most {longest} characters)")
        text.encode("utf-8")
    if not isinstance(document.made_utc, str) or len(document.made_utc) > 40:
        raise ValueError("made_utc is not a time")
    if document.made_utc and datetime.fromisoformat(document.made_utc).tzinfo is None:
        raise ValueError("made_utc has no time zone")
