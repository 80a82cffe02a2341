"""Detections on a GPU and on the processor at 8B geometry: whether ranks are equal, and how much time a GPU saves."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.speed.claim import MIB, SECRET, Bench, Figure, median, seconds
from benchmarks.speed.task import measured

NAME, TITLE = "gpu", "On a GPU"


def missing(bench: Bench) -> str:
    """Return why this machine cannot measure the claim, or ""."""
    import torch

    return "" if torch.cuda.is_available() else "this machine has no GPU that torch can use"


def detect(model: str, suspect: str, device: str, keys: int) -> dict[str, Any]:
    """Detect all keys on one suspect. Return their ranks and the peak of GPU memory."""
    import torch

    import irwm

    original = irwm.open_checkpoint(model)
    made = [irwm.generate_key(original, secret=SECRET, recipient=str(n) if n else "") for n in range(keys)]
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.zeros(1, device=device)  # start the driver outside the timing
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    found = list(irwm.detect_each(irwm.Examination(irwm.open_checkpoint(suspect), original, device), made))
    return {
        "detect": time.perf_counter() - began,
        "ranks": [finding.reading.ranks.tolist() for finding in found],
        "verdicts": [finding.verdict for finding in found],
        "memory": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "device": torch.cuda.get_device_name(0) if on_gpu else "processor",
    }


STEPS = {"detect": detect}


def measure(bench: Bench) -> dict[str, Any]:
    model = str(bench.model())
    cases = {
        "untouched": (str(bench.release()), 1, bench.repeats),
        "rotated, scaled and reordered": (str(bench.disguised()), 1, 1),
        "many keys": (str(bench.release()), 5 if bench.quick else 50, 1),
    }
    result: dict[str, Any] = {}
    for name, (suspect, keys, times) in cases.items():
        result[name] = {"keys": keys}
        for device in ("cpu", "cuda"):
            result[name][device] = [
                measured(NAME, "detect", bench.threads, model=model, suspect=suspect, device=device, keys=keys)
                for _ in range(times)
            ]
            shown = {key: value for key, value in result[name][device][-1].items() if key != "ranks"}
            bench.say(f"  {name}, {device}: {shown}")
    return result


def _apart(case: dict[str, Any]) -> float:
    """Return the greatest difference between a rank on the processor and on the GPU."""
    cpu, cuda = case["cpu"][0]["ranks"], case["cuda"][0]["ranks"]
    pairs = zip(cpu, cuda, strict=True)
    most: float = max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))
    return most


def figures(result: dict[str, Any]) -> list[Figure]:
    made = []
    for name, case in result.items():
        apart, faster = _apart(case), median(case["cpu"], "detect") / median(case["cuda"], "detect")
        made.append(
            Figure(
                f"{name}, {case['keys']} key(s): ranks on the GPU compared with the processor's",
                "the same",
                f"greatest difference {apart:.3g}; {seconds(case['cuda'], 'detect')} against "
                f"{seconds(case['cpu'], 'detect')}, {faster:.1f} × faster, "
                f"{max(run['memory'] for run in case['cuda']) / MIB:.0f} MiB of the GPU's memory",
                apart == 0,
                "Alignments use float32, and a GPU rounds float32 sums differently",
            )
        )
    return made


def details(result: dict[str, Any]) -> list[str]:
    return [f"GPU: {next(iter(result.values()))['cuda'][0]['device']}."]
