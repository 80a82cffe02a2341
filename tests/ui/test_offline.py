"""The upload folder of a process, and the folders that killed processes left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ui.handlers import Pages
from ui import offline

START = "import sys; from ui import offline; print(offline.private_uploads(), flush=True); sys.stdin.read()"


def start(temp: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with an upload folder that holds a report."""
    process = subprocess.Popen(
        [sys.executable, "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temp)},
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    (folder / "report.html").write_text("secret")
    return process, folder


@pytest.mark.fault(80)
def test_next_start_removes_only_files_of_killed_apps(tmp_path: Path) -> None:
    others = tmp_path / "irwm-uploads-link"
    (tmp_path / "elsewhere").mkdir()
    others.symlink_to(tmp_path / "elsewhere")
    killed, gone = start(tmp_path)
    running, kept = start(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (gone / "report.html").exists(), "this is what the next start has to remove"
    third, own = start(tmp_path)
    try:
        assert not gone.exists()
        assert (kept / "report.html").read_text() == "secret", "another running app's"
        assert (tmp_path / "elsewhere").is_dir()
        assert own.is_dir()
    finally:
        for process in (running, third):
            process.communicate("")
    assert not kept.exists(), "an app that ends normally removes its own"


@pytest.mark.fault(96)
@pytest.mark.parametrize(
    ("soft", "hard", "set_to"),
    [(256, 100_000, (4096, 100_000)), (256, 1024, (1024, 1024)), (8192, 100_000, None), (256, -1, (4096, -1))],
)
def test_file_limit_is_raised_to_request_or_system_maximum(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, set_to: tuple[int, int] | None
) -> None:
    asked: list[tuple[int, int]] = []
    limits = SimpleNamespace(
        RLIMIT_NOFILE=7,
        RLIM_INFINITY=-1,
        getrlimit=lambda _: (soft, hard),
        setrlimit=lambda _, limit: asked.append(limit),
    )
    monkeypatch.setattr(offline, "resource", limits)
    offline.allow_files(4096)
    assert asked == ([] if set_to is None else [set_to])


def test_gradio_makes_no_statistics_of_its_events(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = pages.blocks._queue
    assert queue.ANALYTICS_MAX_EVENTS == 1

    def made(_records: object) -> None:
        raise AssertionError("statistics were made")

    monkeypatch.setattr(queue, "_get_df", made)
    monkeypatch.setattr(queue, "events_recorded", 10_000)
    records: Any = {"event": {"time": 0.0, "status": "success", "process_time": 1.0, "function": "open"}}
    assert queue.compute_analytics_summary(records) == {"functions": {}}
    monkeypatch.setattr(queue, "ANAYLTICS_CACHE_FREQUENCY", 1)  # Gradio's default, in its spelling
    with pytest.raises(AssertionError, match="statistics were made"):
        queue.compute_analytics_summary(records)
