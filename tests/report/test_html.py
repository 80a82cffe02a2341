from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from playwright.sync_api import sync_playwright

from irwm.report import render_html, schema, to_json
from irwm.report.answer import log10_risk
from irwm.report.html import _probability, environment
from irwm.report.numbers import WHY_CAPPED, number, sure
from irwm.report.structure import fault
from irwm.report.wording import NOT_INNOCENCE
from tests.report.conftest import examine
from ui.components.finding_card import finding_card
from ui.components.verdict_card import verdict_html

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}\u202egpj\x1b[31m"


class Page(HTMLParser):
    """Tags with their attributes, the scripts, and the text that a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.text = re.sub(r"\s+", " ", "".join(self.words)).replace("\u00a0", " ")

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open.append(tag)
            if tag == "script":
                self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        if tag in ("script", "style") and self._open:
            self._open.pop()
        self.words.append(" " if tag in ("td", "th", "p", "div", "tr", "li", "h1", "h2", "h3") else "")

    def handle_data(self, data):
        if not self._open:
            self.words.append(data)
        elif self._open[-1] == "style":
            self.styles.append(data)
        else:
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)


@pytest.fixture(scope="session")
def html(found) -> str:
    return render_html(found.document, "report.json")


def test_the_page_is_one_file_of_limited_size_and_loads_no_resources(html):
    assert len(html.encode("utf-8")) < 8_000_000
    page = Page(html)
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster", "background", "ping"):
            assert name not in attributes, (tag, attributes)
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img", "video", "audio")
    for style in page.styles:
        assert "@import" not in style
        assert re.findall(r"url\((?!\"data:)", style) == []


def test_policy_forbids_loads_and_allows_only_these_scripts(html):
    page = Page(html)
    meta = next(a for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    policy = dict(part.strip().split(" ", 1) for part in meta["content"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "http" not in meta["content"]
    assert "unsafe" not in policy["script-src"]
    runs = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in runs]
    assert policy["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    # A policy applies only to the elements after it.
    assert html.index("Content-Security-Policy") < html.index("<style>") < html.index("<script")


def test_grouped_numbers_keep_their_spaces() -> None:
    made = environment().from_string("{{ shown }} {{ shown | prose }}").render(shown=number(4095))
    assert made == "4\u00a0095 4\u00a0095."


def test_verdict_propositions_limits_and_status_are_printed(any_case):
    text = Page(render_html(any_case.document)).text
    d = any_case.document
    assert "Not signed. Not for use in court." in text
    for sentence in (*d["propositions"], *d["limitations"], d["reproduce"]["tolerance"]):
        assert sentence in text
    assert NOT_INNOCENCE in text
    assert d["verdict"]["word"] in text
    assert d["key"]["commitment"] in text
    for item in d["items"].values():
        assert item["fingerprint"] in text
        for file in item["files"]:
            assert (file["sha256"] or "not hashed") in text
    for line in filter(None, d["reproduce"]["python"]):
        assert re.sub(r"\s+", " ", line) in text
    assert hashlib.sha256(to_json(d)).hexdigest() in text


def test_steps_confidences_measures_and_attention_are_printed(disguised):
    text = Page(render_html(disguised.document)).text
    steps = disguised.document["alignment"]["steps"]
    assert len(steps) >= 2
    for step in steps:
        said = step["said"].replace("'", "’")
        assert f"{said[0].upper()}{said[1:]}." in text
        assert f"{sure(step['confidence'])} {_probability(step['confidence'])}" in text
        assert step["measure"].replace("'", "’") in text
    lineage = disguised.document["lineage"]
    assert (
        f"{printed(lineage['attention'])}; non-matching tokens reach at most {printed(lineage['attention_decoy'])}"
        in text
    )


@pytest.mark.parametrize(
    ("case", "there", "missing"),
    [
        ("found", "No changes had to be undone.", "Confidence"),
        ("gone", "60 of the original’s 600", "none of this key’s"),
        ("inconclusive", "“Cannot be aligned” does not mean “not ours”", "No changes had to be undone"),
    ],
)
def test_alignment_of_each_case_is_printed(request, case, there, missing):
    text = Page(render_html(request.getfixturevalue(case).document)).text
    assert there in text
    assert missing not in text


def test_small_odds_are_capped_with_their_value_on_hover_and_one_explanation(found, not_found):
    document = found.document
    risk = log10_risk(document)
    assert risk < -30.0
    for html in (render_html(document), verdict_html(finding_card(document))):
        page = Page(html)
        assert f"log10 = {printed(risk)}" in [attrs["title"] for _, attrs in page.tags if "title" in attrs]
        text = page.text.replace("10³⁰", "1030")  # the report raises digits by tags
        assert "less than 1 in 1030" in text
        assert printed(risk) not in text
        assert text.count(WHY_CAPPED.replace("10³⁰", "1030")) == 1
    assert log10_risk(not_found.document) > -30.0
    assert WHY_CAPPED not in verdict_html(finding_card(not_found.document))


def printed(value: float) -> str:
    return f"{value:.6g}".replace("-", "\u2212")


def test_every_number_of_the_document_is_printed(gone):
    text = Page(render_html(gone.document)).text
    d = gone.document
    scattered = [
        d["evaluation"]["log10_p"], d["evaluation"]["log10_p_count"], d["evaluation"]["log10_risk"],
        d["evaluation"]["log10_p_floor"], d["evaluation"]["log10_p_count_floor"],
        d["alignment"]["median_cosine"], d["alignment"]["median_decoy_cosine"],
        d["odds"]["log10_random_user"], d["odds"]["log10_wrong_user"], d["odds"]["success"][0]["probability"],
        d["paper"]["log10_p"], d["reading"]["chance_of_counting"],
    ]  # fmt: skip
    hovers = [attrs["title"] for _, attrs in Page(render_html(d)).tags if "title" in attrs]
    for value in scattered:
        capped = value < -30.0  # then only the hover has the exact value
        assert (printed(value) in text) != capped, value
        assert (f"log10 = {printed(value)}" in hovers) == capped, value
    for reading in (d["reading"], d["paper"]):
        assert reading["null"]["sha256"] in text
        for p in reading["positions"]:
            assert f" {p['position']} {p['token']} " in text
            if p["state"] == "gone":
                assert f" {p['position']} {p['token']} gone or unusable" in text.replace("  ", " ")
            else:
                assert printed(p["rank"]) in text
                assert printed(p["observed"]) in text or f"{round(p['observed']):,}".replace(",", " ") in text
    assert f"{d['verdict']['count']} of {d['verdict']['present']} positions count" in text


# A document with other words instead of these is refused.
WORDS = {"found", "not found", "inconclusive", "mark", "embedding", "aligned", "joint", "sum", "original", "suspect",
         "derived", "ranked", "not committed"}  # fmt: skip


def hostile(examined) -> dict:
    """A document that an attacker edited: every text in it is hostile, and was not escaped before."""
    document = copy.deepcopy(examined.document)

    def poison(value, name=""):
        if isinstance(value, dict):
            return {k if name != "case" else HOSTILE: poison(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [poison(v, name) for v in value]
        return HOSTILE if isinstance(value, str) and value not in WORDS else value

    return poison(document) | {"schema": document["schema"], "parameters": document["parameters"]}


@pytest.mark.fault(64)
def test_hostile_names_are_inert(found):
    assert fault(hostile(found), schema.Report) is None
    html = render_html(hostile(found), HOSTILE)
    page = Page(html)
    allowed = {attributes.get("type") for attributes, _ in page.scripts}
    assert len(page.scripts) == 3
    assert allowed == {None, "application/json"}
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on") or a == "src"]
    assert "alert(1)" in page.text
    assert "{{7*7}}" in page.text
    for character in ("\u202e", "\x1b"):
        assert character not in html.replace(page.scripts[1][1], "")
    data = json.loads(page.scripts[0][1])
    assert "<script" not in json.dumps(data)


def test_withheld_rows_stay_out_of_the_page(world):
    e = examine(world, "copy", disclose_rows=False, tokens={r: f"word{r}x" for r in range(600)})
    page = Page(render_html(e.document))
    assert "withheld" in page.text
    assert "Confidential" not in page.text
    assert not re.search(r"word\d+x", page.text + page.scripts[0][1])
    assert "token" not in page.scripts[0][1]


@pytest.mark.browser
def test_browser_draws_every_figure_without_network(gone, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render_html(hostile(gone)), encoding="utf-8")
    said, asked = [], []
    with sync_playwright() as playwright:
        switches = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=switches)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector("#figure-odds .main-svg")
        drawn = page.locator(".plot .plot-container").count()
        faults = page.evaluate("[...document.querySelectorAll('.plot')].map((p) => Plotly.validate(p.data, p.layout))")
        width = page.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert drawn == len(faults) == 5
    assert not any(faults)
    assert width <= 1280
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_probabilities_are_never_rounded_to_certainty():
    assert _probability(1 - 1e-9) == "above 0.999999"
    assert _probability(1.0) == "1"
    assert _probability(0.95) == "0.95"
    assert _probability(1e-300) == "1e\u2212300"
