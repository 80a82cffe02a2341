"""One small real model, its marked copy and copies that attackers changed, examined by `irwm.detect`."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.evidence.decoys import decoys
from irwm.evidence.detection import detect_marks
from irwm.ownership import Claim, Commitment, resolve
from irwm.ownership.timestamp import request
from irwm.report import (
    ItemDescription,
    KeyInfo,
    SelfTest,
    dispute,
    finding_document,
    from_json,
    installed_versions,
    to_json,
)
from irwm.report.controls import WAY, Controls
from irwm.report.error_rates import ErrorRates
from irwm.report.stamps import StampedCommitment
from irwm.report.verify import Verification
from tests.ownership.authority import Authority, make_authority
from tools.small_models import write_llama

if TYPE_CHECKING:
    from tests.report.of_jobs import Desk


@dataclass(frozen=True)
class Examined:
    """One examination: what it was made from, its finding and its document."""

    suspect: irwm.Checkpoint
    model: irwm.Checkpoint
    key: irwm.Key
    finding: irwm.Finding
    particulars: dict[str, Any]
    document: dict[str, Any]


def trimmed(source: Path, target: Path, rows: int) -> Path:
    """A copy whose vocabulary ends after `rows` rows, so some marked rows are gone."""
    shutil.copytree(source, target)
    tensors = load_file(target / "model.safetensors")
    kept = {name: t[:rows].clone() if t.shape[0] == 600 else t for name, t in tensors.items()}
    noise = torch.randn(rows, 64, generator=torch.Generator().manual_seed(5))
    kept["model.embed_tokens.weight"] += 0.2 * kept["model.embed_tokens.weight"].std() * noise
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"vocab_size": rows}))
    (target / "SHA256SUMS").unlink()
    return target


def planted(source: Path, target: Path) -> Path:
    """A copy whose tensors have other names, with a damaged copy of the embedding in addition to the real one."""
    irwm.attacks.equivalence.disguise(source, target, [("rename_tensors", {"scheme": "scrambled"})], seed=1)
    tensors = load_file(target / "model.safetensors")
    rows = irwm.open_checkpoint(source).embedding()
    noise = 0.3 * rows.std() * torch.randn(rows.shape, generator=torch.Generator().manual_seed(2))
    save_file(tensors | {"another": rows + noise}, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("report")
    model = irwm.open_checkpoint(write_llama(root / "original"))
    key = irwm.generate_key(model, secret=b"\x01" * 32, owner="Acme Labs", recipient="Northwind")
    disguises = ["rotate", "regain", "map_qk", "reorder_heads", "reorder_tokens"]
    other = irwm.generate_key(model, secret=b"\x02" * 32, owner="Acme Labs")
    release = irwm.insert(model, key, root / "release")
    irwm.attacks.equivalence.disguise(root / "release", root / "disguised", disguises, seed=1)
    return {
        "root": root,
        "model": model,
        "key": key,
        "other": other,
        "manifest": release.manifest,
        "copy": irwm.open_checkpoint(root / "release"),
        "disguised": irwm.open_checkpoint(root / "disguised"),
        "planted": irwm.open_checkpoint(planted(root / "release", root / "planted")),
        "trimmed": irwm.open_checkpoint(trimmed(root / "release", root / "trimmed", 540)),
        "unrelated": irwm.open_checkpoint(write_llama(root / "unrelated", seed=9, hidden_size=32)),
    }


def failed(outcome: Verification) -> dict[str, str]:
    """The checks that fail, with what they say."""
    return {check.name: check.said for check in outcome.checks if check.ok is False}


def held(outcome: Verification) -> set[str]:
    """The names of the checks that hold."""
    return {check.name for check in outcome.checks if check.ok}


# A day after any timestamp that a test has made.
SEEN = "2099-02-01T00:00:00Z"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority") / "tsa")


def stamped(authority: Authority, key: irwm.Key) -> StampedCommitment:
    """The commitment of a key, dated now."""
    commitment = Commitment.of(key, "llama")
    asked = request(commitment.digest)
    return StampedCommitment(commitment.to_bytes(), asked, authority.answer(asked))


def dated(authority: Authority, key: irwm.Key) -> dict[str, Any]:
    """The arguments of `finding_document` for a key that was committed to before the suspect was seen."""
    return {"time_stamp": stamped(authority, key).section(), "suspect_seen_utc": SEEN}


def examine(world: dict[str, Any], suspect: str, key: str = "key", **changes: Any) -> Examined:
    s, model, k = world[suspect], world["model"], world[key]
    item = ItemDescription.of(s, hashes=world["manifest"] if suspect == "copy" else None)
    given = {"suspect": item, "original": ItemDescription.of(model), "extra": {"Device": "cpu", "Seconds": 3.25}}
    return described(s, model, k, irwm.detect(s, model, k, seed=7, keys_tried=3), given | changes)


def described(
    suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key, finding: irwm.Finding, given: dict[str, Any]
) -> Examined:
    particulars = {
        "key_info": KeyInfo.of(key),
        "case": {"Case": "2026-014", "Examiner": "J. Doe"},
        "created_utc": "2026-11-21T02:00:00Z",
        "tool_versions": installed_versions(),
    } | given
    return Examined(suspect, model, key, finding, particulars, finding_document(finding, **particulars))


def hashed(model: irwm.Checkpoint) -> ItemDescription:
    """A model with the SHA-256 of each of its weight files, as the app's tasks describe one."""
    return ItemDescription.of(
        model, hashes={each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in model.shards}
    )


