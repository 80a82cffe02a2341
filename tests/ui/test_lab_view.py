"""A lab's table and outcome as HTML, and the page's handlers on a lab that ended early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from irwm.report.document import to_json
from irwm.report.lab import LAB_HTML, LAB_JSON, NAME
from irwm.report.signature_file import ENDING
from tests.ui.handlers import Pages, value
from tests.ui.lab_documents import crafted, row
from ui.components.lab_table import summary_html, table_html
from ui.jobs import runner

TRACED = {"tensors_read": 1, "places": 1}
ROWS = [
    row("none", 0, role="release", change=0.0),
    row("prune", 0.3, traced=TRACED | {"z": 12.3, "named": True}),
    row("prune", 0.9, change=700.0, verdict="not found", traced=TRACED | {"z": None, "named": False}),
    row("shift-tables", 1, ran=False, reason="its embedding does not go through a <LayerNorm>"),
]


def test_table_shows_finding_and_cost_of_every_row() -> None:
    text = table_html(crafted(ROWS, noise=5))
    for words in ("Not attacked", "unchanged", "48 / 50", "less than 1 in 10³⁰", "log10 = −39.7", "Named",
                  "z = 12.3", "Not named", "10% higher",
                  "701 times as high", "33.00", "21\u00a0030", "ruined", "90.0", "0.02 nats"):  # fmt: skip
        assert words in text
    assert "Not run: its embedding does not go through a &lt;LayerNorm&gt;" in text
    assert text.count(">ruined<") == 1
    assert "Recipient" not in table_html(crafted(ROWS))
    proof = {"same": True, "largest": 0.0123, "scale": 10.0, "tolerance": 0.1, "positions": 9, "dtype": "float32"}
    rotated = row("rotate", 1)
    for changes, words in (
        ({"proof": proof}, "same function proved (largest logit difference 0.01"),
        ({"proof": proof | {"same": False}}, "not the same function"),
        ({"proof": None}, "same function not proved"),
        ({"proof": proof, "utility": rotated["utility"] | {"compared": 800}}, "proved for the remaining tokens"),
    ):
        assert words in table_html(crafted([rotated | changes]))


@pytest.mark.parametrize(("complete", "running", "words"), [
    (False, True, "4 of 7. The job is still running"),
    (False, False, "4 of 7. The job ended early. Press Continue to run the rest"),
    (True, False, "One trial could not be carried out"),
])  # fmt: skip
def test_outcome_is_one_sentence_with_details(complete: bool, running: bool, words: str) -> None:
    text = summary_html(crafted(ROWS, complete=complete), running=running)
    assert "The mark was found in the one trial that left the model usable" in text
    assert words in text
    assert "trial mark whose secret is public" in text
    removed = summary_html(crafted([row("prune", 0.1, verdict="not found")]), running=False)
    assert ("notice-fault" in removed, "notice-fault" in text) == (True, False)


def lab(pages: Pages, document: dict[str, Any]) -> str:
    jobs = pages.jobs
    id = jobs.create("lab", "Rehearsal on demo", {"resume": ""}).id
    jobs.files(id).write(LAB_JSON, to_json(document))
    jobs.finish(id, "stopped")
    return id


def look(pages: Pages, id: str, known: Any = None) -> dict[str, Any]:
    """The values that the page gets for this lab, by the ids of its parts."""
    function = pages.handler("look", "lab")
    values = function.fn(id, known, False, None, None, None, [], pages.request)
    return dict(zip([out.elem_id for out in function.outputs], values, strict=True))


def test_unfinished_lab_can_be_resumed_and_figures_follow_the_choice(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = lab(pages, crafted(ROWS, complete=False))
    shown = look(pages, id)
    assert shown["lab"].visible
    assert "ended early" in shown["lab-summary"]
    assert shown["lab-go-on"].visible
    assert not shown["lab-html"].visible
    assert shown["lab-json"].visible
    assert "Pruned" in shown["lab-table"]
    assert value(shown["lab-curve-of"]) == "prune"
    assert shown["lab-trials"].data
    # No update is sent again without news.
    now = [id, len(ROWS), False, "stopped", False]
    assert all(part == gr.skip() for part in look(pages, id, now).values())
    ways = ["joint original", "sum suspect"]
    figures = pages.call("lab-ways", "input", id, True, "single", "prune", "counting", ways)
    assert len(figures["lab-curve"].data) >= 3
    figures = pages.call("lab-top", "input", id, True, "single", "prune", "0.01", ways)
    assert figures["lab-curve"].layout.yaxis.title.text == "Positions in the top 1% (share)"
    monkeypatch.setattr(runner, "start", lambda kind, title, request, *_: SimpleNamespace(id=request["resume"]))
    assert id in pages.call("lab-go-on", "click", id).values(), "the rest is run"


@pytest.mark.parametrize(("rows", "drawn"), [([], False), (ROWS[:1], True)])
def test_lab_that_was_stopped_early_draws_only_figures_with_data(pages: Pages, rows: list[Any], drawn: bool) -> None:
    shown = look(pages, lab(pages, crafted(rows, complete=False)))
    assert (shown["lab-trials"] is not None) == drawn
    assert shown["lab-curve"] is None, "no attack was carried out"
    assert not shown["lab-curve-choice"].visible


@pytest.mark.parametrize("name", [LAB_HTML, f"{NAME}{ENDING}"])
def test_damaged_signed_file_of_a_lab_is_an_error_on_the_page(pages: Pages, name: str) -> None:
    id = lab(pages, crafted(ROWS))
    files = pages.jobs.files(id)
    button = {LAB_HTML: "lab-html"}.get(name, "lab-signature")
    assert not look(pages, id)[button].visible
    files.write(name, b"signed")
    assert look(pages, id)[button].visible
    path = files.folder / f"{name}.sealed"
    sealed = path.read_bytes()
    path.write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    said = look(pages, id)
    assert said["lab"].visible
    assert "notice-fault" in said["lab-summary"]
    assert not said[button].visible


def test_missing_or_damaged_lab_results_are_reported(pages: Pages) -> None:
    id = lab(pages, crafted(ROWS))
    jobs = pages.jobs
    jobs.files(id).write(LAB_JSON, b"{}")
    assert "notice-fault" in look(pages, id)["lab-summary"]
    (jobs.folder(id) / f"{LAB_JSON}.sealed").unlink()
    assert not look(pages, id)["lab"].visible
    other, running = jobs.create("item", "Hash", {}).id, jobs.create("lab", "Lab", {}).id
    for element, event, id in (
        ("lab-history", "input", other),
        ("lab-go-on", "click", other),
        ("lab-go-on", "click", running),
    ):
        with pytest.raises(gr.Error):
            pages.call(element, event, id)
