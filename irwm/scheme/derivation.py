"""Derives every choice of a mark from one secret (docs/key-format.md): HKDF per purpose, bound to the rest of the
key."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from irwm.scheme import keystream
from irwm.scheme.parameters import Parameters
from irwm.scheme.permutations import permutations
from irwm.scheme.row_pool import RowPool, require


@dataclass(frozen=True, slots=True)
class Derivation:
    """HKDF with one purpose per choice; only the recipient-specific choices depend on the recipient."""

    secret: bytes
    fingerprint: str
    owner: str
    recipient: str
    bound: bytes

    def _key(self, purpose: str, *, recipient: bool) -> bytes:
        info = b"irwm/v3" + self.bound
        for part in (self.owner, self.recipient if recipient else "", purpose):
            raw = part.encode("utf-8")
            info += len(raw).to_bytes(4, "little") + raw  # lengths keep ("ab", "c") apart from ("a", "bc")
        return keystream.derive(self.secret, bytes.fromhex(self.fingerprint), info)

    def tokens(self, pool: RowPool, t: int, d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Query (t,) and reference (d,) tokens, the same for all recipients of the owner's release."""
        frequent = pool.frequent(t + d)
        require(frequent.size, t + d, "invariant's tokens", "Use fewer constraints or a model with more tokens")
        order = permutations(self._key("tokens", recipient=False), 1, frequent.size)[0]
        drawn = frequent[order]
        return drawn[d : d + t], drawn[:d]

    def marked_rows(
        self, pool: RowPool, query: NDArray[np.int64], reference: NDArray[np.int64], count: int
    ) -> NDArray[np.int64]:
        """(count,) L_W, excluding the most frequent rows and the tokens of the invariant."""
        rest = pool.markable(np.concatenate((query, reference)))
        require(rest.size, count, "marked positions", "Use fewer positions")
        order = permutations(self._key("marked-rows", recipient=True), 1, rest.size)[0]
        chosen: NDArray[np.int64] = rest[order[:count]]
        return chosen

    def row_permutations(self, count: int, d: int) -> NDArray[np.int64]:
        return permutations(self._key("row-permutations", recipient=True), count, d)

    def basis_key(self) -> bytes:
        """Purpose key of B, the same for all recipients of a release."""
        return self._key("basis", recipient=False)

    def sample_key(self) -> bytes:
        """The seed of the row samples to which a map is fitted: derived only from the secret, so that all keys of an
        owner share a fit."""
        return keystream.derive(self.secret, b"irwm", b"irwm/v3/samples")

    def mlps(self, count: int) -> NDArray[np.int64]:
        """(count,) the order in which MLPs are chosen for a fingerprint, the same for all recipients of a release."""
        (order,) = permutations(self._key("mlps", recipient=False), 1, count)
        return np.asarray(order)

    def noise_key(self) -> bytes:
        """Purpose key of the recipient's noise."""
        return self._key("noise", recipient=True)

    def decoy_noise_key(self, number: int) -> bytes:
        """Purpose key of a decoy's noise: a recipient who never got a copy. No recipient's name gives the same key."""
        return self._key(f"decoy-noise/{number}", recipient=False)

    def constraint_permutations(self, attempt: int, t: int, d: int) -> NDArray[np.int64]:
        return permutations(self._key(f"constraint-permutations/{attempt}", recipient=True), t, d)


@lru_cache(maxsize=16)  # the same for all recipients of a release
def binding(
    params: Parameters,
    pool: RowPool,
    hidden_size: int,
    layer0_digest: str,
    embedding: str = "",
    mlps: tuple[int, ...] = (),
) -> bytes:
    """32 bytes that bind a derivation to everything in a key except its secret.

    Args:
        embedding: for choices in an output head or in neurons, the fingerprint of the embedding; "" for choices in the
            embedding.
        mlps: for choices in neurons, the numbers of their MLPs.

    Without it, an attacker could change the pool of usable rows, or layer 0's q and k, until every marked row happens
    to rank low. With it, any change leads to new choices, so that a key can only be searched as a whole.
    """
    facts = {
        "parameters": params.to_dict(),
        "excluded_rows": [list(pair) for pair in pool.excluded],
        "vocab_size": pool.size,
        "hidden_size": hidden_size,
        "layer0_digest": layer0_digest,
    }
    if mlps:
        facts |= {"neurons_beside_embedding": embedding, "mlps": list(mlps)}
    elif embedding:
        facts["head_beside_embedding"] = embedding
    return hashlib.sha256(b"irwm/v3/binding\0" + canonical(facts)).digest()


def canonical(values: dict[str, object]) -> bytes:
    """JSON in UTF-8 with sorted names and no spaces, so that equal values give equal bytes."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")
