"""An officer's whole work, by mouse and by keyboard alone, on a desktop and on a narrow screen.

A vault is created and a copy marked for each of five recipients. Two of them merge their copies, and both are named.
The verdict is opened again from the list of jobs, the report for outsiders verified, the case renamed, its report
fetched, an item added, a dispute decided and a rehearsal run in the Lab. Then the vault is backed up, its identity and
its passphrase are replaced, the report is checked at the locked gate, and the backup is restored.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import irwm
from irwm.report.checks import NOT_ESTABLISHED
from tools.officer import place
from tools.running_app import PASSPHRASE, opened_context, start_app

pytestmark = pytest.mark.browser

RECIPIENTS = ["Ada Analytics", "Bolt Ltd", "Cobalt", "Dune & Co", "Ember"]
LEAKERS = {"Bolt Ltd", "Ember"}
NEW_PASSPHRASE = "another four plain words"
# More than the number of focusable elements on any page.
MOST_TABS = 400
HAS_FOCUS = """wanted => {
    const at = document.activeElement;
    return wanted.some(each => each === at || each.contains(at) && at.matches('input, textarea, button'));
}"""


@dataclass
class Hand(ABC):
    """How a user works with a page. A selector names its first element, which must be visible."""

    page: Page

    def seen(self, wanted: str | Locator) -> Locator:
        found = self.page.locator(wanted) if isinstance(wanted, str) else wanted
        expect(found.first).to_be_visible()
        return found

    @abstractmethod
    def press(self, wanted: str | Locator) -> None:
        """A button, a tab, or the head of a folded part."""

    @abstractmethod
    def type(self, wanted: str | Locator, text: str, then: str = "Tab") -> None:
        """Replaces a field's content, and leaves the field by a key."""

    @abstractmethod
    def choose(self, group: str, label: str) -> None:
        """One of a group of radio buttons."""

    @abstractmethod
    def first_of(self, wanted: str) -> None:
        """The first entry of a drop-down list."""

    def path(self, purpose: str, path: Path) -> None:
        self.type(f"#path-{purpose} :is(input, textarea)", str(path), then="Enter")

    def fetch(self, button: str, folder: Path) -> Path:
        self.seen(button)
        with self.page.expect_download() as event:
            self.press(button)
        target = folder / event.value.suggested_filename
        event.value.save_as(target)
        return target

    def open(self, page: str) -> None:
        self.press(f"#page-{page}-button")
        expect(self.page.locator(f"#page-{page} h1").first).to_be_visible()

    def nothing_is_cut_off(self) -> None:
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


class Mouse(Hand):
    def press(self, wanted: str | Locator) -> None:
        self.seen(wanted).first.click()

    def type(self, wanted: str | Locator, text: str, then: str = "Tab") -> None:
        field = self.seen(wanted).first
        field.click()
        field.fill(text)
        field.press(then)

    def choose(self, group: str, label: str) -> None:
        self.seen(group).get_by_label(label, exact=True).check()

    def first_of(self, wanted: str) -> None:
        self.press(wanted)
        self.page.locator("[role=option]").first.click()


class Keyboard(Hand):
    """Tab, arrows, Enter and Space; the focused element must be visible."""

    def go_to(self, wanted: str | Locator) -> None:
        found = self.seen(wanted)
        for _ in range(MOST_TABS):
            if found.evaluate_all(HAS_FOCUS):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab never reaches {wanted}")

    def press(self, wanted: str | Locator) -> None:
        self.go_to(wanted)
        self.page.keyboard.press("Enter")

    def type(self, wanted: str | Locator, text: str, then: str = "Tab") -> None:
        self.go_to(wanted)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press(then)

    def choose(self, group: str, label: str) -> None:
        self.go_to(group)
        chosen = self.page.locator(group).get_by_label(label, exact=True)
        for _ in range(self.page.locator(f"{group} input[type=radio]").count()):
            if chosen.is_checked():
                return
            self.page.keyboard.press("ArrowDown")
        expect(chosen).to_be_checked()

    def first_of(self, wanted: str) -> None:
        self.go_to(wanted)
        expect(self.page.locator("[role=option]").first).to_be_visible()
        self.page.keyboard.press("ArrowDown")
        self.page.keyboard.press("Enter")
        expect(self.page.locator(wanted)).not_to_have_value("")


