"""A running task: progress, speed, remaining time, the end of its log, and Stop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError, printable
from storage.job_table import Ahead, Job, JobLine
from ui.components import notices
from ui.components.events import in_turn
from ui.components.guarded import guarded
from ui.components.icons import icon
from ui.components.markup import each
from ui.context import Context
from ui.jobs import runner
from ui.services.work import IN_BYTES
from ui.units import size_text

AnyJob = TypeVar("AnyJob", bound=JobLine)

POLL_SECONDS = 1.0
# A speed over the last few seconds follows a disk that slows down; over one second it would flicker.
SPEED_WINDOW_SECONDS = 8.0
# The remaining time is shown once the speed was measured this long, and both halves of that time agree to this factor.
STEADY_SECONDS, STEADY_FACTOR = 4.0, 1.5
# Jobs whose speed is remembered at once; usually one or two run.
METERS = 32
# After a reload the newest job of a page is shown again, running or not, if it is younger than this.
SHOWN_AGAIN_SECONDS = 12 * 3600
LOOK_BACK = 50
LOG_BYTES = 6000
LOG_HEIGHT = 220

STATES = {
    "queued": "Waiting",
    "running": "Running",
    "resting": "Scheduled",
    "done": "Done",
    "failed": "Failed",
    "stopped": "Stopped",
    "interrupted": "Interrupted",
}
ICONS = {"done": "done", "failed": "fault", "interrupted": "fault", "stopped": "stopped"}


@dataclass(frozen=True, slots=True)
class Speed:
    """Units per second, and whether they were steady enough to predict the remaining time."""

    value: float
    steady: bool = False


class SpeedMeter:
    """The speed of a job, from its recent progress on the page."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def speed(self, job: JobLine, now: float) -> Speed | None:
        """The recent speed; None until two readings differ. A step that starts over at 0 resets the meter."""
        seen = self._seen.setdefault(job.id, deque())
        if len(self._seen) > METERS:
            self._seen.pop(next(iter(self._seen)))
        if seen and job.done < seen[-1][1]:
            seen.clear()
        seen.append((now, job.done))
        while len(seen) > 2 and seen[0][0] < now - SPEED_WINDOW_SECONDS:
            seen.popleft()
        whole = _slope(seen[0], seen[-1])
        if not whole:
            return None
        middle = min(seen, key=lambda reading: abs(reading[0] - (seen[0][0] + now) / 2))
        slow, fast = sorted((_slope(seen[0], middle), _slope(middle, seen[-1])))
        return Speed(whole, now - seen[0][0] >= STEADY_SECONDS and 0 < fast <= STEADY_FACTOR * slow)


def _slope(first: tuple[float, int], last: tuple[float, int]) -> float:
    """Units per second between two readings; 0 if there was no progress."""
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0


@dataclass(frozen=True, slots=True)
class JobCard:
    """The parts of the card that a page uses.

    Attributes:
        job_id: a `gr.State` with the job shown, or None. A page that starts a job returns its id into this.
        ended: a `gr.State` with the id of the shown job once it is over, else None. A page shows the result on its
            `change` event; it also fires after a reload.
        box: the column around the card.
        log: the folded end of the log; a page that asked for it apart renders it in another place.
        step: a `gr.State` with the current step of the shown job, "" while none runs. A page shows a job's findings so
            far on its `change` event.
        restored: the job that a request sees again after a reload, or None.
    """

    job_id: gr.State
    ended: gr.State
    box: gr.Column
    log: gr.Accordion
    step: gr.State
    restored: Callable[[gr.Request], Job | None]


