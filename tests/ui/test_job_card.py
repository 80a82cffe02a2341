from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from storage.job_table import Job
from tests.jobs.recipients import JOB as OF_THE_LIST
from ui.components.job_card import Speed, SpeedMeter, duration_text, job_html, newest

STARTED = "2026-01-01T00:00:00.000Z"
NOW = datetime(2026, 1, 1, 0, 1, 5, tzinfo=UTC)
JOB = replace(
    OF_THE_LIST, title="Protect Nordwind", done=4_100_000_000, total=14_500_000_000, what="Copying shard 2 of 4",
    created=STARTED, started=STARTED,
)  # fmt: skip


FAST = Speed(412e6, steady=True)


def html(job: Job, speed: Speed | None = FAST, unit: str = "bytes") -> str:
    return job_html(job, speed=speed, unit=unit, now=NOW)


def test_speed_uses_recent_seconds_and_resets_with_each_step() -> None:
    meter = SpeedMeter()
    assert meter.speed(JOB, 0.0) is None
    at = lambda done: replace(JOB, done=done)  # noqa: E731
    assert value(meter.speed(at(JOB.done + 100), 1.0)) == pytest.approx(100)
    for second in range(2, 40):
        speed = meter.speed(at(JOB.done + 100 + 10 * (second - 1)), float(second))
    assert value(speed) == pytest.approx(10), "old progress is forgotten"
    assert meter.speed(at(5), 41.0) is None
    assert value(meter.speed(at(25), 42.0)) == pytest.approx(20)


def value(speed: Speed | None) -> float:
    assert speed is not None
    return speed.value


def test_remaining_time_is_shown_while_the_speed_is_steady() -> None:
    meter = SpeedMeter()

    def shown(at: float, done: int) -> bool:
        job = replace(JOB, done=done)
        return "left" in html(job, meter.speed(job, at))

    assert [shown(second, 100 * second) for second in range(6)] == [False] * 4 + [True] * 2
    assert not shown(6, 2000), "much faster than before"
    assert [shown(second, 2000 + 1500 * (second - 6)) for second in range(7, 15)][-1]


def test_page_shows_running_or_recently_ended_job() -> None:
    jobs = [replace(JOB, id=str(n), kind=k, state=s) for n, (k, s) in enumerate(
        [("investigate", "running"), ("protect", "done"), ("protect", "running")]
    )]  # fmt: skip
    assert newest(jobs, ("protect",), NOW) == jobs[2]
    assert newest(jobs[:2], ("protect",), NOW) == jobs[1]
    assert newest(jobs, ("lab",), NOW) is None
    assert newest(jobs[:2], ("protect",), NOW.replace(day=3)) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (1200, "20 min"), (7500, "2 h 5 min"), (7200, "2 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_running_job_shows_all_its_numbers() -> None:
    page = html(replace(JOB, lane="cpu", memory=412_000_000))
    for text in (
        "Protect Nordwind", "Running", "Copying shard 2 of 4", "28%", "4.1 GB of 14.5 GB", "412 MB/s",
        "about 25 s left", "1 min 5 s so far", 'aria-valuenow="28"',
        "<span>on the CPU</span><span>412 MB of memory</span>",
    ):  # fmt: skip
        assert text in page
    assert "12 recipients of 3 000 recipients" in html(replace(JOB, done=12, total=3000), unit="recipients")
    hashing = replace(JOB, done=12_000_000, total=30_000_000, what="Hashing the items for the report")
    assert "12.0 MB of 30.0 MB" in html(hashing, unit="recipients")
    unknown = html(replace(JOB, total=0, done=0), speed=None)
    assert "bar-unknown" in unknown
    for text in ("aria-valuenow", "%", "left", "of memory", "on the"):
        assert text not in unknown


@pytest.mark.parametrize("state", ["queued", "done", "failed", "stopped", "interrupted"])
def test_each_state_has_a_word(state: str) -> None:
    page = html(replace(JOB, state=state, ended="2026-01-01T00:03:05.000Z", error={"problem": "the disk is full"}))
    assert ("Waiting" if state == "queued" else state.capitalize()) in page
    assert ("The disk is full." in page) == (state in ("failed", "interrupted"))
    assert ("so far" in page) == (state == "queued")
