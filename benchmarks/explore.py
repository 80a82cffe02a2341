"""How fast Explore redraws: its page's own handlers, called as Gradio calls them.

    python -m benchmarks.explore [--repeat 20] [--model FOLDER]

Each handler is called for every preset in turn, so that no answer is one that was kept; what a model's views keep (the
sample, the trials on it) is measured apart, at its first call. Seconds on the clock and of the processor, since other
work may share the machine. The browser's own drawing is not in it.
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
    """The page's handlers by name, for a browser that is unlocked."""
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
    """Milliseconds on the clock, and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)


def each(handler: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[tuple[float, float]]:
    """What every call takes, made by an unlocked browser."""
    request = gr.Request(session_hash="bench")
    return [measured(partial(handler, *call, request)) for call in calls]


def row(name: str, times: Sequence[tuple[float, float]], limit: bool = True) -> None:
    """One line of the table: median and slowest on the clock, median of the processor."""
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
        each(draw_odds, [(False, "required", values[0])])  # plotly's own beginnings
        turns = range(options.repeat)
        for axis in AXES:
            row(f"equations over {axis.symbol}", each(draw_odds, [(False, axis.name, values[n % 5]) for n in turns]))
        row("inverse design", each(own["draw_room"], [(False, values[n % 5]) for n in turns]))
        row("settings as JSON", each(own["write_json"], [(values[n % 5],) for n in turns]))
        many, model = values[-1], str(options.model.resolve())
        for view, label in explore.VIEWS:
            row(f"model, {label}: first", each(own["draw_model"], [(False, model, view, many)]), limit=False)
            # Only the success wanted moves, which leaves what is kept as it is.
            again = [(False, model, view, (*many[:6], str(0.99 + n / 10_000), *many[7:])) for n in turns]
            row(f"model, {label}: again", each(own["draw_model"], again))


if __name__ == "__main__":
    main()