def job_card(
    context: Context,
    kinds: Sequence[str],
    *,
    unit: str | Mapping[str, str] = "bytes",
    log_open: bool = False,
    log_apart: bool = False,
    running_only: Callable[[gr.Request], bool] = lambda request: False,
) -> JobCard:
    """Builds the card, its timer and its events at this place of the page.

    Args:
        kinds: the kinds of job that belong to this page; the newest of them is shown again after a reload. The first
            one also names the card's element.
        unit: the unit of progress: "bytes", or a plural such as "recipients"; a mapping by kind if the card shows jobs
            of several kinds, with bytes for kinds that are not in it.
        log_open: show the end of the log unfolded.
        log_apart: the log is not part of the card; the page renders `JobCard.log`.
        running_only: whether a job that is over is not shown again after a reload, because the user began a new one.
    """
    kinds = tuple(kinds)
    job_id = gr.State(None)
    context.cards.update(dict.fromkeys(kinds, (context.page, job_id)))
    ended, step = gr.State(None), gr.State("")
    timer = gr.Timer(POLL_SECONDS, active=False)
    with gr.Column(visible=False, elem_classes="job", elem_id=f"job-{kinds[0]}") as box:
        with gr.Row(elem_classes="job-row"):
            card = gr.HTML(elem_classes="job-card")
            stop = gr.Button("Stop", variant="stop", scale=0, elem_classes="job-stop", visible=False)
        with gr.Accordion(
            "Log", open=log_open, visible=not log_apart, render=not log_apart, elem_classes="job-log"
        ) as log_box:
            log = gr.HTML(autoscroll=True, max_height=LOG_HEIGHT)
    seen_log = gr.State("")

    handlers = Handlers(context, kinds, unit, running_only)
    look = handlers.look
    about, shown = [job_id, seen_log], [box, log_box, card, stop, log, seen_log, timer, ended, step]
    turn = in_turn(f"job {kinds[0]}")
    job_id.change(look, about, shown, **turn)
    timer.tick(look, about, shown, **turn)
    stop.click(lambda: gr.Button("Stopping…", interactive=False), None, stop, **turn).then(
        guarded(handlers.end), about, shown, **turn
    ).then(lambda: gr.Button("Stop", interactive=True), None, stop, **turn)
    # Refreshed in any case: the same job may have been shown here before the page was locked.
    context.opened.change(handlers.restore, job_id, job_id, **turn).then(look, about, shown, **turn)
    return JobCard(job_id, ended, box, log_box, step, handlers.restored)


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of a card's events; the fields are those of `job_card`."""

    context: Context
    kinds: tuple[str, ...]
    unit: str | Mapping[str, str]
    running_only: Callable[[gr.Request], bool]
    meter: SpeedMeter = field(default_factory=SpeedMeter)

    def look(self, id: str | None, seen: str, request: gr.Request) -> Any:
        """The current values of the whole card for this job; `seen` is the end of the log that it shows."""
        if id is None or not self.context.is_open(request):
            return *_visible(False), gr.skip(), gr.skip(), gr.skip(), "", gr.Timer(active=False), None, ""
        try:
            jobs = self.context.jobs_of(request)
            job, ahead, tail = jobs.get(id), jobs.ahead(id), jobs.log_tail(id, LOG_BYTES)
        except IrwmError as error:
            said, gone = notices.error_html(error), gr.Button(visible=False)
            return *_visible(True), said, gone, gr.skip(), seen, gr.Timer(active=False), None, ""
        speed = self.meter.speed(job, time.monotonic())
        counted = self.unit if isinstance(self.unit, str) else self.unit.get(job.kind, "bytes")
        return (
            *_visible(True),
            job_html(job, speed=speed, unit=counted, now=datetime.now(UTC), ahead=ahead),
            gr.Button(visible=not job.is_over, interactive=not job.is_over),
            # Redrawn only when it grew: a reader may have selected a line.
            gr.skip() if tail == seen else log_html(tail),
            tail,
            gr.Timer(active=not job.is_over),
            job.id if job.is_over else None,
            "" if job.is_over else job.what,
        )

    def restore(self, present: str | None, request: gr.Request) -> Any:
        """The job to show after a reload, from the table of jobs and not from the browser's state.

        A job that is already shown stays: an officer may have started or chosen it before this event arrived.
        """
        job = self.restored(request) if present is None else None
        return job.id if job else gr.skip()

    def restored(self, request: gr.Request) -> Job | None:
        if not self.context.is_open(request):
            return None
        # A job that another vault sealed cannot be shown.
        jobs = [job for job in self.context.jobs_of(request).recent(LOOK_BACK) if isinstance(job, Job)]
        job = newest(jobs, self.kinds, datetime.now(UTC))
        return None if job is None or (job.is_over and self.running_only(request)) else job

    def end(self, id: str | None, seen: str, request: gr.Request) -> Any:
        self.context.require(request)
        if id is not None:
            runner.stop(id, self.context.jobs)
        return self.look(id, seen, request)


def _visible(shown: bool) -> tuple[gr.Column, gr.Accordion]:
    return gr.Column(visible=shown), gr.Accordion(visible=shown)


def newest(jobs: Sequence[AnyJob], kinds: Sequence[str], now: datetime) -> AnyJob | None:
    """The job that a page shows when it is opened: a running one, else the latest if it is not old."""
    own = [job for job in jobs if job.kind in kinds]
    running = next((job for job in own if not job.is_over), None)
    if running is not None:
        return running
    latest = own[0] if own else None
    if latest is None or (now - datetime.fromisoformat(latest.created)).total_seconds() >= SHOWN_AGAIN_SECONDS:
        return None
    return latest


