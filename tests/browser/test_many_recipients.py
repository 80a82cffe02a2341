"""Marking a copy for each of many recipients, from a pasted table to the receipts."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from storage import Vault
from tools.officer import choose_original, download, fill_path, first_step, place, type_into
from tools.page_events import settled
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser
TABLE = "recipient;note\r\nAcme, Inc.;early access\r\nBolt Ltd;\r\n\u00c7elik;university\r\n"
COPIES = "copies"


@pytest.fixture(scope="module")
def model(demo_path: Path, running_app: RunningApp) -> Path:
    return place(demo_path, running_app.root, "demo")


def to_recipients(page: Page, model: Path) -> None:
    """A fresh page at the second step, with many recipients chosen."""
    page.reload()
    first_step(page)
    choose_original(page, model)
    page.click("#to-names")
    page.get_by_label("One copy per recipient", exact=True).check()
    expect(page.locator("#recipients")).to_be_visible()
    type_into(page, "owner", "Example Labs")


def write_copies(page: Page, parent: Path) -> None:
    """The remaining steps, up to the receipts."""
    page.click("#to-setting")
    expect(page.locator("#odds-figure .plotly")).to_be_visible()
    page.click("#to-place")
    fill_path(page, "target", parent)
    type_into(page, "release-name", COPIES)
    page.locator("#measure-cost").get_by_label("No", exact=True).check()
    expect(page.locator("#preflight")).to_contain_text("Needs")
    page.click("#start-protect")
    expect(page.locator("#receipts-table")).to_be_visible()


@pytest.fixture(scope="module")
def released(page: Page, model: Path, running_app: RunningApp) -> Path:
    to_recipients(page, model)
    page.fill("#recipients textarea", TABLE)
    expect(page.locator("#recipients-preview")).to_contain_text("3 recipients, read as a table (semicolon)")
    page.click("#to-setting")
    expect(page.locator("#preset")).to_be_visible()
    expect(page.locator("#preset label", has_text="Many recipients").locator("input")).to_be_checked()
    expect(page.locator("#odds-said")).to_contain_text("with the 3 keys of this model")
    expect(page.locator("#odds-more")).to_contain_text("see which rows are marked")
    page.click("#back-to-2")
    write_copies(page, running_app.root)
    return running_app.root / COPIES


def test_three_recipients_from_a_pasted_table_each_get_a_copy_and_a_receipt(
    released: Path, page: Page, model: Path, running_app: RunningApp
) -> None:
    expect(page.locator("#receipt")).to_contain_text("3 copies of 3 requested")
    for name in ("Acme, Inc.", "Bolt Ltd", "Çelik"):
        expect(page.locator("#receipts-table")).to_contain_text(name)
    rows = list(csv.DictReader(io.StringIO(download(page, "receipts-csv").removeprefix("\ufeff"))))
    assert [row["recipient"] for row in rows] == ["Acme, Inc.", "Bolt Ltd", "Çelik"]
    assert [row["note"] for row in rows] == ["early access", "", "university"]
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    keys = [irwm.Key.from_bytes(vault.key_bytes(record.id)) for record in vault.keys()]
    assert len({key.secret for key in keys}) == 1
    named = irwm.trace(irwm.open_checkpoint(rows[1]["folder"]), irwm.open_checkpoint(model), keys)
    assert [match.named for match in named] == [False, True, False]
    assert {Path(row["folder"]).parent for row in rows} == {released}


def test_recipients_with_a_copy_are_skipped_when_the_list_grows(released: Path, page: Page, model: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in released.rglob("*")}
    to_recipients(page, model)
    page.fill("#recipients textarea", "acme, inc.\nBOLT LTD\nDora")
    expect(page.locator("#recipients-preview")).to_contain_text("Already released and skipped: 2 recipients")
    write_copies(page, released.parent)
    expect(page.locator("#receipt")).to_contain_text("1 copy of 3 requested; 2 already existed")
    assert {path: path.stat().st_mtime_ns for path in before if path != released} == {
        path: time for path, time in before.items() if path != released
    }
    assert len(list(released.iterdir())) == 4


def test_faulty_list_is_reported_by_line_and_stops(page: Page, model: Path) -> None:
    to_recipients(page, model)
    page.fill("#recipients textarea", "Acme\nBolt\nACME")
    expect(page.locator("#recipients-preview .notice-fault")).to_contain_text("line 3: ACME is the same recipient")
    page.click("#to-setting")
    settled(page)
    expect(page.locator("#recipients")).to_be_visible()
    expect(page.locator("#page-protect .notice-fault:visible, .toast-body")).to_have_count(1)


def test_a_file_fills_the_list_and_one_that_is_not_utf_8_is_refused(page: Page, model: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "list.csv", tmp_path / "old.csv"
    good.write_bytes('\ufeffName,Note\r\n"Acme, Inc.",x\r\nBjörk,\r\n'.encode())
    bad.write_bytes("Name\r\nBjörk\r\n".encode("latin-1"))
    to_recipients(page, model)
    page.set_input_files("#pages input[type=file][accept*=csv]", good)
    expect(page.locator("#recipients-preview")).to_contain_text("2 recipients, read as a table (comma)")
    page.set_input_files("#pages input[type=file][accept*=csv]", bad)
    expect(page.locator(".toast-body")).to_contain_text("not UTF-8")
    expect(page.locator("#recipients textarea")).to_have_value(
        'Name,Note\r\n"Acme, Inc.",x\r\nBjörk,\r\n'.replace("\r", "")
    )
