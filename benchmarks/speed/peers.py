"""Time and memory of answering "is it ours?", compared with published methods, on one pair of checkpoints.

AWM and HuRef are the re-implementations of `benchmarks.peers` from their papers. The Cisco kit runs as its own program
if PROVENANCEKIT names it, on the same files. The kit needs a tokenizer, so a folder without one gets the demo's. One
pair is the demo model and its release, the smallest case, where start-up dominates. The other has 8B geometry, where
arithmetic dominates.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.alignment_scale import peak as own_peak
from benchmarks.speed.claim import MIB, SECRET, Bench, Figure, median
from benchmarks.speed.task import ROOT, measured

NAME, TITLE = "peers", "Compared with published methods"
DEMO = ROOT / "assets" / "demo"


def ours(model: str, suspect: str, key: str) -> dict[str, Any]:
    """Open both, align, detect: whose copy it is, and whether one model comes from the other."""
    import irwm

    original = irwm.open_checkpoint(model)
    found = irwm.detect(irwm.open_checkpoint(suspect), original, irwm.Key.from_bytes(bytes.fromhex(key)))
    return {"says": f"{found.verdict}, {found.lineage.status}"}


def peer(method: str, model: str, suspect: str) -> dict[str, Any]:
    """Return a peer's decision."""
    import importlib

    score = importlib.import_module(f"benchmarks.peers.{method}").score(Path(model), Path(suspect))
    return {"says": score.says if score.says != "cannot run" else f"cannot run: {score.reason}"}


def prepare(model: str, out: str) -> dict[str, Any]:
    import irwm

    original = irwm.open_checkpoint(model)
    key = irwm.generate_key(original, secret=SECRET)
    if not Path(out).exists():
        irwm.insert(original, key, out)
    return {"key": key.to_bytes().hex()}


def kit(model: str, suspect: str) -> dict[str, Any]:
    """Run the Cisco kit as a program. Return its seconds from its start, and its own peak memory.

    The system counts the memory of the starting process into a program's peak, so the starting process must be small.
    """
    command = [os.environ["PROVENANCEKIT"], "compare", "--json", "--no-cache"]
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    with tempfile.TemporaryDirectory(dir=Path(suspect).parent) as folder:
        pair = [
            str(_with_tokenizer(Path(each), Path(folder, str(place)))) for place, each in enumerate((model, suspect))
        ]
        answer = Path(folder, "answer.json")
        with answer.open("wb") as said:
            began = time.perf_counter()
            with subprocess.Popen([*command, *pair], env=offline, stdout=said, stderr=subprocess.DEVNULL) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            took = time.perf_counter() - began
        text = answer.read_text(encoding="utf-8")
    try:
        scores = json.loads(text[text.index("{") :])["scores"]
    except (ValueError, KeyError):
        scores = {}
    # Without an identity score the kit did not read the weights and decided by the config alone.
    if scores.get("identity_score") is None or process.returncode:
        return {"says": f"cannot run: status {process.returncode}, {scores or 'no scores'}"}
    if 1024 * usage.ru_maxrss <= own_peak():
        return {"says": "cannot run: the peak of the starting process is higher than its own"}
    return {"seconds": took, "started": 0.0, "peak": 1024 * usage.ru_maxrss, "says": scores["provenance_decision"]}


def _with_tokenizer(model: Path, place: Path) -> Path:
    """Return the model's folder, or a folder with the same files and the demo's tokenizer."""
    if (model / "tokenizer.json").exists():
        return model
    place.mkdir()
    for file in model.iterdir():
        if file.is_file() and not file.name.startswith("tokenizer"):
            os.link(file, place / file.name)  # the kit refuses symbolic links
    for file in DEMO.glob("tokenizer*"):
        shutil.copyfile(file, place / file.name)
    return place


STEPS = {"ours": ours, "peer": peer, "kit": kit, "prepare": prepare}


def measure(bench: Bench) -> dict[str, Any]:
    pairs = {"the demo": (DEMO, bench.folder / "peers-demo-release", bench.repeats)}
    if not bench.quick:  # each peer needs a minute or more
        pairs["8B geometry"] = (bench.model(), bench.release(), 1)
    result: dict[str, Any] = {}
    for name, (model, out, repeats) in pairs.items():
        key = measured(NAME, "prepare", bench.threads, model=str(model), out=str(out))["key"]
        pair: dict[str, Any] = {"model": str(model), "suspect": str(out)}
        steps: dict[str, tuple[str, dict[str, Any]]] = {
            "irwm": ("ours", {"key": key}), "awm": ("peer", {"method": "awm"}), "huref": ("peer", {"method": "huref"})
        }  # fmt: skip
        if shutil.which(os.environ.get("PROVENANCEKIT", "")):
            steps["cisco"] = "kit", {}
        runs: dict[str, list[dict[str, Any]]] = {method: [] for method in steps}
        for _ in range(repeats):
            for method, (step, more) in steps.items():
                runs[method].append(measured(NAME, step, bench.threads, **pair, **more))
        result[name] = runs
        bench.say(f"  {name}: {runs}")
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    made = []
    for pair, runs in result.items():
        whole = {method: median(each, "seconds") + median(each, "started") for method, each in runs.items()}
        peak = {method: max(run["peak"] for run in each) for method, each in runs.items()}
        for method in runs:
            if method == "irwm" or any(run["says"].startswith("cannot run") for run in runs[method]):
                continue
            times, memory = whole[method] / whole["irwm"], peak[method] / peak["irwm"]
            made.append(
                Figure(
                    f"{method} on {pair}, compared with ours, from the process's start",
                    "slower and larger than ours",
                    f"{times:.1f} × the time, {memory:.1f} × the memory ({whole[method]:.1f} s, "
                    f"{peak[method] / MIB:.0f} MiB; ours {whole['irwm']:.1f} s, {peak['irwm'] / MIB:.0f} MiB)",
                    times > 1 and memory > 1,
                    "With a model this small, all methods spend their time on starting Python and torch. Ours also "
                    "finds out whose copy it is, by reading 50 positions under 1000 permutations"
                    if "demo" in pair
                    else "",
                )
            )
    return made


def details(result: dict[str, Any]) -> list[str]:
    said = {f"{method} on {pair}: {runs[0]['says']}" for pair, each in result.items() for method, runs in each.items()}
    return [
        "Ours answers two questions at once: whose copy it is, and whether one model comes from the other. The peers "
        "answer only the second. " + "; ".join(sorted(said)) + "."
    ]
