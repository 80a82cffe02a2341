"""Bad input on the pages: each gets a clear message, changes nothing, and the app keeps running."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect
from safetensors.torch import load_file, save_file

import irwm
from tools.officer import (
    choose_original,
    fill_path,
    first_step,
    open_tab,
    place,
    protect,
    set_up_release,
    type_into,
)
from tools.page_events import settled
from tools.running_app import PASSPHRASE, RunningApp
from tools.waiting import until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model(tiny_path: Path, running_app: RunningApp) -> Path:
    return place(tiny_path, running_app.root, "tiny")


@pytest.fixture(scope="module")
def release(model: Path, running_app: RunningApp, page: Page) -> Path:
    out = running_app.root / "tiny-marked"
    protect(page, model, out)
    return out


def contents(root: Path) -> dict[str, bytes]:
    files = (file for file in sorted(root.rglob("*")) if file.is_file() and not file.is_symlink())
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize("make", ["a text file", "an unreadable shard", "outside"])
def test_path_without_a_model_is_reported(running_app: RunningApp, page: Page, make: str) -> None:
    path = running_app.root / make.replace(" ", "-")
    if make == "a text file":
        path = path.with_suffix(".safetensors")
        path.write_text("<!doctype html><p>not found</p>", encoding="utf-8")
        expected = "web page"
    elif make == "an unreadable shard":
        path.mkdir()
        path.joinpath("config.json").write_text("{}", encoding="utf-8")
        path.joinpath("model.safetensors").symlink_to("/proc/self/mem")
        expected = "File"
    else:
        path = Path("/etc/passwd")
        expected = "not in one of the folders"
    page.reload()
    first_step(page)
    fill_path(page, "original", path)
    notice = page.locator("#page-protect .notice-fault, #picker-original .notice-fault").first
    expect(notice).to_contain_text(expected, ignore_case=True)
    expect(page.locator("#picker-original .note .icon")).to_have_count(0)  # no tick for a broken model
    expect(page.locator("#to-names")).to_be_disabled()


def test_a_release_folder_that_exists_is_refused_and_untouched(
    model: Path, release: Path, running_app: RunningApp, page: Page
) -> None:
    before = contents(running_app.root)
    page.reload()
    set_up_release(page, model, release.parent, release.name, "Example Labs", "")
    expect(page.locator("#preflight .notice-fault")).to_contain_text("exists already")
    page.click("#start-protect")
    settled(page)
    expect(page.locator("#preflight .notice-fault")).to_contain_text("exists already")
    expect(page.locator("#page-protect .notice-fault:visible, .toast-body")).to_have_count(1)
    assert contents(running_app.root) == before


@pytest.fixture
def small_disk(running_app: RunningApp) -> Iterator[Path]:
    """A real file system too small for the release."""
    folder = running_app.root / "small-disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.fault(40)
def test_full_disk_is_reported_with_the_space_needed(model: Path, small_disk: Path, page: Page) -> None:
    page.reload()
    set_up_release(page, model, small_disk, "out", "Example Labs", "")
    expect(page.locator("#preflight .notice-fault")).to_contain_text("not enough space")
    expect(page.locator("#preflight .notice-fault")).to_contain_text("MB free")
    assert not list(small_disk.iterdir())


def test_missing_owner_is_requested(model: Path, page: Page) -> None:
    page.reload()
    first_step(page)
    choose_original(page, model)
    page.click("#to-names")
    type_into(page, "owner", "")  # a reload restores it
    page.click("#to-setting")
    expect(page.locator("#owner-notice .notice-fault")).to_contain_text("owner is missing")
    expect(page.locator("#page-protect .notice-fault:visible, .toast-body")).to_have_count(1)
    expect(page.locator("#owner")).to_be_visible()


def test_an_uploaded_suspect_is_examined(model: Path, release: Path, running_app: RunningApp, page: Page) -> None:
    files = [release / "model.safetensors", release / "config.json"]
    page.reload()
    open_tab(page, "investigate")
    page.locator("#upload-suspect button").first.click()
    page.locator("#suspect-files input[type=file]").set_input_files(files)
    expect(page.locator("#suspect-model .model-card")).to_be_visible()
    fill_path(page, "original-of", model)
    expect(page.locator("#start-investigate")).to_be_enabled()
    page.click("#start-investigate")
    expect(page.locator("#finding")).to_be_hidden()
    expect(page.locator("#verdict .verdict-word")).to_have_text("Found")
    assert list(running_app.home.glob("received/*/*/model.safetensors"))


@pytest.mark.fault(44)
def test_stop_leaves_nothing(minilm_path: Path, running_app: RunningApp, page: Page) -> None:
    """A model large enough to stop midway; after Stop neither release nor partial folder remains."""
    big = running_app.root / "big"
    big.mkdir()
    tensors = load_file(minilm_path / "model.safetensors")
    tensors["ballast"] = torch.zeros(400 << 20, dtype=torch.uint8)
    save_file(tensors, big / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (big / name).write_bytes((minilm_path / name).read_bytes())
    page.reload()
    set_up_release(page, big, running_app.root, "stopped", "Example Labs", "")
    page.click("#start-protect")
    partial = running_app.root / "stopped.partial"
    until(partial.exists, "the half-written release", running_app.log)
    page.click("#job-protect .job-stop")
    expect(page.locator("#job-protect")).to_contain_text("Stopped")
    assert not (running_app.root / "stopped").exists()
    assert not partial.exists()


def test_a_wrong_passphrase_is_refused_and_the_right_one_still_works(page: Page) -> None:
    def enter(passphrase: str) -> None:
        type_into(page, "passphrase", passphrase)
        with page.expect_request(lambda request: passphrase in (request.post_data or "")):
            page.click("#unlock-vault")

    page.click("#lock")
    for _ in range(2):
        enter("not the passphrase at all")
        expect(page.locator("#passphrase input, #passphrase textarea").first).to_have_value("")
        expect(page.locator(".notice-fault")).to_contain_text("does not open the vault")
        expect(page.locator("#pages")).to_be_hidden()
    enter(PASSPHRASE)
    expect(page.locator("#pages")).to_be_visible()


def test_first_release_is_still_complete(release: Path) -> None:
    assert irwm.release.verify_manifest(release).ok
