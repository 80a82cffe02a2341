"""Walk through the app in a real Chromium and save the pictures for README and docs, light and dark.

    python -m tools.screenshots [EMPTY_FOLDER]

Starts the app on a copy of the demo model in a temporary folder, or in the given one, whose name is then visible in the
pictures. Writes docs/images/*.png at 1280 x 800.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from irwm.attacks.equivalence import disguise
from tools.copies import DISGUISES
from tools.officer import (
    choose_original,
    fill_path,
    first_step,
    open_tab,
    place,
    protect,
    type_into,
)
from tools.page_events import settled
from tools.running_app import CHROMIUM, CHROMIUM_ARGUMENTS, opened_context, pass_the_gate, start_app

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as throw_away:
        take_pictures(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(throw_away))


def take_pictures(folder: Path) -> None:
    with start_app(folder) as app, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        model = place(ROOT / "assets" / "demo", app.root, "demo-model")
        release, suspect = app.root / "demo-model-marked", app.root / "leaked-model"
        for scheme in ("light", "dark"):
            context = opened_context(browser, color_scheme=scheme)
            page = context.new_page()
            page.goto(app.url)
            page.wait_for_selector("#first-passphrase input, #passphrase input")
            keep(page, f"gate-{scheme}")
            pass_the_gate(page)
            walk(page, model, release, suspect, scheme)
            context.close()
        browser.close()


def walk(page: Page, model: Path, release: Path, suspect: Path, scheme: str) -> None:
    """Run the officer's workflow, once per colour scheme."""
    if not release.exists():
        protect(page, model, release, owner="Example Labs", recipient="Early access 7")
        disguise(release, suspect, DISGUISES, seed=1)
        page.reload()
        expect(page.locator("#pages")).to_be_visible()
    first_step(page)
    choose_original(page, model)
    keep(page, f"protect-original-{scheme}")
    page.click("#to-names")
    expect(page.locator("#owner")).to_be_visible()
    type_into(page, "owner", "Example Labs")
    type_into(page, "recipient", "Early access 7")
    page.click("#to-setting")
    expect(page.locator("#preset")).to_be_visible()
    keep(page, f"protect-setting-{scheme}")
    open_tab(page, "investigate")
    fill_path(page, "suspect", suspect)
    fill_path(page, "original-of", model)
    expect(page.locator("#start-investigate")).to_be_enabled()
    keep(page, f"investigate-{scheme}")
    page.click("#start-investigate")
    expect(page.locator("#finding")).to_be_hidden()
    expect(page.locator("#figure-positions .plotly")).to_be_visible()
    page.locator("#verdict").evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + scrollY - 24)")
    keep(page, f"verdict-{scheme}")
    page.locator("#recognition").evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + scrollY - 8)")
    keep(page, f"recognised-{scheme}")
    page.locator("#figures").evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + scrollY - 120)")
    keep(page, f"figure-{scheme}")
    open_tab(page, "lab")
    if scheme == "light":
        attack(page)
    else:  # a finished lab is shown again
        expect(page.locator("#lab-trials .plotly")).to_be_visible()
    page.locator("#lab-summary").evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + scrollY - 24)")
    keep(page, f"lab-{scheme}")
    page.locator("#lab-trials").evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + scrollY - 24)")
    keep(page, f"lab-figures-{scheme}")
    open_tab(page, "vault")
    page.click("#vault-refresh")
    expect(page.locator("#vault-keys")).to_contain_text("Example Labs")
    page.evaluate("scrollTo(0, 0)")
    keep(page, f"vault-{scheme}")


def attack(page: Page) -> None:
    """Run a rehearsal on the demo model, with the quick set of attacks and one kind of mark."""
    page.locator("#lab-modes label", has_text="Many recipients").locator("input").uncheck()
    page.click("#start-lab")
    expect(page.locator("#job-lab .state-done")).to_be_visible()
    expect(page.locator("#lab-trials .plotly")).to_be_visible()


def keep(page: Page, name: str) -> None:
    settled(page)
    page.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
