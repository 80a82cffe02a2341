"""Waiting times of the user: the app's start, Explore's answers, a vault of ten thousand keys, a report."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.speed.claim import Bench, Figure, median, seconds, spread
from benchmarks.speed.task import ROOT, measured
from irwm.report.signature_file import ENDING

NAME, TITLE = "interface", "The app"
MOST_START, MOST_UPDATE, KEYS, MOST_REPORT = 8.0, 0.2, 10_000, 5.0
# A longer delay after a click or a key feels like lag.
MOST_LAG = 1.0
# Milliseconds that an officer waits after opening the app, or one of its pages, before the next action.
SETTLES = 2000
PASSPHRASE = "umbrella-quartz-lantern-tide"


def explore(repeat: int) -> dict[str, Any]:
    """Return median and slowest seconds of each of Explore's formulas, with the page's own handlers."""
    from benchmarks import explore as page

    values = [page.values_of(each) for each in page.presets(256).values()]
    with tempfile.TemporaryDirectory() as folder:
        own = page.handlers(Path(folder) / "home", page.DEMO.resolve().parent)
        draw = own["draw_odds"]
        page.each(draw, [(False, "required", values[0])])  # exclude plotly's start
        turns = range(repeat)
        calls: dict[str, tuple[Any, list[tuple[Any, ...]]]]
        calls = {f"equations over {axis.symbol}": (draw, [(False, axis.name, values[n % len(values)]) for n in turns])
                 for axis in page.AXES}  # fmt: skip
        calls["inverse design"] = own["draw_room"], [(False, values[n % len(values)]) for n in turns]
        calls["settings as JSON"] = own["write_json"], [(values[n % len(values)],) for n in turns]
        took = {name: [wall / 1000 for wall, _ in page.each(*call)] for name, call in calls.items()}
    return {"formulas": {name: [statistics.median(each), max(each)] for name, each in took.items()}}


def report(document: str) -> dict[str, Any]:
    """Write HTML, JSON and PDF from a finding's document."""
    import json

    from irwm.report.write import report_files

    content = json.loads(Path(document).read_text(encoding="utf-8"))
    began = time.perf_counter()
    files = report_files(content)
    return {"report": time.perf_counter() - began, "sizes": {name: len(data) for name, data in files.items()}}


STEPS = {"explore": explore, "report": report}


def measure(bench: Bench) -> dict[str, Any]:
    result = {
        "imports": [_imports() for _ in range(bench.repeats)],
        "start": [_start() for _ in range(bench.repeats)],
        "explore": measured(NAME, "explore", bench.threads, repeat=5 if bench.quick else 20),
        "report": _reports(bench),
        "vault": _vault(200 if bench.quick else KEYS),
    }
    bench.say(f"  {result}")
    return result


def _imports() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ui, gradio, torch, ui.frame"], cwd=ROOT, check=True)
    return time.perf_counter() - began


def _start() -> float:
    """Return seconds until the app of a new user responds with its page."""
    from tools.running_app import start_app

    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        began = time.perf_counter()
        with start_app(Path(folder)):
            return time.perf_counter() - began


