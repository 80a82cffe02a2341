"""A copy offered only through an API: marked in the browser, served, queried with the shown command, and found."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.command.commands import REPOSITORY
from tests.recording.servers import answering
from tools.officer import fill_path, open_tab, place, protect, run_investigation
from tools.running_app import RunningApp
from tools.waiting import PATIENCE

pytestmark = pytest.mark.browser


def shown_command(page: Page, address: str, out: Path) -> list[str]:
    """The command as the page shows it, with the values that only the officer knows."""
    shown = str(page.locator("#how-to-record .copy").get_attribute("data-copy"))
    known = {"python": sys.executable, "app.py": str(REPOSITORY / "app.py"), "https://SERVER": address,
             "NAME": "served", "answers.safetensors": str(out)}  # fmt: skip
    return [known.get(word, word) for word in shlex.split(shown)]


def test_served_copy_is_queried_found_and_its_recipient_named(
    gemma_path: Path, running_app: RunningApp, page: Page
) -> None:
    original = place(gemma_path, running_app.root, "base")
    release, out = running_app.root / "copy", running_app.root / "asked.safetensors"
    protect(page, original, release, recipient="Customer 1")
    page.reload()
    open_tab(page, "investigate")
    fill_path(page, "original-of", original)
    page.get_by_label("It is only reachable through an API").check()
    expect(page.locator("#how-to-record")).to_contain_text(str(original))
    with answering(release, decimals=4) as server:
        planning = shown_command(page, server.url, out)
        planned = subprocess.run(planning, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        assert planned.returncode == 0, planned.stderr
        assert not server.asked, "no request was sent yet"
        sending = [*(word for word in planning if word != "--plan"), "--send", "--rate", "1000"]
        sent = subprocess.run(sending, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        assert sent.returncode == 0, sent.stderr
    fill_path(page, "answers", out)
    expect(page.locator("#answers-model .model-card")).to_contain_text("answers of served")
    expect(page.locator("#start-investigate")).to_be_enabled()
    document = run_investigation(page, f"answers of served at {server.url}/v1/completions")
    assert document["verdict"]["word"] == "found"
    assert document["items"]["suspect"]["answers"]["recording"]["model"] == "served"
    assert [row["recipient"] for row in document["tracing"]["ranked"] if row["named"]] == ["Customer 1"]
    expect(page.locator("#verdict .verdict-sentence")).to_contain_text("“Customer 1”")