WAYS = {
    "mouse-1280": (Mouse, 1280),
    "mouse-390": (Mouse, 390),
    "keyboard-390": (Keyboard, 390),
    "keyboard-1280": (Keyboard, 1280),
}
IN_FULL = {"keyboard-1280"}


@pytest.fixture(params=[pytest.param(way, marks=[pytest.mark.in_full] * (way in IN_FULL)) for way in WAYS])
def hand(request: pytest.FixtureRequest, tmp_path: Path, chromium: Browser) -> Iterator[Hand]:
    """At the gate of an unused app."""
    kind, width = WAYS[request.param]
    with start_app(tmp_path) as app:
        context = opened_context(chromium, accept_downloads=True)
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(app.url)
        yield kind(page)
        context.close()


@pytest.fixture
def models(tmp_path: Path, demo_path: Path) -> Path:
    """Where the app may look: the original."""
    root = tmp_path / "models"
    root.mkdir(exist_ok=True)
    place(demo_path, root, "original")
    return root


def test_the_whole_story(hand: Hand, models: Path) -> None:
    make_the_vault(hand)
    copies = mark_five_copies(hand, models)
    irwm.attacks.collude([copies[name] for name in sorted(LEAKERS)], models / "leaked")
    report = examine_the_leak(hand, models)
    open_it_from_the_jobs(hand)
    verify_the_report(hand, report)
    rename_the_case(hand)
    files = fetch_the_report_of_the_case(hand, models.parent / "received")
    add_an_item(hand, models / "letter.eml")
    decide_a_dispute(hand, models, copies[RECIPIENTS[0]])
    rehearse(hand)
    back_up(hand)
    replace_the_identity(hand)
    change_the_passphrase(hand)
    check_the_report_without_the_passphrase(hand, files)
    restore_the_backup(hand)


def make_the_vault(hand: Hand) -> None:
    first = hand.page.locator("#first-passphrase input")
    expect(first).to_be_focused()
    hand.type(first, PASSPHRASE)
    hand.type("#second-passphrase input", PASSPHRASE)
    hand.press("#create-vault")
    expect(hand.page.locator("#pages")).to_be_visible()


def mark_five_copies(hand: Hand, models: Path) -> dict[str, Path]:
    """The copies, by recipient."""
    page = hand.page
    hand.open("protect")
    expect(page.locator("body[data-protect]")).to_be_attached()
    hand.path("original", models / "original")
    expect(page.locator("#protect-model .model-card h2")).to_have_text("original")
    hand.press("#to-names")
    hand.choose("#whom", "One copy per recipient")
    hand.type("#owner :is(input, textarea)", "Example Labs")
    hand.type("#recipients textarea", "\n".join(RECIPIENTS))
    expect(page.locator("#recipients-preview")).to_contain_text("5 recipients")
    hand.press("#to-setting")
    expect(page.locator("#preset")).to_be_visible()
    expect(page.locator("#preset label", has_text="Many recipients").locator("input")).to_be_checked()
    hand.press("#to-place")
    hand.path("target", models)
    hand.type("#release-name :is(input, textarea)", "copies")
    hand.choose("#measure-cost", "No")
    expect(page.locator("#preflight")).to_contain_text("Needs")
    hand.press("#start-protect")
    expect(page.locator("#receipt")).to_contain_text("5 copies of 5 requested")
    hand.nothing_is_cut_off()
    table = hand.fetch("#receipts-csv", models.parent).read_text(encoding="utf-8")
    rows = csv.DictReader(io.StringIO(table.removeprefix("\ufeff")))
    return {row["recipient"]: Path(row["folder"]) for row in rows}


