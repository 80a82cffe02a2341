"""End-to-end vectors on the bundled demo model, written to docs/demo-vectors.json: the results of docs/reading.md.

    python -m tools.demo_vectors

They contain two recipients' keys with a public secret, the output for the first recipient, both keys' readings of this
copy, of two disguised copies and of a mixture of both recipients' copies, and layer 0 of the small models of the tests.
docs/reading.md (*Test vectors*) describes how to make each suspect. `tests/keys/test_demo_vectors.py` compares with an
independent implementation of the pages (`tests/cleanroom/verifier`).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from irwm import Checkpoint, Examination, Key, generate_key, open_checkpoint
from irwm.evidence.detection import reading_of
from irwm.evidence.examination import Aligned
from irwm.evidence.finding import MAPS
from irwm.evidence.fingerprint import differences_of, task_of
from irwm.evidence.sign_sums import score
from irwm.keys.check_original import placed
from irwm.keys.digests import layer0_digest
from irwm.release.insertion import marked_rows
from irwm.scheme import statistic as stat
from irwm.scheme.basis import Basis
from irwm.scheme.condition import permute_rows
from irwm.scheme.invariant import Layer0
from irwm.scheme.keystream import public_key
from irwm.scheme.parameters import many_recipients
from irwm.scheme.permutations import NullOrders, permutations
from tools.small_models import DEMO

ROOT = Path(__file__).resolve().parents[1]
VECTORS, SMALL = ROOT / "docs" / "demo-vectors.json", ROOT / "tests" / "models"
RECIPIENTS = ("Ada", "Ben")
TENSORS = {"embedding": "model.embed_tokens.weight", "head": "lm_head.weight"}
SHOWN = 10
# Models of other families, each with a layer 0 of another form; A is that of a few tokens.
FAMILIES, QUERIES = ("gemma", "phi3", "gpt2"), range(1000, 1004)
# A is compared in millionths: the last digits of a sum depend on the order of its terms.
UNIT = 1e-6


def keys(model: Checkpoint) -> list[Key]:
    """Return the keys of both recipients, with a public secret."""
    params = many_recipients(model.hidden_size)
    return [generate_key(model, params, bytes(range(32)), "Demo", name) for name in RECIPIENTS]


def copy_of(model: Checkpoint, key: Key) -> dict[str, torch.Tensor]:
    """Return a recipient's rows in each place, (s, d) in bfloat16, with all noise computed in float64."""
    rows = {}
    for place, (where, part) in placed(key, model).items():
        choices = part.choices()
        noise = part.noise(where, choices)
        noisy = noise.over(where.embedding().double().numpy(), np.arange(where.vocab_size))
        marked = marked_rows(where, part, choices)
        rows[place] = torch.from_numpy(noisy).to(marked.dtype)
        rows[place][torch.from_numpy(choices.marked_rows)] = marked
    return rows


def reordered(rows: torch.Tensor) -> torch.Tensor:
    """Reorder the columns in a public order, and flip the sign of every third one."""
    order = permutations(public_key(1, "irwm/demo/columns"), 1, rows.shape[1])[0]
    signs = torch.ones(rows.shape[1], dtype=rows.dtype)
    signs[::3] = -1
    return rows[:, torch.from_numpy(order)] * signs


def turned(rows: torch.Tensor) -> torch.Tensor:
    """Multiply every row by the basis of row 0 under a public stream key."""
    basis = Basis.derive(public_key(1, "irwm/demo/turn"), rows.shape[1])
    made = basis.into(rows.double().numpy(), np.zeros(len(rows), dtype=np.int64))
    return torch.from_numpy(made).to(rows.dtype)


