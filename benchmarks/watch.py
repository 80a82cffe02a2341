"""A watch of many suspects and originals: its speed, the relatives that it finds, and the unrelated that it accuses.

    python -m benchmarks.watch [--suspects 1000] [--originals 20] [--write]
    python -m benchmarks.watch --large [--folder FOLDER] [--write]

--write puts the table into docs/watching.md. With --large, what a suspect of 8B geometry on a hub costs: a hub on this
machine, with the hub's own protocol, counts requests and bytes of an unrelated model, a release, and a release that was
rotated and reordered. The models take 30 GB in FOLDER, by default a temporary one.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import irwm
from benchmarks.speed import geometry
from benchmarks.speed.claim import MIB, Bench
from benchmarks.written import printed_table
from irwm.attacks import adaptive, add_noise, quantize
from irwm.attacks.equivalence import disguise
from storage.job_table import Job
from storage.jobs import Jobs
from storage.vault import Vault
from tools.hub import serving
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
QUICK = geometry.Geometry(rows=3000, columns=512, inner=1024, heads=4, key_heads=2, layers=1)
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


def measure_large(folder: Path, size: geometry.Geometry) -> Iterator[tuple[str, ...]]:
    """What each suspect on the hub costs."""
    bench = Bench(folder, 1, size, False, 1)
    original, release, disguised = bench.model(), folder / "released", folder / "released and disguised"
    unrelated = folder / "unrelated"
    vault = Vault.create(folder / "home", "a passphrase of this benchmark")
    jobs = Jobs(folder / "home").opened(vault.jobs_keys_to_seal())
    protect(original, release, "Ada", vault, jobs)
    table = irwm.open_checkpoint(release).embedding(slice(None)).bfloat16()
    geometry.write(disguised, size, geometry.rotated_and_reordered(table), seed=5)
    random = torch.randn(size.rows, size.columns, generator=torch.Generator().manual_seed(6)).mul_(0.02).bfloat16()
    geometry.write(unrelated, size, random, seed=6)
    for name, path in (("unrelated", unrelated), ("a release", release), ("rotated and reordered", disguised)):
        with serving(path) as hub:
            owner = name.split()[-1]
            hub.models[f"{owner}/model"] = hub.commit, path
            for file in path.iterdir():
                hub.sha256(file)  # the hub knows its digests
            cache = str(folder / name)
            os.environ |= {"HF_ENDPOINT": hub.address, "IRWM_SERVERS": "127.0.0.1", "XDG_CACHE_HOME": cache}
            job = over(requests.watch(vault, [f"hf://{owner}"]), vault, jobs)
            (row,) = watch_rows(jobs.files(job.id))
            assert row["result"] is not None, row["error"]
            said = f"{row['result']['word']} {', '.join(row['result']['whose'])}".strip()
            cost = row["result"]["seconds"]
            yield name, f"{len(hub.requests)}", f"{hub.bytes_sent / MIB:.0f} MiB", f"{cost:.1f} s", said
        shutil.rmtree(folder / name, ignore_errors=True)
    vault.lock()


def print_table(options: argparse.Namespace, folder: Path) -> None:
    if options.large:
        print("| suspect of 8B geometry | requests | read | time | result |\n|---|---|---|---|---|")
        rows: Iterable[tuple[str, ...]] = measure_large(folder, QUICK if options.quick else geometry.Geometry())
    else:
        print("| | |\n|---|---|")
        rows = measure(folder, options.suspects, options.originals)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suspects", type=int, default=1000)
    parser.add_argument("--originals", type=int, default=20)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--quick", action="store_true", help="with --large: a small geometry, as a smoke test")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    offline.apply()
    marker = "watch_large" if options.large else "watch"
    with (
        printed_table("watching.md", marker, write=options.write),
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
    ):
        print_table(options, Path(folder))


if __name__ == "__main__":
    main()