def examine_the_leak(hand: Hand, models: Path) -> Path:
    """The report for outsiders."""
    page = hand.page
    hand.open("investigate")
    hand.path("suspect", models / "leaked")
    expect(page.locator("#suspect-model .model-card h2")).to_have_text("leaked")
    hand.path("original-of", models / "original")
    expect(page.locator("#start-investigate")).to_be_enabled()
    hand.press("#start-investigate")
    expect(page.locator("#verdict .verdict-about")).to_contain_text("leaked against")
    expect(page.locator("#verdict .verdict-word")).to_have_text("Found")
    page.wait_for_function("document.activeElement?.matches('#verdict .verdict')")
    for name in RECIPIENTS:
        sentence = expect(page.locator("#verdict .verdict-sentence"))
        (sentence.to_contain_text if name in LEAKERS else sentence.not_to_contain_text)(f"“{name}”")
    hand.nothing_is_cut_off()
    assert hand.fetch("#report-full", models).suffix == ".zip"
    return hand.fetch("#report-outside", models)


def open_it_from_the_jobs(hand: Hand) -> None:
    page = hand.page
    hand.open("jobs")
    hand.press("#jobs-list button.place")
    expect(page.locator("#job-chosen")).to_contain_text("of memory")
    hand.press("#open-result")
    page.wait_for_function("document.activeElement?.matches('#verdict .verdict')")


def verify_the_report(hand: Hand, report: Path) -> None:
    assert report.suffix == ".zip"
    hand.open("verify")
    hand.path("report", report)
    hand.press("#start-verify")
    expect(hand.page.locator("#verified h2")).to_contain_text("No check failed")
    hand.nothing_is_cut_off()


def rename_the_case(hand: Hand) -> None:
    page = hand.page
    hand.open("cases")
    hand.press("#cases-list button.place")
    expect(page.locator("#case-head h2")).to_have_text("leaked")
    hand.press("#rename-case button.label-wrap")
    hand.type("#rename-case-title :is(input, textarea)", "Leak of January", then="Enter")
    expect(page.locator("#case-head h2")).to_have_text("Leak of January")
    hand.nothing_is_cut_off()


def fetch_the_report_of_the_case(hand: Hand, folder: Path) -> list[Path]:
    """The files of the run's report, each downloaded on its own."""
    folder.mkdir()
    hand.press("#case-runs button.place")
    expect(hand.page.locator("#run-card .verdict-word")).to_have_text("Found")
    files = [hand.fetch(f"#run-{part}", folder) for part in ("pdf", "html", "json", "signature")]
    endings = ("html", "json", "pdf", "signature.json")
    stem = min((file.name for file in files), key=len).rpartition(".")[0]
    assert stem.startswith("report-leaked-")
    assert sorted(file.name for file in files) == [f"{stem}.{ending}" for ending in endings]
    return files


def add_an_item(hand: Hand, letter: Path) -> None:
    letter.write_text("Dear Sirs", encoding="utf-8")
    hand.press("#add-item button.label-wrap")
    hand.path("item", letter)
    hand.type("#item-from :is(input, textarea)", "Example Press")
    hand.press("#start-item")
    for words in (letter.name, "from Example Press"):
        expect(hand.page.locator("#case-items")).to_contain_text(words)


