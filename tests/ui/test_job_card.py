from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from storage.job import Job
from ui.components.job_card import SpeedMeter, duration_text, job_html, log_html, newest

STARTED = "2026-01-01T00:00:00.000Z"
NOW = datetime(2026, 1, 1, 0, 1, 5, tzinfo=UTC)
JOB = Job(
    id="a" * 16,
    sequence=1,
    kind="protect",
    title="Protect Nordwind",
    state="running",
    request={},
    done=4_100_000_000,
    total=14_500_000_000,
    what="Copying shard 2 of 4",
    created=STARTED,
    started=STARTED,
    ended=None,
    result=None,
    error=None,
    pid=1,
)


def html(job: Job, speed: float | None = 412e6, unit: str = "bytes") -> str:
    return job_html(job, speed=speed, unit=unit, now=NOW)


def test_a_running_job_shows_all_its_numbers() -> None:
    page = html(JOB)
    for text in ("Protect Nordwind", "Running", "Copying shard 2 of 4", "28%", "4.1 GB of 14.5 GB", "412 MB/s"):
        assert text in page
    assert "about 25 s left" in page
    assert "1 min 5 s so far" in page
    assert 'aria-valuenow="28"' in page


def test_job_card_shows_other_units() -> None:
    page = html(replace(JOB, done=12, total=3000), speed=1.5, unit="recipients")
    assert "12 recipients of 3 000 recipients" in page
    assert "1.5 recipients/s" in page


@pytest.mark.parametrize(("lane", "where"), [("cpu", "on the processor"), ("cuda", "on the GPU")])
def test_job_card_shows_device_and_memory(lane: str, where: str) -> None:
    page = html(replace(JOB, lane=lane, memory=412_000_000))
    assert f"<span>{where}</span><span>412 MB of memory</span>" in page
    assert "memory" not in html(replace(JOB, lane=lane))
    assert where not in html(JOB)


def test_unknown_total_shows_no_percentage() -> None:
    page = html(replace(JOB, total=0, done=0), speed=None)
    assert "aria-valuenow" not in page
    assert "%" not in page
    assert "left" not in page
    assert "bar-unknown" in page


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("queued", "Waiting"),
        ("done", "Done"),
        ("failed", "Failed"),
        ("stopped", "Stopped"),
        ("interrupted", "Interrupted"),
    ],
)
def test_each_state_has_a_word(state: str, word: str) -> None:
    job = replace(JOB, state=state, ended="2026-01-01T00:03:05.000Z", error={"problem": "the disk is full"})
    page = html(job)
    assert word in page
    assert ("The disk is full." in page) == (state in ("failed", "interrupted"))
    assert "so far" not in page or state == "queued"


def test_job_card_texts_are_inert() -> None:
    nasty = "<img src=x onerror=alert(1)>"
    for state in ("running", "failed"):
        page = html(replace(JOB, title=nasty, what=nasty, state=state, error={"problem": nasty, "file": nasty}))
        assert "<img" not in page
    assert "<img" not in log_html(f"{nasty}\n\x1b[31m")
    assert "\x1b" not in log_html("\x1b[31m")


def test_speed_uses_recent_seconds_and_resets_with_each_step() -> None:
    meter = SpeedMeter()
    assert meter.speed(JOB, 0.0) is None
    at = lambda done: replace(JOB, done=done)  # noqa: E731
    assert meter.speed(at(JOB.done + 100), 1.0) == pytest.approx(100)
    for second in range(2, 40):
        speed = meter.speed(at(JOB.done + 100 + 10 * (second - 1)), float(second))
    assert speed == pytest.approx(10), "old progress is forgotten"
    assert meter.speed(at(5), 41.0) is None
    assert meter.speed(at(25), 42.0) == pytest.approx(20)


def test_page_shows_running_or_recently_ended_job() -> None:
    jobs = [replace(JOB, id=str(n), kind=k, state=s) for n, (k, s) in enumerate(
        [("investigate", "running"), ("protect", "done"), ("protect", "running")]
    )]  # fmt: skip
    running = newest(jobs, ("protect",), NOW)
    assert running is not None
    assert running.id == "2"
    done = newest(jobs[:2], ("protect",), NOW)
    assert done is not None
    assert done.id == "1"
    assert newest(jobs, ("lab",), NOW) is None
    assert newest(jobs[:2], ("protect",), NOW.replace(day=3)) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (200, "3 min 20 s"),
        (1200, "20 min"),
        (7500, "2 h 5 min"),
        (7200, "2 h"),
        (-5, "0 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
