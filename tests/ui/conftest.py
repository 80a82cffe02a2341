"""The app's pages, built once for all tests of a process; each test gets an empty home and an unlocked vault."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.jobs import Jobs
from tests.ui.handlers import CHEAP, JOBS_KEYS, PASSPHRASE, SESSION, Pages
from tools.running_app import FAKE_TASKS
from ui import frame
from ui.context import Context
from ui.drafts import Drafts
from ui.jobs import runner
from ui.jobs.processes import Ready
from ui.sessions import Sessions
from ui.settings import Settings


class NeverReady(Ready):
    """Counts the requests and starts no process before a task: the tests of handlers start few tasks."""

    asked = 0

    def prepare(self) -> None:
        self.asked += 1


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """The pages over an empty home. Gradio needs half a second to build them, so tests share them."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch, loops_closed(patch):
        settings = started(patch, folder)
        context = Context(settings, new_sessions(settings), Jobs(settings.home), ready=NeverReady())
        yield Pages(context, frame.build(context, "CPU"), folder)


@pytest.fixture
def pages(built: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pages:
    """The app's pages over a new home with an unlocked vault."""
    settings = started(monkeypatch, tmp_path)
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(uploads))
    context = built.context
    context.settings, context.sessions = settings, new_sessions(settings)
    context.sessions.create(SESSION, PASSPHRASE)
    context.jobs, context.drafts, context.device = Jobs(settings.home), Drafts(), "CPU"
    context.__post_init__()  # the recent paths of this home
    return Pages(context, built.blocks, tmp_path / "models")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """The job list of an empty home; each job runs a task that does nothing, and is stopped at the end."""
    monkeypatch.setenv("PYTHONPATH", str(FAKE_TASKS))
    jobs = Jobs(tmp_path / "home").opened(JOBS_KEYS)
    yield jobs
    for job in jobs.recent():
        runner.stop(job.id, jobs)


def started(patch: pytest.MonkeyPatch, folder: Path) -> Settings:
    """The settings of an app that starts with its home and its models in this folder."""
    (folder / "models").mkdir()
    patch.setenv("IRWM_HOME", str(folder / "home"))
    patch.setenv("IRWM_ROOTS", str(folder / "models"))
    patch.setenv("IRWM_DEVICE", "cpu")
    return Settings.from_environment()


def new_sessions(settings: Settings) -> Sessions:
    return Sessions(settings.home, cost=CHEAP)


@contextlib.contextmanager
def loops_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the event loops that Gradio makes where none runs, one for each of its locks, and never closes."""
    policy, made = type(asyncio.get_event_loop_policy()), []
    make = policy.new_event_loop

    def remembered(self: asyncio.AbstractEventLoopPolicy) -> asyncio.AbstractEventLoop:
        made.append(make(self))
        return made[-1]

    monkeypatch.setattr(policy, "new_event_loop", remembered)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        for loop in made:
            if not loop.is_running():
                loop.close()
