"""Speed of Explore's redraws: the page's own handlers, called as Gradio calls them.

    python -m benchmarks.explore [--repeat 20] [--model FOLDER]

Each handler is called for one preset after the other, so that no answer comes from a cache. Data that a model's views
cache (the sample and the trials on it) is measured separately, at the first call. Both wall-clock and processor seconds
are shown, since other work may run on the machine. Drawing in the browser is not included.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ui  # noqa: F401  # isort: skip  # before Gradio

import gradio as gr

from benchmarks.written import printed_table
from storage.encryption import Cost
from storage.jobs import Jobs
from ui.components.explore_values import values_of
from ui.context import Context
from ui.explore_plots import AXES
from ui.explore_settings import presets
from ui.pages import explore
from ui.sessions import Sessions
from ui.settings import DEMO, Settings

LIMIT_MS = 200


def handlers(home: Path, root: Path) -> dict[str, Callable[..., Any]]:
    """Return the page's handlers by name, for an unlocked browser."""
    asyncio.set_event_loop(asyncio.new_event_loop())
    sessions = Sessions(home, cost=Cost(memory_kib=8, passes=1, lanes=1))
    sessions.create("hash:bench", "umbrella-quartz-lantern-tide")
    settings = Settings.from_environment({"IRWM_HOME": str(home), "IRWM_ROOTS": str(root)})
    context = Context(settings, sessions, Jobs(home))
    with gr.Blocks() as blocks:
        context.opened, context.dark = gr.State(0), gr.State(False)
        with gr.Tab("Explore") as tab:
            explore.build(context, tab)
    return {block.name: inspect.unwrap(block.fn) for block in blocks.fns.values() if block.fn}


def measured(action: Callable[[], Any]) -> tuple[float, float]:
    """Return wall-clock and processor milliseconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)


def each(handler: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[tuple[float, float]]:
    """Return the times of each call from an unlocked browser."""
    request = gr.Request(session_hash="bench")
    return [measured(partial(handler, *call, request)) for call in calls]


def row(name: str, times: Sequence[tuple[float, float]], limit: bool = True) -> None:
    """Print one table row: median and slowest wall-clock time, median processor time."""
    wall, cpu = sorted(t[0] for t in times), sorted(t[1] for t in times)
    middle = len(times) // 2
    kept = ("yes" if wall[middle] < LIMIT_MS else "no") if limit else ""
    print(f"| {name} | {wall[middle]:.0f} | {wall[-1]:.0f} | {cpu[middle]:.0f} | {kept} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--write", action="store_true", help="put the table into docs/explore.md")
    options = parser.parse_args()
    with printed_table("explore.md", "speed", write=options.write):
        print_table(options)


def print_table(options: argparse.Namespace) -> None:
    values = [values_of(s) for s in presets(256).values()]
    print("| what | median ms | slowest ms | median ms of processor | below 200 |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        own = handlers(home, options.model.resolve().parent)
        draw_odds = own["draw_odds"]
        each(draw_odds, [(False, "required", values[0])])  # exclude plotly's start
        turns = range(options.repeat)
        for axis in AXES:
            row(f"equations over {axis.symbol}", each(draw_odds, [(False, axis.name, values[n % 5]) for n in turns]))
        row("inverse design", each(own["draw_room"], [(False, values[n % 5]) for n in turns]))
        row("settings as JSON", each(own["write_json"], [(values[n % 5],) for n in turns]))
        many, model = values[-1], str(options.model.resolve())
        for view, label in explore.VIEWS:
            row(f"model, {label}: first", each(own["draw_model"], [(False, model, view, many)]), limit=False)
            # Only the wanted success rate changes, so the cached data stays valid.
            again = [(False, model, view, (*many[:6], str(0.99 + n / 10_000), *many[7:])) for n in turns]
            row(f"model, {label}: again", each(own["draw_model"], again))


if __name__ == "__main__":
    main()
