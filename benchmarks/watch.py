"""A watch of many suspects and originals: its speed, the relatives that it finds, and the unrelated that it accuses.

    python -m benchmarks.watch [--suspects 1000] [--originals 20]

The originals are four small trained models and random ones of two geometries. One suspect in twenty was made from a
release: as it is, rotated and reordered, at 4 bits, with noise, or with half of its principal components.
The others are random models of the same geometries, half of them with a tokenizer. The job is the app's own, in its own
processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import irwm
from irwm.attacks import adaptive, add_noise, quantize
from irwm.attacks.equivalence import disguise
from storage.job_table import Job
from storage.jobs import Jobs
from storage.vault import Vault
from tools.small_models import DEMO, write_llama
from ui import offline
from ui.jobs import requests, runner
from ui.jobs.requests import Asked
from ui.jobs.vault_access import secrets_for
from ui.services.results import Watched, WatchRow
from ui.services.stored_results import watch_rows

MODELS = Path(__file__).resolve().parents[1] / "tests" / "models"
TRAINED = (DEMO, *(MODELS / name for name in ("gemma", "gpt2", "phi3")))
GEOMETRIES: tuple[dict[str, Any], ...] = (
    {"vocab_size": 1200, "hidden_size": 64},
    {"vocab_size": 2048, "hidden_size": 96},
)
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
# One suspect in so many is a relative.
RELATIVE = 20
FORMS: dict[str, Callable[[Path, Path], object]] = {
    "as it is": shutil.copytree,
    "rotated and reordered": lambda release, out: disguise(release, out, ["rotate", "reorder_tokens"]),
    "4 bits": lambda release, out: quantize(release, out, 4),
    "noise": lambda release, out: add_noise(release, out, 0.1),
    "half of the components": lambda release, out: adaptive.drop_components(release, out, 0.5),
}


@dataclass(frozen=True, slots=True)
class Planted:
    """A suspect that was made from a release."""

    original: Path
    recipient: str
    form: str


def over(asked: Asked, vault: Vault, jobs: Jobs) -> Job:
    """The finished job."""
    secrets = secrets_for(vault)
    job = runner.start(asked.kind, asked.title, asked.request.to_json(), secrets, jobs)
    while not job.is_over:
        time.sleep(0.2)
        job = jobs.get(job.id)
    if job.state != "done":
        raise SystemExit(f"{asked.title}: {job.state}, {job.error}")
    return job


def make_originals(folder: Path, count: int) -> list[Path]:
    made = list(TRAINED[:count])
    for number in range(count - len(made)):
        made.append(write_llama(folder / f"random-{number}", seed=number, **GEOMETRIES[number % len(GEOMETRIES)]))
    return made


def protect(original: Path, out: Path, recipient: str, vault: Vault, jobs: Jobs) -> Path:
    settings = irwm.Parameters()
    over(requests.protect(vault, original, out, owner="Labs", parameters=settings, recipient=recipient), vault, jobs)
    return out


def make_suspects(releases: dict[str, tuple[Path, Path]], folder: Path, count: int) -> dict[str, Planted]:
    """The suspects' folders; returns the relatives among them by name."""
    planted: dict[str, Planted] = {}
    recipients, forms = list(releases), list(FORMS)
    for number in range(count):
        out = folder / f"suspect-{number:05}"
        if number % RELATIVE == 0:
            place = number // RELATIVE
            recipient, form = (
                recipients[place % len(recipients)],
                forms[(place + place // len(recipients)) % len(forms)],
            )
            original, release = releases[recipient]
            FORMS[form](release, out)
            planted[out.name] = Planted(original, recipient, form)
            continue
        write_llama(out, seed=10_000 + number, **GEOMETRIES[number % len(GEOMETRIES)])
        if number % 4 < 2:
            for name in TOKENIZER:
                shutil.copyfile(DEMO / name, out / name)
    return planted


def accused(row: WatchRow) -> bool:
    result = row["result"]
    return result is not None and (result["word"] == "found" or result["lineage"] == "derived")


def named(row: WatchRow | None, expected: Planted) -> bool:
    """Whether a row says from whose release of which original the suspect was made."""
    result = row["result"] if row else None
    return (
        result is not None
        and (result["word"], result["whose"]) == ("found", [expected.recipient])
        and Path(result["original"]) == expected.original
    )


def measure(folder: Path, suspects: int, originals: int) -> list[tuple[str, str]]:
    home, made = folder / "home", folder / "suspects"
    made.mkdir()
    vault = Vault.create(home, "a passphrase of this benchmark")
    jobs = Jobs(home).opened(vault.jobs_keys_to_seal())
    releases = {}
    for number, original in enumerate(make_originals(folder / "originals", originals)):
        recipient = f"Recipient {number}"
        releases[recipient] = original, protect(original, folder / f"release-{number}", recipient, vault, jobs)
    planted = make_suspects(releases, made, suspects)
    began = time.monotonic()
    job = over(requests.watch(vault, [str(made)], most=suspects), vault, jobs)
    seconds = time.monotonic() - began
    began = time.monotonic()
    again: Watched = over(requests.watch(vault, [str(made)], most=suspects), vault, jobs).result
    repeated = time.monotonic() - began
    rows = {row["name"]: row for row in watch_rows(jobs.files(job.id))}
    assert len(rows) == suspects
    assert not again["counts"]
    vault.lock()
    found = [(f"relatives found with their recipient: {form}", _found(rows, planted, form)) for form in FORMS]
    innocent = [row for name, row in rows.items() if name not in planted]
    tried = sum(row["result"] is not None and row["result"]["log10_risk"] is not None for row in innocent)
    return [
        ("originals, one release each", f"{originals}"),
        ("suspects", f"{suspects}, of which {len(planted)} relatives"),
        ("time", f"{seconds:.0f} s on {os.cpu_count()} cores, {suspects / seconds:.2f} suspects a second"),
        ("time of a second pass, which screens none", f"{repeated:.1f} s"),
        *found,
        ("unrelated suspects on which keys were tried", f"{tried} of {len(innocent)}"),
        ("unrelated suspects accused", f"{sum(map(accused, innocent))} of {len(innocent)}"),
        ("suspects that could not be examined", f"{sum(row['error'] is not None for row in rows.values())}"),
    ]


def _found(rows: dict[str, WatchRow], planted: dict[str, Planted], form: str) -> str:
    own = {name: each for name, each in planted.items() if each.form == form}
    return f"{sum(named(rows.get(name), each) for name, each in own.items())} of {len(own)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suspects", type=int, default=1000)
    parser.add_argument("--originals", type=int, default=20)
    options = parser.parse_args()
    offline.apply()
    with tempfile.TemporaryDirectory() as folder:
        print("| | |\n|---|---|")
        for what, value in measure(Path(folder), options.suspects, options.originals):
            print(f"| {what} | {value} |")


if __name__ == "__main__":
    main()
