"""Test vectors of keys: values that docs/key-format.md derives from sample keys, written to docs/key-vectors.json.

    python -m tools.key_vectors

`tests/keys/test_keys.py` compares with an independent implementation of the page (`tests/cleanroom/verifier`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irwm import Key, Parameters
from irwm.scheme.basis import Basis
from irwm.scheme.noise import places, sizes_of
from irwm.scheme.row_pool import RowPool

VECTORS = Path(__file__).resolve().parents[1] / "docs" / "key-vectors.json"
CHOICES = ("query_tokens", "reference_tokens", "marked_rows", "row_permutations", "constraint_permutations")
NOISE_ROWS = 8  # rows of bases and noise in a vector


def keys() -> Iterator[Key]:
    """Yield a key for each way of writing a mark, the paper's first."""
    paper = Key(
        secret=bytes(range(32)),
        parameters=Parameters.paper(positions=12, constraints=3, required_positions=7),
        model_fingerprint=hashlib.sha256(b"model").hexdigest(),
        rows_digest=hashlib.sha256(b"rows").hexdigest(),
        layer0_digest=hashlib.sha256(b"layer 0").hexdigest(),
        vocab_size=160,
        hidden_size=16,
        pool=RowPool(160, ((0, 3), (40, 41), (150, 160))),
        attempt=2,
        scale=1000.0,
        owner="Ørsted & Co.",
    )
    yield paper
    hidden = Parameters(positions=12, constraints=3, required_positions=7)
    one = replace(paper, parameters=hidden, attempt=0, scale=12.5, recipient="Früh-Zugang 7")
    yield one
    larger = replace(one, vocab_size=600, hidden_size=64, pool=RowPool(600, ((0, 4),)), attempt=5, scale=52.6)
    yield replace(larger, parameters=Parameters(), owner="", recipient="")
    written = replace(hidden, noise_coordinates=3, spread=0.0)
    added = replace(hidden, noise_coordinates=3, spread=0.25)
    for params in (written, added):
        yield replace(one, parameters=params, recipient="Customer 7")
    copy = replace(one, parameters=added, recipient="Customer 8")
    head = replace(
        copy,
        parameters=added.in_head,
        model_fingerprint=hashlib.sha256(b"head").hexdigest(),
        rows_digest=hashlib.sha256(b"rows of the head").hexdigest(),
        pool=RowPool(160, ((0, 3), (40, 42), (150, 160))),
        attempt=1,
        scale=11.25,
        embedding_fingerprint=copy.model_fingerprint,
    )
    yield replace(copy, head=head)


def derived(key: Key) -> dict[str, NDArray[np.int64]]:
    """Return the values that the page derives, by the vectors' names. Bases and noise cover the first rows only."""
    choices, params, d = key.choices(), key.parameters, key.hidden_size
    found = {name: getattr(choices, name) for name in CHOICES}
    rows = np.arange(NOISE_ROWS)
    if params.hidden:
        basis = Basis.derive(key.derivation.basis_key(), d)
        assert basis.order is not None
        found["basis_order"] = basis.order
        found["basis_signs"] = np.stack(basis.signs(rows), axis=1).reshape(2 * NOISE_ROWS, d)
    if params.noise_coordinates:
        stream = key.derivation.noise_key()
        adds = params.spread > 0
        found["noise_places"], found["noise_signs"] = places(stream, rows, params.noise_coordinates, d, adds=adds)
        if not adds:
            # In billionths, because the last digit of a logarithm depends on the platform.
            found["noise_sizes"] = np.rint(1e9 * sizes_of(stream, rows)).astype(np.int64)
    if key.head is not None:
        found |= {f"head_{name}": values for name, values in derived(key.head).items()}
    return found


def vector(key: Key) -> dict[str, Any]:
    found = derived(key)
    return {
        "key": key.to_bytes().decode("utf-8"),
        "commitment": key.commitment,
        "query_tokens": found["query_tokens"].tolist(),
        "marked_rows": found["marked_rows"].tolist(),
        "sha256": {name: hashlib.sha256(ours.astype("<i8").tobytes()).hexdigest() for name, ours in found.items()},
    }


def main() -> None:
    text = json.dumps([vector(key) for key in keys()], indent=1, ensure_ascii=False)
    VECTORS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