def decide_a_dispute(hand: Hand, models: Path, release: Path) -> None:
    """Someone else calls our release his original, and marks it again."""
    page, taken = hand.page, irwm.open_checkpoint(release)
    his = irwm.generate_key(taken, secret=bytes(32), owner="Copy Works")
    marked = irwm.insert(taken, his, models / "marked-again").path
    key_file = models / "their.irwm-key"
    key_file.write_bytes(his.to_bytes())
    hand.press("#dispute button.label-wrap")
    hand.path("dispute-original", models / "original")
    expect(page.locator("#dispute-key input")).not_to_have_value("")
    hand.path("dispute-release", release)
    hand.type("#dispute-name :is(input, textarea)", "Copy Works")
    hand.path("dispute-their-original", release)
    hand.path("dispute-their-key", key_file)
    hand.path("dispute-their-release", Path(marked))
    hand.press("#start-dispute")
    card = page.locator("#run-card")
    expect(card.locator(".verdict-word")).to_have_text("Decided")
    expect(card.locator(".verdict-sentence")).to_contain_text("Example Labs")
    hand.nothing_is_cut_off()


def rehearse(hand: Hand) -> None:
    page = hand.page
    hand.open("lab")
    expect(page.locator("#lab-obstacles")).to_contain_text("cannot run on the demo model")
    hand.press("#start-lab")
    expect(page.locator("#job-lab .state-done")).to_be_visible()
    expect(page.locator("#lab-summary h2")).to_contain_text("The mark was found")
    hand.nothing_is_cut_off()


def back_up(hand: Hand) -> None:
    hand.open("vault")
    hand.press("#vault-backup")
    expect(hand.page.locator("#vault-backed-up")).to_contain_text("A sealed copy was written to")
    with hand.page.expect_download() as begun:
        hand.press("#vault-backup-file")
    assert Path(begun.value.path()).stat().st_size > 0


def replace_the_identity(hand: Hand) -> None:
    page = hand.page
    hand.press("#signing button.label-wrap")
    hand.press("#rotate-identity")
    hand.press("#confirm-rotate")
    expect(page.locator("#identity")).to_contain_text("each identity certifies the next")


def change_the_passphrase(hand: Hand) -> None:
    page = hand.page
    hand.press(page.locator("button.label-wrap", has_text="Backup and passphrase"))
    for label, text in (
        ("Current passphrase", PASSPHRASE),
        ("New passphrase", NEW_PASSPHRASE),
        ("Repeat the new passphrase", NEW_PASSPHRASE),
    ):
        hand.type(page.get_by_label(label, exact=True), text)
    hand.press("#change-passphrase")
    expect(page.get_by_text("Earlier backups can still be opened with the old passphrase")).to_be_visible()
    hand.nothing_is_cut_off()


def check_the_report_without_the_passphrase(hand: Hand, files: list[Path]) -> None:
    page = hand.page
    hand.press("#lock")
    expect(page.locator("#passphrase input")).to_be_focused()
    hand.press("#verify-outside button.label-wrap")
    page.locator("#outside-files input[type=file]").set_input_files(files)
    expect(page.locator("#outside-files")).to_contain_text(".signature")
    hand.press("#outside-verify")
    expect(page.locator("#outside-verified h2")).to_contain_text(NOT_ESTABLISHED)


def restore_the_backup(hand: Hand) -> None:
    """The vault is restored, opens with the old passphrase, and its log says what happened."""
    page = hand.page
    hand.press("#restore button.label-wrap")
    hand.first_of("#restore-which input")
    hand.type("#restore-passphrase input", PASSPHRASE)
    hand.press("#restore-look")
    expect(page.locator("#restore-said")).to_contain_text("Restoring it discards newer records")
    hand.type("#restore-present input", NEW_PASSPHRASE)
    hand.press("#restore-now")
    expect(page.locator("#restore-said")).to_contain_text("The backup was restored")
    hand.press("#restore-done")
    expect(page.locator("#passphrase input")).to_be_focused()
    hand.type("#passphrase input", PASSPHRASE, then="Enter")
    expect(page.locator("#pages")).to_be_visible()
    hand.open("vault")
    for name in RECIPIENTS:
        expect(page.locator("#vault-keys")).to_contain_text(name)
    hand.press("#signing button.label-wrap")
    expect(page.locator("#identity")).to_contain_text("Public key")
    expect(page.locator("#identity")).not_to_contain_text("each identity certifies the next")
