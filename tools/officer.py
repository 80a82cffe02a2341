"""An officer's actions on the pages, as functions that make tests readable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

STEPS = ("to-names", "to-setting", "to-place", "start-protect")


def fill_path(page: Page, purpose: str, path: Path | str) -> None:
    """Paste a path into a picker and leave the field."""
    change = page.locator("#investigate-change:visible")
    if change.count():  # a finished investigation has folded its inputs
        change.click()
    field = page.locator(f"#path-{purpose} input, #path-{purpose} textarea").first
    field.fill(str(path))
    field.press("Enter")


def type_into(page: Page, element: str, text: str) -> None:
    """Type into a field and move to the next one, like a user."""
    field = page.locator(f"#{element} input, #{element} textarea").first
    field.fill(text)
    field.press("Tab")


def open_tab(page: Page, name: str) -> None:
    page.click(f"#page-{name}-button")


def choose_original(page: Page, original: Path) -> None:
    fill_path(page, "original", original)
    expect(page.locator("#protect-model .model-card h2")).to_have_text(original.name)


def first_step(page: Page) -> None:
    """Go back to the wizard's first step."""
    open_tab(page, "protect")
    # A reload restores the wizard's state a moment after the page is loaded.
    expect(page.locator("body[data-protect]")).to_be_attached()
    if not page.locator("#protect-steps").is_visible():  # the last release replaces the wizard
        page.click(":is(#protect-another, #protect-back):visible")
    # Each step has its own button, which identifies the visible step. While the tab is being drawn there is no button.
    shown = page.locator(", ".join(f"#{step}:visible" for step in STEPS))
    expect(shown).to_have_count(1)
    at = STEPS.index(str(shown.get_attribute("id")))
    for step in reversed(range(at)):
        page.click(f"#back-to-{step + 1}")
        expect(page.locator(f"#{STEPS[step]}")).to_be_visible()


def set_up_release(page: Page, original: Path, parent: Path, name: str, owner: str, recipient: str) -> None:
    """Fill in the wizard up to its last button."""
    first_step(page)
    choose_original(page, original)
    page.click("#to-names")
    expect(page.locator("#owner")).to_be_visible()
    type_into(page, "owner", owner)
    type_into(page, "recipient", recipient)
    page.click("#to-setting")
    expect(page.locator("#preset")).to_be_visible()
    page.click("#to-place")
    expect(page.locator("#release-name")).to_be_visible()
    fill_path(page, "target", parent)
    type_into(page, "release-name", name)
    page.locator("#measure-cost").get_by_label("No", exact=True).check()  # measuring takes seconds


def protect(page: Page, original: Path, release: Path, owner: str = "Example Labs", recipient: str = "") -> None:
    """Mark a model and wait for its receipt."""
    set_up_release(page, original, release.parent, release.name, owner, recipient)
    expect(page.locator("#preflight")).to_contain_text("Needs")
    page.click("#start-protect")
    expect(page.locator("#receipt")).to_contain_text(str(release))


def investigate(page: Page, suspect: Path, original: Path, only_key: str | None = None) -> dict[str, Any]:
    """Examine a suspect and return the downloaded JSON; `only_key` keeps the one key whose label contains it."""
    page.reload()  # selects all keys again, and shows the earlier result
    open_tab(page, "investigate")
    fill_path(page, "suspect", suspect)
    expect(page.locator("#suspect-model .model-card h2")).to_have_text(suspect.name)
    fill_path(page, "original-of", original)
    expect(page.locator("#original-model .model-card h2")).to_have_text(original.name)
    expect(page.locator("#start-investigate")).to_be_enabled()
    if only_key is not None:
        keep_key(page, only_key)
    return run_investigation(page, suspect.name)


def investigate_as(page: Page, suspect: Path, original: Path, *, title: str, examiner: str, seen: str) -> None:
    """Examine a suspect with a case title, an examiner and the date since which the suspect is known."""
    open_tab(page, "investigate")
    fill_path(page, "suspect", suspect)
    expect(page.locator("#suspect-model .model-card h2")).to_have_text(suspect.name)
    fill_path(page, "original-of", original)
    expect(page.locator("#start-investigate")).to_be_enabled()
    page.click("#investigate-advanced button.label-wrap")
    for field, text in (("case-title", title), ("suspect-seen", seen), ("examiner", examiner)):
        type_into(page, field, text)
    page.click("#start-investigate")
    expect(page.locator("#finding .verdict-about")).to_contain_text(f"{suspect.name} against")


def keep_key(page: Page, words: str) -> None:
    """Remove every other key from the list."""
    chips = page.locator("#keys .token")
    expect(chips.first).to_be_visible()
    for index in reversed(range(chips.count())):
        if words not in chips.nth(index).inner_text():
            chips.nth(index).locator(".token-remove").click()
    expect(chips).to_have_count(1)


def run_investigation(page: Page, name: str) -> dict[str, Any]:
    page.click("#start-investigate")
    expect(page.locator("#finding")).to_be_hidden()
    card = page.locator("#finding .verdict-about")
    # Each row of a disguised suspect is compared with all rows.
    expect(card).to_contain_text(f"{name} against")
    expect(page.locator("#figure-positions .plotly")).to_be_visible()
    return dict(json.loads(download(page, "report-json")))


def download(page: Page, button: str) -> str:
    """Return the text behind a download button."""
    with page.expect_download() as event:
        page.click(f"#{button}")
    return Path(event.value.path()).read_text(encoding="utf-8")


def fetch(page: Page, button: str, folder: Path) -> Path:
    """Save the file behind a download button in a folder under its suggested name, and return its path."""
    with page.expect_download() as event:
        page.click(f"#{button}")
    target = folder / event.value.suggested_filename
    event.value.save_as(target)
    return target


def points(page: Page, element: str) -> int:
    """Return the number of finite y values in all traces of a figure, as the browser has them."""
    count: int = page.evaluate(
        """id => document.querySelector(`#${id} .js-plotly-plot`).data
               .flatMap(trace => Array.from(trace.y?._inputArray ?? trace.y ?? []))
               .filter(value => value !== null && Number.isFinite(Number(value))).length""",
        element,
    )
    return count


def place(model: Path, root: Path, name: str) -> Path:
    """Copy a model to a folder that the app may read."""
    target = root / name
    if not target.exists():
        shutil.copytree(model, target)
    return target
