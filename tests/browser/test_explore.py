"""Explore as a user works with it: worked examples, the inverse question, a model's views, settings passed on."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from irwm.report.plots.theme import DARK, LIGHT
from tools.officer import fill_path, open_tab, place, points
from tools.running_app import RunningApp


def field(page: Page, name: str):
    return page.locator(f"#explore-{name} input[type=number], #explore-{name} textarea, #explore-{name} input").first


def put(page: Page, name: str, text: str) -> None:
    field(page, name).fill(text)
    field(page, name).press("Tab")


def title(page: Page, figure: str):
    """A figure's title, which changes when the figure is redrawn."""
    return page.locator(f"#explore-{figure} .gtitle").first


@pytest.fixture(scope="module")
def explore(page: Page) -> Page:
    open_tab(page, "explore")
    expect(page.locator("#explore-region .plotly")).to_be_visible()
    return page


def test_the_papers_worked_examples_are_one_click_away(explore: Page) -> None:
    for preset, success in ((1, "0.98772"), (0, "0.99968")):
        explore.click(f"#explore-preset-{preset}")
        expect(title(explore, "odds")).to_contain_text(success)
    assert points(explore, "explore-odds") > 100
    explore.locator("#explore-axis label", has_text="(num_u)").click()
    expect(explore.locator("#explore-odds .x2title")).to_contain_text("num_u")
    assert points(explore, "explore-odds") > 100
    assert points(explore, "explore-region") > 20


def test_inverse_question_is_answered_and_its_answer_applied(explore: Page) -> None:
    expect(explore.locator("#explore-answer")).to_contain_text("l = 56 positions, with ρ = 35")
    put(explore, "risk", "1e-9")
    expect(explore.locator("#explore-answer")).not_to_contain_text("l = 56 ")
    put(explore, "risk", "1e-6")
    expect(explore.locator("#explore-answer")).to_contain_text("l = 56 ")
    explore.click("#explore-take")
    expect(field(explore, "l")).to_have_value("56")
    expect(field(explore, "rho")).to_have_value("35")
    expect(title(explore, "odds")).to_contain_text("0.99929")


def test_every_view_of_a_users_model_holds_data(explore: Page, running_app: RunningApp, demo_path: Path) -> None:
    fill_path(explore, "explored", place(demo_path, running_app.root, "own"))
    expect(explore.locator("#explore-model-note")).to_contain_text(
        "Plotted for own. The embedding has s = 4 096 rows of d = 256"
    )
    put(explore, "num-noise", "10")
    expect(explore.locator("#explore-model-note .notice-fault")).to_contain_text(
        "Noise coordinates require secret coordinates"
    )
    explore.check("#explore-hidden input")
    expect(explore.locator("#explore-model-note .notice-fault")).to_have_count(0)
    for label, words in (
        ("Stored numbers", "neighbours"),
        ("Condition", "Stable enough"),
        ("Hiding", "be identified by the size"),
        ("Colluders", "Every colluder is named"),
        ("Fingerprint", "At α"),
        ("Robustness to noise", "still count under the joint"),
    ):
        explore.locator("#explore-view label", has_text=label).click()
        expect(title(explore, "model")).to_contain_text(words)
        assert points(explore, "explore-model") > 5


def test_figures_that_were_drawn_behind_another_page_are_drawn_again(explore: Page) -> None:
    """The clip paths of their curves have the address of the page, which differs from tab to tab."""
    figure = "document.querySelector('#explore-odds .js-plotly-plot')"
    for scheme, theme in (("dark", DARK), ("light", LIGHT)):
        open_tab(explore, "vault")
        explore.emulate_media(color_scheme=scheme)
        explore.wait_for_function(f"paper => {figure}._fullLayout.paper_bgcolor === paper", arg=theme.paper)
        open_tab(explore, "explore")
        explore.wait_for_function(
            f"""() => [...{figure}.querySelectorAll('[clip-path]')].every(
              each => each.getAttribute('clip-path').startsWith("url('" + location.href.split('#')[0] + '#'))"""
        )


def test_protect_gets_the_setting(explore: Page) -> None:
    explore.click("#explore-send")
    expect(explore.locator("#page-protect-button")).to_have_attribute("aria-selected", "true")
    explore.click("#use-demo")
    expect(explore.locator("#to-names")).to_be_enabled()
    explore.click("#to-names")
    explore.locator("#owner input, #owner textarea").first.fill("Example Labs")
    explore.locator("#owner input, #owner textarea").first.press("Tab")
    explore.click("#to-setting")
    explore.locator("#advanced button").first.click()
    expect(explore.locator("#odds-said")).to_contain_text("at least 35 of 56 positions count")
    expect(explore.locator("#noise-coordinates input")).to_have_value("10")


def test_figures_follow_a_change_of_theme_and_break_their_titles_on_a_phone(explore: Page) -> None:
    open_tab(explore, "explore")
    background = "() => document.querySelector('#explore-odds .js-plotly-plot')._fullLayout.paper_bgcolor"
    for scheme, colours in (("dark", DARK), ("light", LIGHT)):
        explore.emulate_media(color_scheme=scheme)
        explore.wait_for_function(f"paper => ({background})() === paper", arg=colours.paper)
    whole = title(explore, "odds").text_content()
    outside = """() => [...document.querySelectorAll('#page-explore .gtitle, #page-explore .gtitle-subtitle,'
        + ' #page-explore .xtitle, #page-explore .x2title')].filter(each => {
            const text = each.getBoundingClientRect(), plot = each.closest('.js-plotly-plot').getBoundingClientRect();
            return text.left < plot.left - 1 || text.right > plot.right + 1 || text.top < plot.top;
        }).length"""
    for width, height in ((390, 844), (1280, 800)):
        explore.set_viewport_size({"width": width, "height": height})
        explore.wait_for_function(f"() => ({outside})() === 0")
        expect(title(explore, "odds").locator("tspan.line")).to_have_count(2 if width == 390 else 0)
    assert title(explore, "odds").text_content() == whole
