"""Cost of the app's page in the browser: reloading, idle, and showing a running job.

    python -m benchmarks.page [--loads 5]

It prints wall time until the pages are visible, and processor time of the page's process in Chromium per second, when
idle and with a running job. `--marks` restores Gradio's progress marks for every event, for comparison.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, sync_playwright

from tools.running_app import CHROMIUM, CHROMIUM_ARGUMENTS, FAKE_TASKS, REPOSITORY, VIEWPORT, pass_the_gate, start_app

BENCH = "tools.bench_page"
MARKED = "from ui.components import events; events.PRIVATE.pop('show_progress_on'); "
MARKED += f"import runpy; runpy.run_module({BENCH!r}, run_name='__main__', alter_sys=True)"
SECONDS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--marks", action="store_true", help="with the progress marks of Gradio")
    given = parser.parse_args()
    command = ("-c", MARKED) if given.marks else ("-m", BENCH)
    extra = {"PYTHONPATH": f"{FAKE_TASKS}:{REPOSITORY}"}
    with (
        tempfile.TemporaryDirectory(dir=Path.home()) as folder,
        start_app(Path(folder), command, extra) as app,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        page = browser.new_context(viewport=VIEWPORT).new_page()
        page.goto(app.url)
        pass_the_gate(page)
        took = []
        for _ in range(given.loads):
            began = time.monotonic()
            page.reload()
            page.wait_for_selector("#pages")
            took.append(time.monotonic() - began)
        print(f"page reloaded, median of {len(took)}: {statistics.median(took):.1f} s (slowest {max(took):.1f} s)")
        page.click("#page-bench-button")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        time.sleep(SECONDS)
        print(f"processor time per second, idle: {share(session):.2f} s")
        page.click("#start")
        page.wait_for_selector("#page-bench .job-numbers")
        print(f"processor time per second, with a running job: {share(session):.2f} s")
        page.click("#page-bench .job-stop")
        browser.close()


def share(session: CDPSession) -> float:
    """Return processor time of the page per second, over some seconds."""
    before, began = busy(session), time.monotonic()
    time.sleep(SECONDS)
    return (busy(session) - before) / (time.monotonic() - began)


def busy(session: CDPSession) -> float:
    metrics: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


if __name__ == "__main__":
    main()
