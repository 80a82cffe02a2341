"""The record of a vault's signing identity. For signing and checking, see `irwm.signing`."""

from __future__ import annotations

from dataclasses import dataclass

from irwm.signing import Certificate


@dataclass(frozen=True, slots=True)
class Identity:
    """A signing identity of the vault; its private key stays sealed in the vault.

    Attributes:
        id, sequence, created: of its record; `created` in UTC, ISO 8601.
        number: counts the vault's identities from 1, including lost ones.
        public_key: 32 bytes, hex.
        certificates: from the first identity of its chain to this one; none for the first.
    """

    id: str
    sequence: int
    created: str
    number: int
    public_key: str
    certificates: tuple[Certificate, ...] = ()

    @property
    def first_public_key(self) -> str:
        """The public key at the beginning of the chain, which identifies the vault."""
        return self.certificates[0].previous_public_key if self.certificates else self.public_key
