"""Several recipients' copies of one small model, and what colluders make of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import IrwmError
from storage import Cost, Jobs, NewKey, Vault
from storage.job_files import ENDING
from storage.job_table import Job
from tools.waiting import until_over
from ui.jobs import runner, task
from ui.jobs.processes import Ready
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import secrets_for
from ui.services.outcomes import error_parts

PASSPHRASE = "four unrelated plain words"
SECRET = b"\x07" * 32
# A row of the job list, for tests of what is said about a job.
JOB = Job(
    id="0" * 16, sequence=1, kind="protect", title="t", state="running", request={}, done=0, total=0, what="",
    created="2026-01-01T00:00:00Z", started=None, ended=None, result=None, error=None, pid=1,
)  # fmt: skip
# So small a model hides few coordinates and leaves few positions besides the invariant's tokens.
PARAMETERS = irwm.Parameters(constraints=5, scale="auto", noise_coordinates=5)


def new_vault(home: Path) -> Vault:
    """An unlocked vault whose passphrase is derived quickly."""
    return Vault.create(home, PASSPHRASE, cost=Cost(memory_kib=8, passes=1, lanes=1))


def make_keys(model: irwm.Checkpoint, names: Sequence[str], params: irwm.Parameters = PARAMETERS) -> list[irwm.Key]:
    return [irwm.generate_key(model, params, SECRET, "Example Labs", name) for name in names]


def put_in_vault(vault: Vault, keys: Sequence[irwm.Key]) -> list[str]:
    """The keys' identifiers, in order."""
    new = [
        NewKey(
            sealed=key.to_bytes(),
            owner=key.owner,
            recipient=key.recipient,
            model_name="tiny",
            model_fingerprint=key.model_fingerprint,
            family="llama",
            commitment=key.commitment,
            parameters=key.parameters.to_dict(),
        )
        for key in keys
    ]
    return [record.id for record in vault.add_keys(new)]


def averaged(copies: Sequence[Path], target: Path) -> Path:
    """The mean of several copies, tensor by tensor."""
    shutil.copytree(copies[0], target, ignore=shutil.ignore_patterns("SHA256SUMS"))
    tensors = [load_file(copy / "model.safetensors") for copy in copies]
    mean = {
        name: (sum(each[name].float() for each in tensors) / len(tensors)).to(t.dtype) for name, t in tensors[0].items()
    }
    save_file(mean, target / "model.safetensors", metadata={"format": "pt"})
    return target


def request(original: Path, keys: Sequence[str] | None, **changes: Any) -> dict[str, Any]:
    return {
        "original": str(original),
        "keys": None if keys is None else list(keys),
        "matching": "",
        "noisy": False,
        "seed": 0,
        "statistic": "joint",
        "invariant": "original",
        "decoys": 200,
        "case_id": "",
        "case_title": "Leak of 3 May",
        "note": "",
        "device": "cpu",
        "scheduler": "",
    } | changes


def protect_request(
    model: Path, out: Path, recipient: str = "Early access 7", label: str = "spring release", **changes: Any
) -> dict[str, Any]:
    return {
        "model": str(model),
        "out": str(out),
        "parameters": irwm.Parameters().to_dict(),
        "owner": "Example Labs",
        "recipients": [{"name": recipient, "note": label}],
        "device": "cpu",
    } | changes


def jobs_of(vault: Vault) -> Jobs:
    """The job list of the unlocked vault, which can start jobs."""
    return Jobs(vault.home).opened(vault.jobs_keys_to_seal())


def given_out(jobs: Jobs, id: str, folder: Path) -> Path:
    """A new folder with the job's sealed files, opened as for a user."""
    folder.mkdir()
    files = jobs.files(id)
    for path in jobs.folder(id).glob(f"*{ENDING}"):
        name = path.name.removesuffix(ENDING)
        (folder / name).write_bytes(files.read(name))
    return folder


def start_here(
    kind: str,
    title: str,
    asked: Mapping[str, Any],
    secrets: Mapping[str, Any] | None,
    jobs: Jobs,
    ready: Ready | None = None,
) -> Job:
    """As `runner.start`, but runs the job in this process, which is faster, and returns it when it is over."""
    job = jobs.create(kind, title, asked)
    jobs.start(job.id, os.getpid())
    reporter = JobReporter(jobs, job.id)
    try:
        result = task.run(kind, asked, secrets or {}, reporter)
    except IrwmError as error:
        jobs.finish(job.id, "failed", error=error_parts(error))
    else:
        jobs.finish(job.id, "done", result=result)
    return jobs.get(job.id)


def run_here(kind: str, asked: dict[str, Any], vault: Vault, jobs: Jobs) -> Job:
    """The finished job, run in this process."""
    return start_here(kind, kind.capitalize(), asked, secrets_for(vault), jobs)


def run_job(kind: str, asked: dict[str, Any], vault: Vault, jobs: Jobs) -> Job:
    """The finished job, run in its own process."""
    return until_over(jobs, runner.start(kind, kind.capitalize(), asked, secrets_for(vault), jobs).id)


def succeeded(job: Job) -> Job:
    """The job, which must not have failed."""
    assert job.state == "done", job.error
    return job
