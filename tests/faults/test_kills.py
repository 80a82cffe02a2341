"""Real protect tasks killed with SIGKILL at random points: vault, release and job list always fit together (FAULTS 41).

At any moment, the release is absent or complete; a release has its key in the vault; releases filed in the vault exist;
and the job says that it was interrupted, or that it is done. A key without a release is fine: it was sealed first, and
proves nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import irwm
from irwm.checkpoint import open_checkpoint
from irwm.release import sweep_partials, verify_manifest
from storage import KeyRecord, Vault
from storage.job_table import Job
from tests.checkpoint.builders import tree
from tests.jobs.recipients import jobs_of, new_vault, protect_request
from ui.jobs.vault_access import secrets_for
from ui.settings import REPOSITORY

POINTS = 50
# The number of points, and the sign of life after which they come: the time before the first write is long, and the
# time in which the release has its name but no record in the vault is short.
SHARES = {"start": 18, "partial": 20, "release": 12}


class Killer:
    """Runs protect tasks on one home and kills them; see `tests.faults.killed_job`."""

    def __init__(self, vault: Vault, model: Path, shelf: Path) -> None:
        self.vault, self.model, self.shelf = vault, model, shelf
        self.jobs = jobs_of(vault)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.killed_job"],
            cwd=REPOSITORY,
            env={**os.environ, **threads},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def trial(self, name: str, after: str, pause: float | None) -> dict[str, Any]:
        message = {
            "home": str(self.vault.home),
            "request": self.request(name),
            "secrets": secrets_for(self.vault),
            "after": after,
            "pause": pause,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def key(self, record: KeyRecord) -> irwm.Key:
        return irwm.Key.from_bytes(self.vault.key_bytes(record.id))

    def request(self, name: str) -> dict[str, Any]:
        return protect_request(self.model, self.shelf / name, recipient=name)


@pytest.fixture
def killer(folder: Path, tmp_path: Path) -> Iterator[Killer]:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    killer = Killer(new_vault(tmp_path / "home"), folder, shelf)
    yield killer
    killer.process.kill()
    killer.process.communicate()


@pytest.mark.fault(41)
@pytest.mark.slow
def test_insertion_killed_at_50_random_points(
    killer: Killer, seed: int, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    random, before = Random(seed), tree(folder)
    lengths = {after: killer.trial(f"whole-{after}", after, None)["seconds"] for after in SHARES}
    points = [after for after, share in SHARES.items() for _ in range(share)]
    random.shuffle(points)
    assert len(points) == POINTS
    left: dict[str, list[str]] = {}
    for number, after in enumerate(points):
        name = f"copy-{number}"
        ended = killer.trial(name, after, random.random() * 1.1 * lengths[after])
        # As the app does when it starts.
        dead = [job.id for job in killer.jobs.interrupt_dead()]
        job = killer.jobs.get(ended["job"])
        assert dead == ([job.id] if job.state == "interrupted" else [])
        assert job.state == "done" or (job.state == "interrupted" and ended["killed"])
        left.setdefault(what_is_left(killer, name, job), []).append(name)
        sweep_partials(killer.shelf)
        assert not list(killer.shelf.glob("*.partial"))
    counts = {what: len(names) for what, names in left.items()}
    record_property("seed", f"{POINTS} points left: {counts}")
    assert sum(counts.values()) == POINTS
    assert tree(folder) == before, "the original"
    assert killer.vault.check().ok, "the vault, its log and every record"
    assert killer.vault.warnings == ()

    # In any case the same request again ends in a filed release under the key that was sealed for it.
    keys = {record.recipient: record.id for record in killer.vault.keys()}
    for what in sorted(left.keys() - {"done"}):
        name = left[what][0]
        again = killer.trial(name, "start", None)
        assert killer.jobs.get(again["job"]).state == "done", what
        assert what_is_left(killer, name, killer.jobs.get(again["job"])) == "done"
        assert len([release for release in killer.vault.releases() if release.path == str(killer.shelf / name)]) == 1
        assert [r.id for r in killer.vault.keys() if r.recipient == name] == [
            keys.get(name, killer.vault.keys()[-1].id)
        ]
    carried = {key.recipient: key for key in map(killer.key, killer.vault.keys())}
    original = open_checkpoint(killer.model)
    for out in sorted(killer.shelf.iterdir())[-4:]:
        assert irwm.detect(open_checkpoint(out), original, carried[out.name]).verdict == "found", out.name


def what_is_left(killer: Killer, name: str, job: Job) -> str:
    """The state that a killed task left, in one word; a partial state is a failure."""
    vault, out = killer.vault, killer.shelf / name
    sealed = [record.id for record in vault.keys() if record.recipient == name]
    filed = [release.key_id for release in vault.releases() if release.path == str(out)]
    assert len(sealed) <= 1
    if out.exists():
        assert sealed, "a release without its key could never be proved"
        assert verify_manifest(out).ok
        assert open_checkpoint(out).vocab_size == 600
    assert filed in ([], sealed)
    assert out.exists() or not filed
    assert job.state != "done" or filed
    if job.state == "done":
        return "done"
    return "filed" if filed else "published" if out.exists() else "key" if sealed else "nothing"