def mixed(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return ((one.double() + other.double()) / 2).to(one.dtype)


def folder(where: Path, rows: dict[str, torch.Tensor]) -> Checkpoint:
    """Write the demo model with these rows, and open it."""
    where.mkdir()
    tensors = load_file(DEMO / "model.safetensors")
    tensors |= {TENSORS[place]: values.contiguous() for place, values in rows.items()}
    save_file(tensors, where / "model.safetensors")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (where / name).write_bytes((DEMO / name).read_bytes())
    return open_checkpoint(where)


def written(model: Checkpoint, key: Key, rows: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the values that a key derives and writes, by place."""
    found = {}
    for place, (where, part) in placed(key, model).items():
        choices = part.choices()
        noise = part.noise(where, choices)
        a = Layer0(model).invariant(choices.query_tokens, choices.reference_tokens, noise.added(where)).numpy()
        found[place] = {
            "query_tokens": choices.query_tokens.tolist(),
            "marked_rows": choices.marked_rows[:SHOWN].tolist(),
            "invariant": a[0, :SHOWN].tolist(),
            "invariant_sha256": in_units(a),
            "marked_bytes_sha256": sha256(rows[place][torch.from_numpy(choices.marked_rows)]),
            "tensor_sha256": sha256(rows[place]),
        }
    return found


def in_units(values: NDArray[np.float64]) -> str:
    """Return the SHA-256 of integer multiples of `UNIT`, as little-endian int64, row by row."""
    scaled = values / UNIT
    assert (np.abs(np.abs(scaled % 1.0) - 0.5) > UNIT).all(), "a number is between two units: choose another secret"
    return hashlib.sha256(np.rint(scaled).astype("<i8").tobytes()).hexdigest()


def sha256(rows: torch.Tensor) -> str:
    return hashlib.sha256(rows.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def read(key: Key, examination: Examination) -> dict[str, Any]:
    """Return the readings of a key's mark and fingerprint, by place and map."""
    found: dict[str, Any] = {}
    for place in filter(key.at, examination.places):
        part, suspect = key.at(place), examination.at(place).aligned[0]
        assert part is not None
        found[place] = {by: ranked(part, suspect, by) | of_noise(part, suspect, by) for by in MAPS}
    return found


def ranked(key: Key, suspect: Aligned, by: str) -> dict[str, Any]:
    """Return the reading of the verdict's statistic under one map, with seed 0."""
    choices, p = key.choices(), key.parameters
    noise = key.noise(suspect.model, choices)
    tokens = choices.query_tokens, choices.reference_tokens
    a = Layer0(suspect.model.body).invariant(*tokens, noise.added(suspect.model)).numpy()
    weights = stat.joint_map(permute_rows(a, choices.constraint_permutations), key.scale)
    rows, _ = suspect.rows(choices.marked_rows, by, key.derivation.sample_key())
    inside = noise.basis.into(rows, choices.marked_rows)
    shuffled = stat.normalised(np.take_along_axis(inside, choices.row_permutations, axis=1))
    null = stat.null_lengths(weights, shuffled, NullOrders.of(0, p.permutations, p.positions, key.hidden_size))
    reading = reading_of("joint", "original", stat.lengths(weights, shuffled), null, p, by)
    return {
        "observed": reading.observed[:SHOWN].tolist(),
        "ranks": [round(rank * (1 + p.permutations)) for rank in reading.ranks[:SHOWN].tolist()],
        "count": reading.count,
        "log10_p": reading.log10_p,
        "log10_p_count": reading.log10_p_count,
    }


def of_noise(key: Key, suspect: Aligned, by: str) -> dict[str, Any]:
    """Return z and share of a key's noise under one map."""
    differences = differences_of(suspect.checked_by_content, by, key.derivation)
    sums = score(task_of(differences, [key.derivation.noise_key()], key.parameters))
    return {"z": float(sums.z[0]), "share": float(sums.share[0])}


def vectors() -> dict[str, Any]:
    model = open_checkpoint(DEMO)
    ada, ben = keys(model)
    first, second = copy_of(model, ada), copy_of(model, ben)
    suspects = {
        "released": first,
        "reordered": first | {"embedding": reordered(first["embedding"])},
        "turned": first | {"embedding": turned(first["embedding"])},
        "mixed": {place: mixed(first[place], second[place]) for place in first},
    }
    found: dict[str, Any] = {
        "keys": [key.to_bytes().decode("utf-8") for key in (ada, ben)],
        "written": written(model, ada, first),
        "suspects": {},
        "layer0": {name: layer0_of(SMALL / name) for name in FAMILIES},
    }
    with tempfile.TemporaryDirectory() as parent:
        for name, rows in suspects.items():
            examination = Examination(folder(Path(parent) / name, rows), model)
            found["suspects"][name] = {
                "sha256": {place: sha256(values) for place, values in rows.items()},
                "row_scale": {place: examination.at(place).aligned[0].alignment.scale for place in rows},
                **{key.recipient: read(key, examination) for key in (ada, ben)},
            }
    return found


def layer0_of(path: Path) -> dict[str, Any]:
    """Return the digest of layer 0, and A of `QUERIES` and the tokens that follow them."""
    model = open_checkpoint(path)
    references = np.arange(QUERIES.stop, QUERIES.stop + model.hidden_size)
    a = Layer0(model).invariant(np.array(QUERIES), references).numpy()
    return {
        "layer0_digest": layer0_digest(model), "invariant": a[0, :SHOWN].tolist(), "invariant_sha256": in_units(a)
    }  # fmt: skip


def main() -> None:
    VECTORS.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