def _reports(bench: Bench) -> list[dict[str, Any]]:
    """Write the report of a real investigation repeatedly."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        environment = os.environ | {"IRWM_HOME": str(folder / "home"), "IRWM_DEVICE": "cpu"}

        def command(*words: str) -> None:
            subprocess.run(
                [sys.executable, "app.py", *words, "--quiet", "--passphrase-stdin"],
                cwd=ROOT, env=environment, input=PASSPHRASE + "\n", text=True, check=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip

        command("init")
        command("protect", "assets/demo", str(folder / "release"), "--owner", "Example Labs", "--utility", "no")
        command("investigate", str(folder / "release"), "--original", "assets/demo", "--report", str(folder / "out"))
        written = (folder / "out").rglob("report-release-*.json")
        document = str(next(each for each in written if not each.name.endswith(ENDING)))
        return [measured(NAME, "report", bench.threads, document=document) for _ in range(bench.repeats)]


def _vault(count: int) -> dict[str, Any]:
    """Time a real browser on a vault of `count` keys: the tab's first page, the next one, a search."""
    from playwright.sync_api import sync_playwright

    from storage import NewKey, Vault
    from tools.officer import open_tab
    from tools.running_app import CHROMIUM, CHROMIUM_ARGUMENTS, VIEWPORT, pass_the_gate, start_app

    new = NewKey(b"key", "Example Labs", "", "demo", "ab" * 32, "llama", "cd" * 32, {"positions": 50})
    with (
        tempfile.TemporaryDirectory(dir=Path.home()) as temporary,
        start_app(Path(temporary)) as app,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        page = browser.new_context(viewport=VIEWPORT).new_page()
        page.goto(app.url)
        pass_the_gate(page)
        vault = Vault.open(app.home)
        vault.unlock(PASSPHRASE)
        vault.add_keys(replace(new, recipient=f"Recipient {n:05}", commitment=f"{n:064x}"[::-1]) for n in range(count))
        vault.lock()
        took = {}

        def until(shown: str, text: str) -> None:
            # Checked in every frame, because an assertion of the browser's driver polls less often.
            page.wait_for_function(
                "([place, text]) => document.querySelector(place)?.textContent.includes(text)",
                arg=[shown, text],
                polling="raf",
            )

        for visit in ("the page itself, the first time", "the page itself, again"):
            page.wait_for_timeout(SETTLES)
            began = time.perf_counter()
            open_tab(page, "vault")
            until("#vault-keys", f"Recipient {count - 1:05}")
            took[visit] = time.perf_counter() - began
            if visit.endswith("first time"):
                page.goto(app.url)
        page.wait_for_timeout(SETTLES)
        began = time.perf_counter()
        page.click("#vault-keys-forth")
        until("#vault-keys", f"Recipient {count - 51:05}")
        took["the next fifty"] = time.perf_counter() - began
        page.wait_for_timeout(SETTLES)
        began = time.perf_counter()
        page.fill("#vault-keys-search input, #vault-keys-search textarea", "00007")
        until("#vault-keys-where .note", "1 key")
        took["a search for one"] = time.perf_counter() - began
        browser.close()
    return {"count": count, "took": took}


def figures(result: dict[str, Any]) -> list[Figure]:
    imports, start = statistics.median(result["imports"]), statistics.median(result["start"])
    slowest = max(result["explore"]["formulas"].items(), key=lambda item: item[1][0])
    lag = max(result["vault"]["took"].items(), key=lambda item: item[1])
    return [
        Figure(
            "from `python app.py` to the first page, without the time of the imports",
            f"below {MOST_START:.0f} s",
            f"{start - imports:.1f} s: {spread(result['start'], 1)} s, of which imports {imports:.1f} s",
            start - imports < MOST_START,
        ),
        Figure(
            "Explore's formulas",
            "below 200 ms",
            f"{1000 * slowest[1][0]:.0f} ms for the slowest, {slowest[0]} (at worst {1000 * slowest[1][1]:.0f} ms)",
            slowest[1][0] < MOST_UPDATE,
        ),
        Figure(
            f"{result['vault']['count']} keys on the page Vault, in a browser",
            f"without lag: below {MOST_LAG:.0f} s",
            f"{lag[1]:.2f} s for the slowest, {lag[0]}",
            lag[1] < MOST_LAG,
        ),
        Figure(
            "a report as HTML, JSON and PDF",
            f"below {MOST_REPORT:.0f} s",
            seconds(result["report"], "report"),
            median(result["report"], "report") < MOST_REPORT,
        ),
    ]


def details(result: dict[str, Any]) -> list[str]:
    took = "; ".join(f"{name} {value:.2f} s" for name, value in result["vault"]["took"].items())
    return [f"Vault: {took}. Each action starts two seconds after the last one, as a person would work."]