def job_html(job: Job, *, speed: Speed | None, unit: str, now: datetime, ahead: Sequence[Ahead] = ()) -> str:
    """The card as HTML: title and state, bar, step, numbers; for a failed job its error.

    Args:
        ahead: the jobs that this one waits for.
    """
    part = min(1.0, job.done / job.total) if job.total > 0 else None
    if job.state == "done":
        part = 1.0
    head = Markup('<div class="job-head" data-kind="{}"><h2>{}</h2>{}</div>').format(
        printable(job.kind), printable(job.title), state_html(job)
    )
    failed = job.error is not None and job.state in ("failed", "interrupted", "resting")
    body = Markup(notices.error_html(job.error)) if failed and job.error else Markup("")
    if not body or job.state == "resting":
        body += _bar(job, part, ahead)
    numbers = _numbers(job, part, speed, unit, now)
    return str(Markup('{}{}<p class="job-numbers">{}</p>').format(head, body, numbers))


def state_html(job: JobLine) -> Markup:
    """The state of a job, with its icon."""
    symbol = icon(ICONS[job.state]) if job.state in ICONS else ""
    return Markup('<span class="job-state state-{}">{}{}</span>').format(job.state, symbol, STATES[job.state])


def log_html(tail: str) -> str:
    """The end of a log as HTML, fully escaped."""
    lines = "\n".join(printable(line, 500) for line in tail.splitlines())
    return str(
        Markup('<pre class="log" tabindex="0" aria-label="End of the log">{}</pre>').format(lines or "The log is empty")
    )


def duration_text(seconds: float) -> str:
    """A duration as people say it: "12 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def _bar(job: Job, part: float | None, ahead: Sequence[Ahead]) -> Markup:
    if job.state == "stopped":
        return Markup(
            '<p class="job-what">Stopped at your request. Partial output was removed; finished files were kept.</p>'
        )
    if job.state == "resting":
        return Markup('<p class="job-what">{}</p>').format(printable(job.what))
    value = Markup(' aria-valuenow="{:.0f}"').format(part * 100) if part is not None else ""
    width = Markup(' style="width:{:.1f}%"').format(part * 100) if part is not None else ""
    return Markup(
        '<div class="bar{}" role="progressbar" aria-valuemin="0" aria-valuemax="100"{} aria-label="Progress">'
        '<div class="bar-done"{}></div></div><p class="job-what">{}</p>'
    ).format("" if part is not None else " bar-unknown", value, width, printable(_step(job, ahead)))


def _step(job: Job, ahead: Sequence[Ahead]) -> str:
    if job.state == "done":
        return "Finished"
    if ahead:
        others = len(ahead) - 1
        more = f" and {others} more" if others else ""
        return f"Waiting for its turn: the device is busy with “{ahead[0].title or ahead[0].kind}”{more}"
    return job.what or ("Waiting for its turn" if job.state == "queued" else "Getting ready")


def _numbers(job: Job, part: float | None, speed: Speed | None, unit: str, now: datetime) -> Markup:
    texts = []
    unit = "bytes" if job.what.startswith(IN_BYTES) else unit
    if job.state == "running":
        if job.total > 0 and part is not None:
            texts.append(f"{part:.0%}")
            texts.append(f"{_amount(job.done, unit)} of {_amount(job.total, unit)}")
        if speed:
            texts.append(f"{size_text(speed.value)}/s" if unit == "bytes" else f"{speed.value:.1f} {unit}/s")
            if job.total > job.done and speed.steady:
                texts.append(f"about {duration_text((job.total - job.done) / speed.value)} left")
    if job.lane:
        texts.append("on the GPU" if job.lane == "cuda" else "on the CPU")
    if job.memory:
        texts.append(f"{size_text(job.memory)} of memory")
    if job.started:
        ended = datetime.fromisoformat(job.ended) if job.ended else now
        took = max(0.0, (ended - datetime.fromisoformat(job.started)).total_seconds())
        texts.append(f"{duration_text(took)} so far" if not job.is_over else f"took {duration_text(took)}")
    return each("<span>{}</span>", ((text,) for text in texts))


def _amount(count: int, unit: str) -> str:
    return size_text(count) if unit == "bytes" else f"{count:,} {unit}".replace(",", " ")