def complete(world: dict[str, Any], suspect: str = "copy", key: str = "key", **changes: Any) -> Examined:
    """A report like those of the app's tasks: the method's way of reading, every control, all files hashed."""
    s, model, k = world[suspect], world["model"], world[key]
    examined = irwm.Examination(s, model)
    (finding,) = detect_marks(examined, [k], **WAY)
    with tempfile.TemporaryDirectory() as folder:
        controlled = Controls(examined.with_suspect(model), Path(folder)).run(examined, k, finding)
    rates = ErrorRates(decoys(examined, k, finding, 400), controlled.neutral)
    given = {
        "suspect": hashed(s),
        "original": hashed(model),
        "extra": {"Device": "cpu"},
        "self_tests": controlled.tests,
        "error_rates": rates,
        "keys_held": 1,
    }
    return described(s, model, k, finding, given | changes)


def document_of(
    model: irwm.Checkpoint, key: irwm.Key, suspect: irwm.Checkpoint, finding: irwm.Finding, **more: Any
) -> dict[str, Any]:
    """The document of a finding, as a reader gets it."""
    given = {"suspect": ItemDescription.of(suspect), "original": ItemDescription.of(model)}
    return from_json(to_json(described(suspect, model, key, finding, given | more).document))


def dispute_of(claims: Sequence[Claim], suspect: irwm.Checkpoint) -> dict[str, Any]:
    """The document of a dispute about one model; the first claim is that of its maker."""
    described = [
        dispute.claim_section(claim, ItemDescription.of(claim.original), ours=claim is claims[0]) for claim in claims
    ]
    name = "model in dispute"
    made = dispute.dispute_document(
        resolve(claims, [(name, suspect)]),
        claims=described,
        exhibits=[(name, ItemDescription.of(suspect))],
        case={"Case": "Two"},
        created_utc="2026-11-21T02:00:00Z",
        tool_versions=installed_versions(),
        seed=0,
    )
    return dispute.from_json(to_json(made))


@pytest.fixture(scope="session")
def whole(world: dict[str, Any]) -> Examined:
    """The marked copy, in a report like those of the app's tasks."""
    return complete(world)


@pytest.fixture(scope="session")
def found(world: dict[str, Any]) -> Examined:
    control = SelfTest.of("a key that was never inserted", irwm.detect(world["copy"], world["model"], world["other"]))
    rows = world["key"].marked_rows.tolist()
    return examine(world, "copy", tokens={row: f"word{row}" for row in rows}, self_tests=[control])


@pytest.fixture(scope="session")
def not_found(world: dict[str, Any]) -> Examined:
    return examine(world, "copy", "other")


@pytest.fixture(scope="session")
def gone(world: dict[str, Any]) -> Examined:
    """The marked copy with noise and a trimmed vocabulary."""
    return examine(world, "trimmed")


@pytest.fixture(scope="session")
def inconclusive(world: dict[str, Any]) -> Examined:
    return examine(world, "unrelated")


@pytest.fixture(scope="session")
def disguised(world: dict[str, Any]) -> Examined:
    """The marked copy with its residual stream rotated, its attention rewritten and its tokens reordered."""
    return examine(world, "disguised")


@pytest.fixture(scope="session")
def two_tensors(world: dict[str, Any]) -> Examined:
    """The marked copy under other names, with a second tensor that fits the original's embedding."""
    return examine(world, "planted")


@pytest.fixture(params=["found", "not_found", "gone", "inconclusive", "disguised", "two_tensors"])
def any_case(request: pytest.FixtureRequest) -> Examined:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    from tests.report.of_jobs import Desk  # imports the app, which few of these tests need

    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="session")
def files(desk: Desk) -> dict[str, Path]:
    """The JSON of a signed report of every kind, as the app's tasks wrote it. Shared: copy it before any change."""
    return {"report": desk.traced(), "sweep": desk.sweep(), "lab": desk.lab(), "dispute": desk.dispute()}
