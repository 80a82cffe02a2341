"""A copy that is known only by its answers: recorded with a stop in the middle, named and verified on the pages."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from irwm.inference.loading import open_tokenizer
from tests.browser.test_whole_story import RECIPIENTS, Mouse, mark_five_copies, verify_the_report
from tests.command.test_collect import start, words
from tests.recording.servers import answering
from tools.officer import place
from tools.running_app import RunningApp
from tools.waiting import until, until_ended

pytestmark = pytest.mark.browser

SERVED = RECIPIENTS[2]


@pytest.fixture(scope="module")
def recorded(gemma_path: Path, running_app: RunningApp, page: Page) -> Path:
    """The answers of one of five copies. The command that records them is stopped and started again."""
    original, out = place(gemma_path, running_app.root, "original"), running_app.root / "answers.jsonl"
    copies = mark_five_copies(Mouse(page), running_app.root)
    with answering(copies[SERVED]) as server:
        command = words(server.url, original, out, "--generate", "--answers", "16", "--max-tokens", "48", "--send")
        first = start(*command)
        assert until(lambda: len(server.asked) > 6 or first.poll() is not None, "six requests")
        first.send_signal(signal.SIGINT)
        until_ended(first, "the stopped command")
        assert not out.exists()
        again = start(*command)
        _, said = until_ended(again, "the resumed command")
    assert again.returncode == 0, said
    assert len(set(server.prompts)) == len(server.prompts)
    return out


@pytest.fixture
def officer(page: Page, recorded: Path) -> Mouse:
    """At the page Investigate, for a suspect that only answers."""
    hand = Mouse(page)
    page.reload()
    hand.open("investigate")
    hand.choose("#suspect-way", "Only an API or text is available")
    hand.path("original-of", recorded.parent / "original")
    expect(page.locator("#original-model .model-card h2")).to_have_text("original")
    return hand


def test_the_served_copy_is_named_and_its_report_holds(officer: Mouse, recorded: Path) -> None:
    page = officer.page
    officer.path("answers", recorded)
    expect(page.locator("#start-investigate")).to_be_enabled()
    officer.press("#start-investigate")
    expect(page.locator("#verdict .verdict-word")).to_have_text("Found")
    sentence = page.locator("#verdict .verdict-sentence")
    for name in RECIPIENTS:
        (expect(sentence).to_contain_text if name == SERVED else expect(sentence).not_to_contain_text)(f"“{name}”")
    figure = page.locator("#figure-growth")
    expect(figure.locator(".plotly .main-svg").first).to_be_visible()
    expect(figure).to_contain_text("named at z ≥")
    officer.nothing_is_cut_off()
    verify_the_report(officer, officer.fetch("#report-outside", recorded.parent))


def test_pasted_text_is_too_short_and_accuses_nobody(officer: Mouse, recorded: Path) -> None:
    page, original = officer.page, irwm.open_checkpoint(recorded.parent / "original")
    answers, tokenizer = irwm.read_responses(recorded, original), open_tokenizer(original.path)
    pairs = zip(answers.sequences, answers.prompt_lengths, strict=True)
    texts = [str(tokenizer.decode(each[length:])) for each, length in pairs]
    officer.press("#paste-answers button.label-wrap")
    officer.type("#pasted-text textarea", "\n---\n".join(texts))
    officer.press("#use-pasted")
    expect(page.locator("#start-investigate")).to_be_enabled()
    page.locator("#fits").get_by_role("checkbox").uncheck()
    officer.press("#start-investigate")
    expect(page.locator("#verdict .verdict-word")).to_have_text("Inconclusive")
    for name in RECIPIENTS:
        expect(page.locator("#verdict .verdict-sentence")).not_to_contain_text(f"“{name}”")
    expect(page.locator("#figure-growth .plotly .main-svg").first).to_be_visible()
    officer.nothing_is_cut_off()
