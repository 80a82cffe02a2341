"""axe-core checks every page and state, on a desktop and on a narrow screen: all rules in light, contrast in dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect

from tests.browser.test_settings import PAGES
from tools.officer import (
    choose_original,
    fill_path,
    first_step,
    investigate,
    open_tab,
    place,
    set_up_release,
    type_into,
)
from tools.running_app import VIEWPORT, RunningApp, opened_context, pass_the_gate

pytestmark = pytest.mark.browser

# axe-core's rules, including best practices, on the whole document.
RUN = """async chosen =>
  (await axe.run(document, {resultTypes: ['violations'], elementRef: false, ...chosen})).violations"""
# Transitions change colours and plotly draws in steps, but axe-core reads the page at one moment.
STILL = """() => !document.querySelector('.model-card .pending')
  && document.getAnimations().every(one => one.playState !== 'running' || one.effect.getTiming().iterations > 1)"""


LOOKS = {
    "light": ("light", 1280),
    "dark": ("dark", 1280),
    "light-390": ("light", 390),
    "dark-390": ("dark", 390),
}

# Controls that reach beyond the window. Tables, figures and tabs scroll in their own boxes; inputs of files are hidden.
SCROLLING = ".table-scroll, .lab-scroll, .js-plotly-plot, [role=tablist]"
CUT_OFF = """scrolling => [...document.querySelectorAll('button, textarea, select, input:not([type=file])')]
  .filter(each => each.checkVisibility() && !each.closest(scrolling))
  .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
  .map(each => each.id || each.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module", params=LOOKS)
def seen(request: pytest.FixtureRequest, running_app: RunningApp, chromium: Browser) -> Iterator[Page]:
    """The gate: first before a vault exists, then locked."""
    scheme, width = LOOKS[request.param]
    context = opened_context(chromium, color_scheme=scheme)
    page = context.new_page()
    page.set_viewport_size({**VIEWPORT, "width": width})
    page.goto(running_app.url)
    page.wait_for_selector("#first-passphrase input, #passphrase input")
    check(page, "the gate")
    pass_the_gate(page)
    yield page
    context.close()


@pytest.fixture(scope="module")
def model(running_app: RunningApp, demo_path: Path) -> Path:
    return place(demo_path, running_app.root, "demo-model")


def is_dark(page: Page) -> bool:
    return bool(page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"))


def is_first(page: Page) -> bool:
    return not is_dark(page) and page.viewport_size == VIEWPORT


def check(page: Page, state: str, *rules: str) -> None:
    """Reports what axe-core finds in this state of the page, by these rules. Without any, by all of them in light and
    by that for contrast in dark, as only colours differ."""
    if not rules and is_dark(page):
        rules = ("color-contrast",)
    page.wait_for_function(STILL)
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate(RUN, {"runOnly": list(rules)} if rules else {})
    told = [
        {"rule": each["id"], "of": node["target"], "html": node["html"][:200], "why": node["failureSummary"]}
        for each in found
        for node in each["nodes"]
    ]
    assert told == [], f"{state}:\n{json.dumps(told, indent=1)}"
    assert page.evaluate(CUT_OFF, SCROLLING) == [], f"{state}: cut off at {page.viewport_size}"


def test_axe_on_every_page_when_opened(seen: Page) -> None:
    for name in PAGES:
        open_tab(seen, name)
        expect(seen.locator(f"#page-{name} h1").first).to_be_visible()
        check(seen, name)


def test_axe_on_every_step_of_protect(seen: Page, running_app, model: Path) -> None:
    if not is_first(seen):  # shows the receipt of the first browser
        open_tab(seen, "protect")
        check_receipt(seen)
    first_step(seen)
    check(seen, "an empty wizard")
    seen.click("#browse-original")
    expect(seen.locator("#listing-original .entries")).to_be_visible()
    check(seen, "the folder browser")
    seen.click("#browse-original")
    fill_path(seen, "original", model / "tokenizer.json")
    expect(seen.locator("#picker-original .notice-fault")).to_be_visible()
    check(seen, "a path that cannot be used")
    choose_original(seen, model)
    expect(seen.locator("#to-names")).to_be_enabled()
    check(seen, "the original")
    seen.click("#to-names")
    expect(seen.locator("#owner")).to_be_visible()
    check(seen, "one recipient")
    seen.locator("#whom").get_by_label("One copy per recipient").check()
    seen.locator("#recipients textarea").fill("Ada\nAda\n")
    seen.locator("#recipients textarea").press("Tab")
    expect(seen.locator("#recipients-preview .notice-fault")).to_be_visible()
    check(seen, "many recipients, one of them twice")
    seen.locator("#whom").get_by_label("One copy", exact=True).check()
    type_into(seen, "owner", "Example Labs")
    seen.click("#to-setting")
    expect(seen.locator("#preset")).to_be_visible()
    check(seen, "the presets")
    seen.click("#advanced button.label-wrap")
    expect(seen.locator("#noise-coordinates")).to_be_visible()
    expect(seen.locator("#odds-figure .plotly")).to_be_visible()
    check(seen, "the settings")
    seen.click("#to-place")
    expect(seen.locator("#release-name")).to_be_visible()
    check(seen, "the place")
    release = running_app.root / "marked"
    if is_first(seen):
        set_up_release(seen, model, release.parent, release.name, "Example Labs", "")
        seen.locator("#measure-cost").get_by_label("Yes", exact=True).check()
        seen.click("#start-protect")
        check_receipt(seen)


def check_receipt(page: Page) -> None:
    for cost in ("Cost to the model", re.compile(r"perplexity \d+\.\d\d before, \d+\.\d\d after")):
        expect(page.locator("#receipt")).to_contain_text(cost)
    check(page, "the receipt")


def test_axe_on_a_verdict_with_folded_parts(seen: Page, running_app, model: Path) -> None:
    if not is_first(seen):  # shows the verdict of the first browser
        open_tab(seen, "investigate")
        expect(seen.locator("#figure-positions .plotly")).to_be_visible()
    else:
        investigate(seen, running_app.root / "marked", model)
    check(seen, "a verdict")
    if is_first(seen):  # the inputs of an investigation that was started here
        seen.click("#investigate-change")
    for fold in ("#investigate-advanced", "#upload-suspect", "#finding #glossary"):
        seen.click(f"{fold} button.label-wrap")
    for tab in seen.locator("#figures [role=tab]").all():
        tab.click()
        check(seen, f"the figure {tab.inner_text()}")


def test_axe_on_pages_with_content(seen: Page) -> None:
    """A case, a job list with one job open, the vault's keys, and the folded parts of these pages."""
    for name in PAGES:
        open_tab(seen, name)
        expect(seen.locator(f"#page-{name} h1").first).to_be_visible()
        if name in ("cases", "jobs"):
            seen.locator(f"#{name}-list tbody button").first.click()
            expect(seen.locator("#case, #chosen-job").locator("visible=true").first).to_be_visible()
        folded = seen.locator(f"#page-{name} button.label-wrap:visible:not(.open)")
        while folded.count():  # some are nested
            fold = folded.first.element_handle()
            fold.click()
            seen.wait_for_function("fold => fold.classList.contains('open')", arg=fold)
        check(seen, name)


def test_axe_on_the_locked_gate_and_a_refusal(seen: Page) -> None:
    seen.click("#lock")
    expect(seen.locator("#passphrase input")).to_be_visible()
    check(seen, "locked")
    seen.fill("#passphrase input", "not the passphrase")
    seen.click("#unlock-vault")
    expect(seen.locator("#gate-again .notice-fault")).to_be_visible()
    check(seen, "refused")
