"""Processor time by function: a copy, a key's first test, and a key among many."""

from __future__ import annotations

import cProfile
import pstats
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.speed.claim import SECRET, Bench, Figure
from benchmarks.speed.task import ROOT, measured

Function = tuple[str, int, str]  # file, line, name
# Calls twice, seconds without and with callees, and the same by caller.
Calls = dict[Function, tuple[int, int, float, float, dict[Function, tuple[int, int, float, float]]]]

NAME, TITLE = "functions", "Processor time by function"
KEYS, SHOWN = 20, 8


def first_key(model: str, suspect: str) -> dict[str, Any]:
    """Profile the first key on a suspect, from the files on, with the original's hash known."""
    import irwm

    original = irwm.open_checkpoint(model)
    key = irwm.generate_key(original, secret=SECRET)
    return _profiled(lambda: irwm.detect(irwm.open_checkpoint(suspect), irwm.open_checkpoint(model), key))


def further_keys(model: str, suspect: str, screen: bool) -> dict[str, Any]:
    """Profile further keys on an open suspect, per key."""
    import irwm

    original = irwm.open_checkpoint(model)
    keys = [
        irwm.generate_key(original, secret=SECRET, recipient=f"Recipient {number}") for number in range(1, 2 + KEYS)
    ]
    findings = irwm.detect_each(irwm.Examination(irwm.open_checkpoint(suspect), original), keys, screen=screen)
    next(findings)
    return _profiled(lambda: list(findings), KEYS)


def further_copy(model: str, out: str) -> dict[str, Any]:
    """Profile the second copy of a run."""
    import irwm
    from irwm.scheme.parameters import many_recipients

    original = irwm.open_checkpoint(model)
    params = many_recipients(original.hidden_size)
    keys = [irwm.generate_key(original, params, secret=SECRET, recipient=f"Recipient {number}") for number in (0, 1)]
    first = irwm.insert(original, keys[0], Path(out) / "0")
    return _profiled(lambda: irwm.insert(original, keys[1], Path(out) / "1", shared=first.shared))


def _profiled(work: Callable[[], object], parts: int = 1) -> dict[str, Any]:
    """Milliseconds of processor time of all threads, by function of the project."""
    profiles: list[cProfile.Profile] = []

    def follow(*_: object) -> None:
        """Replaces itself by a profiler, in a thread that starts."""
        profiles.append(cProfile.Profile(time.thread_time))
        profiles[-1].enable()

    with ExitStack() as after:
        threading.setprofile(follow)
        after.callback(threading.setprofile, None)
        follow()
        after.callback(profiles[0].disable)
        work()
    stats = pstats.Stats(profiles[0])
    for profile in profiles[1:]:
        stats.add(profile)
    calls: Calls = stats.stats  # type: ignore[attr-defined]
    own: dict[str, float] = {}
    for function, (_, _, alone, _, _) in calls.items():
        for name, share in _owners(function, calls, ()).items():
            own[name] = own.get(name, 0.0) + share * alone
    most = sorted(own.items(), key=lambda each: -each[1])[:SHOWN]
    return {
        "total": 1000 * sum(own.values()) / parts,
        "functions": [[name, 1000 * seconds / parts] for name, seconds in most],
    }


def _owners(function: Function, calls: Calls, callees: tuple[Function, ...]) -> dict[str, float]:
    """The functions of the project that a function's time belongs to, and their shares: itself, or its callers."""
    file = Path(function[0])
    if file.is_relative_to(ROOT / "irwm"):
        module = file.relative_to(ROOT / "irwm").with_suffix("").as_posix().replace("/", ".")
        return {f"{module}.{function[2]}": 1.0}
    callers = {each: took[3] for each, took in calls[function][4].items() if each not in (*callees, function)}
    whole = sum(callers.values())
    if not whole:
        return {"other": 1.0}
    shares: dict[str, float] = {}
    for caller, took in callers.items():
        for name, share in _owners(caller, calls, (*callees, function)).items():
            shares[name] = shares.get(name, 0.0) + share * took / whole
    return shares


STEPS = {"first_key": first_key, "further_keys": further_keys, "further_copy": further_copy}


def measure(bench: Bench) -> dict[str, Any]:
    pair: dict[str, Any] = {"model": str(bench.model()), "suspect": str(bench.release())}
    result = {
        "the first key on a suspect": measured(NAME, "first_key", 1, **pair),
        "a further key": measured(NAME, "further_keys", 1, **pair, screen=False),
        "a further key, screened": measured(NAME, "further_keys", 1, **pair, screen=True),
    }
    out = bench.folder / "profiled"
    out.mkdir()
    try:
        copy = measured(NAME, "further_copy", 1, model=pair["model"], out=str(out))
    finally:
        shutil.rmtree(out)
    result["a further recipient's copy"] = copy
    bench.say(f"  {result}")
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    return []


def details(result: dict[str, Any]) -> list[str]:
    said = [
        "Time of libraries and of C belongs to the function of the project that calls them. Each step has one core, "
        "and the profiler takes part of the time."
    ]
    for what, run in result.items():
        parts = ", ".join(f"`{name}` {ms:.3g}" for name, ms in run["functions"])
        said.append(f"**{what[0].upper()}{what[1:]}**, {run['total']:.3g} ms in all: {parts}.")
    return said
