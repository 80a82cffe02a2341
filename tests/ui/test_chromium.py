"""The page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.ui.serving import Visit
from tools.page_events import after_events, settled
from tools.running_app import FAKE_TASKS, RunningApp, pass_the_gate, start_app
from ui.theme import DARK, LIGHT

pytestmark = pytest.mark.browser
BENCH = "#page-bench"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """The app with a page of every component, some models to browse, and tasks that do nothing."""
    folder = tmp_path_factory.mktemp("bench")
    tasks = {"PYTHONPATH": str(FAKE_TASKS)}
    with start_app(folder, ("-m", "tools.bench_page"), tasks) as app:
        for name in ("nordwind-7b", "papers", "papers/deeper", "<img src=x onerror=document.title=1>"):
            (app.root / name).mkdir()
        (app.root / "nordwind-7b" / "model.safetensors").write_bytes(bytes(1000))
        (app.root / "suspect.gguf").write_bytes(bytes(2000))
        yield app


@pytest.fixture
def page(bench: RunningApp, visit: Callable[..., Visit]) -> Page:
    """The bench page, unlocked."""
    page = visit(bench, path="/?tab=bench").page
    pass_the_gate(page)
    page.wait_for_selector(f"{BENCH} #path-suspect")
    return page


def colour(page: Page, selector: str, property: str) -> str:
    rgb = page.eval_on_selector(selector, f"e => getComputedStyle(e).{property}")
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", rgb)[:3])


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_both_themes_render_without_external_requests(
    bench: RunningApp, visit: Callable[..., Visit], scheme: str, palette: object
) -> None:
    seen = visit(bench, scheme, "/?tab=bench")
    pass_the_gate(seen.page)
    seen.page.wait_for_selector(".verdict")
    settled(seen.page)
    assert len(seen.requested) > 20
    assert seen.outside(bench) == []
    assert seen.complaints == []
    assert len([button for button in seen.page.query_selector_all("button.primary") if button.is_visible()]) == 1
    assert colour(seen.page, "body", "backgroundColor") == palette.paper  # type: ignore[attr-defined]
    assert colour(seen.page, ".verdict-sentence", "color") == palette.ink  # type: ignore[attr-defined]
    assert colour(seen.page, ".verdict-found .verdict-word span", "color") == palette.on_accent  # type: ignore[attr-defined]
    assert colour(seen.page, "#start", "backgroundColor") == palette.accent  # type: ignore[attr-defined]
    faces = seen.page.evaluate("[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family)")
    assert "IBM Plex Sans" in str(faces)
    assert seen.page.eval_on_selector(".verdict-sentence", "e => getComputedStyle(e).fontFamily").startswith(
        '"IBM Plex'
    )
    assert any("/studio/fonts/ibm-plex-mono" in url for url in seen.requested), "paths are in monospace"
    assert not any("/static/fonts/" in url for url in seen.requested), "and Gradio's own fonts are left alone"


def test_the_address_follows_the_tab_and_back_works(page: Page) -> None:
    page.click("#page-vault-button")
    expect(page).to_have_url(re.compile(r"\?tab=vault$"))
    page.click("#page-protect-button")
    page.go_back()
    expect(page.locator("#page-vault-button")).to_have_attribute("aria-selected", "true")
    page.reload()
    expect(page.locator("#page-vault-button")).to_have_attribute("aria-selected", "true")


def test_a_model_is_picked_with_the_mouse(page: Page, bench: RunningApp) -> None:
    page.click("#browse-suspect")
    page.click("#listing-suspect .entry-model")
    expect(page.locator("#chosen textarea, #chosen input")).to_have_value(str(bench.root / "nordwind-7b"))
    expect(page.locator("#picker-suspect .note")).to_contain_text("1 weights file, 1.0 kB")
    expect(page.locator("#listing-suspect")).to_have_count(0)


def test_a_model_is_picked_by_keyboard_alone(page: Page, bench: RunningApp) -> None:
    page.focus("#browse-suspect")
    page.keyboard.press("Enter")
    page.wait_for_selector("#listing-suspect .entry")
    page.focus("#listing-suspect .entry")
    names = page.locator("#listing-suspect .entry-name").all_inner_texts()
    for _ in range(names.index("papers")):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#listing-suspect .here code")).to_have_text(str(bench.root / "papers"))
    expect(page.locator("#listing-suspect .entry-up")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#listing-suspect .here code")).to_have_text(str(bench.root))
    page.focus("#listing-suspect .entry")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("#chosen textarea, #chosen input")).to_have_value(str(bench.root / "suspect.gguf"))
    expect(page.locator("#path-suspect textarea, #path-suspect input")).to_be_focused()


@pytest.mark.fault(44)
def test_job_survives_a_reload_and_typed_text_a_lock_and_stop_works(page: Page, bench: RunningApp) -> None:
    page.click("#start")
    numbers = page.locator(f"{BENCH} .job-numbers")
    expect(numbers).to_contain_text("MB/s")
    expect(numbers).to_contain_text("left")
    page.click("#start")
    expect(page.locator("[data-testid='toast-body']")).to_contain_text("Already running")
    page.reload()
    expect(page.locator(f"{BENCH} .job-state")).to_have_text("Running")
    before = page.inner_text(f"{BENCH} .job-numbers")
    expect(numbers).not_to_have_text(before)
    page.click(f"{BENCH} .job-log button")
    expect(page.locator(f"{BENCH} pre.log")).to_contain_text("Copying shard 1 of 120")
    after_events(page, 3)
    expect(page.locator(f"{BENCH} pre.log")).to_be_visible()
    page.fill("#path-target input, #path-target textarea", "/typed/before")
    page.click("#lock")
    page.wait_for_selector("#passphrase input")
    assert page.locator("#pages").count() == 0
    assert "/typed/before" not in page.content()
    pass_the_gate(page)
    expect(page.locator("#path-target input, #path-target textarea")).to_have_value("/typed/before")
    expect(page.locator(f"{BENCH} .job-state")).to_have_text("Running")
    before = page.inner_text(f"{BENCH} .job-numbers")
    expect(numbers).not_to_have_text(before)
    page.click(f"{BENCH} .job-stop")
    expect(page.locator(f"{BENCH} .job-state")).to_have_text("Stopped")
    expect(page.locator("#result textarea, #result input")).to_have_value("stopped")
    page.reload()
    expect(page.locator(f"{BENCH} .job-state")).to_have_text("Stopped")
    expect(page.locator("#result textarea, #result input")).to_have_value("stopped")
