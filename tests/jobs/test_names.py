"""Names of people leave the vault only in sealed files: runs the real story, then searches every byte on the disk.

docs/security.md lists what still names people in clear; this story uses none of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import irwm
from storage import Jobs, Vault
from storage.job_table import Job
from tests.jobs.recipients import PARAMETERS, averaged, given_out, start_here
from tools.small_models import write_llama
from tools.waiting import until_over
from ui.jobs import requests, runner
from ui.jobs.requests import Asked
from ui.services.recipients import read_list

OWNER = "Xylophonia Stiftung"
NAMES = ("Quuxholm Zebrawerke", "Wyvernfjörd & Söhne", "=Bzzrk Ltd")
NOTE, CASE, EXAMINER = "Gnurfle told us", "Leak at Plonkberg", "Inspector Fwoop"
# Parts of each name, one or more, that cannot be on a disk by chance.
UNMISTAKABLE = (
    "Quuxholm", "Zebrawerke", "Wyvernfj", "Söhne", "Bzzrk", "Xylophonia", "Gnurfle", "Plonkberg", "Fwoop",
)  # fmt: skip


def ways_to_write(word: str) -> Iterator[bytes]:
    """The bytes of a word as a file may hold it: in capitals or not, in JSON, in an address, as UTF-8 or UTF-16."""
    for text in {word, word.lower(), word.upper()}:
        for code in ("utf-8", "utf-16-le", "utf-16-be", "latin-1"):
            yield text.encode(code)
        yield json.dumps(text)[1:-1].encode("ascii")


def naming(*folders: Path) -> dict[str, list[str]]:
    """The files below these folders whose bytes, or whose paths relative to them, contain one of the words."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            said = str(path.relative_to(folder)).encode() + b"\n"
            said += path.read_bytes() if path.is_file() else b""
            words = [word for word in UNMISTAKABLE if any(written in said for written in ways_to_write(word))]
            if words:
                found[str(path)] = words
    return found


def done(asked: Asked, vault: Vault, *, here: bool = True) -> Job:
    """The finished job, run in this process or in its own."""
    jobs = Jobs(vault.home)
    with pytest.MonkeyPatch.context() as patch:
        if here:
            patch.setattr(runner, "start", start_here)
        id = asked.start(vault, jobs).id
    return until_over(jobs.opened(vault.jobs_keys()), id)


@pytest.mark.slow
def test_no_name_is_in_clear_after_protect_investigate_and_lock(vault: Vault, tmp_path: Path) -> None:
    model = write_llama(tmp_path / "original", vocab_size=3000)
    original, out = irwm.open_checkpoint(model), tmp_path / "shelf"
    out.mkdir()
    asked = requests.protect(
        vault,
        model,
        out / "copies",
        owner=OWNER,
        parameters=PARAMETERS,
        utility="no",
        recipients=read_list("recipient,note\n" + "".join(f'"{name}",{NOTE}\n' for name in NAMES)).require(),
        device="cpu",
    )
    many = done(asked, vault)
    assert many.state == "done", many.error
    assert [row["recipient"] for row in many.result["rows"]] == list(NAMES)
    single = requests.protect(
        vault, model, out / "release-4", owner=OWNER, parameters=PARAMETERS, recipient=NAMES[0], device="cpu"
    )
    one = done(single, vault)
    assert one.state == "done", one.error

    suspects = tmp_path / "suspects"
    suspects.mkdir()
    copies = sorted((out / "copies").iterdir())
    averaged(copies, suspects / "mean")
    (suspects / "alone.safetensors").write_bytes((copies[0] / "model.safetensors").read_bytes())
    jobs = Jobs(vault.home).opened(vault.jobs_keys())
    about = {"case": CASE, "note": NOTE, "examiner": EXAMINER, "device": "cpu"}
    leak = requests.investigate(vault, jobs, suspects / "mean", model, original.fingerprint, **about)
    traced = done(leak, vault, here=False)
    assert traced.state == "done", traced.error
    assert {row["recipient"] for row in traced.result["rows"] if row["named"]} == set(NAMES)
    swept = done(requests.investigate(vault, jobs, suspects, model, original.fingerprint, **about), vault)
    assert swept.state == "done", swept.error
    # A failed job says why, and whose copy it was.
    (out / "taken").mkdir()
    failed = done(Asked(f"Protect for {NAMES[0]}", replace(single.request, out=str(out / "taken"))), vault)
    assert failed.state == "failed"

    ids = [job.id for job in (many, one, traced, swept, failed)]
    given = [given_out(jobs, id, tmp_path / f"given-{id}") for id in ids]
    logs = [jobs.log_tail(id) for id in ids]
    vault.lock()
    assert naming(vault.home, out) == {}

    # After unlocking the names are there; otherwise the search above would prove nothing.
    assert {word for words in naming(*given).values() for word in words} == set(UNMISTAKABLE)
    assert [path.name for path in given[0].iterdir()] == ["receipts.csv"]
    assert {path.name.partition("-")[0] for path in (out / "copies").iterdir()} == {"copy"}
    assert "Copy 3 of 3" in logs[0]
    assert [line.state for line in Jobs(vault.home).recent()] == ["failed", "done", "done", "done", "done"]
