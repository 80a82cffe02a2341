"""The page of a finding, with a valid report and with one that is missing or damaged."""

from __future__ import annotations

import copy
import sqlite3

import pytest

from irwm.errors import IrwmError
from irwm.language import ENGLISH
from irwm.report import to_json
from irwm.report.document import ReportError
from storage import Jobs, NewKey
from storage.job_files import JobFiles
from tests.jobs.recipients import new_vault
from tests.report.conftest import found, inconclusive, not_found, world
from tests.ui.handlers import JOBS_KEYS
from ui.components.finding_card import finding_card
from ui.components.finding_view import OF_ONE_KEY, Drawn, FindingView, key_picker, read_document, read_others
from ui.components.key_choice import MOST_LISTED, summary_html
from ui.components.verdict_card import verdict_html
from ui.jobs.requests import LARGEST_SEED, checked_seed

__all__ = ["found", "inconclusive", "not_found", "world"]


@pytest.fixture
def files(tmp_path) -> JobFiles:
    """The files of a job that has none yet."""
    jobs = Jobs(tmp_path / "home").opened(JOBS_KEYS)
    return jobs.files(jobs.create("investigate", "Investigate", {}).id)


@pytest.mark.parametrize("field", ["verdict", "alignment", "reading", "parameters", "items"])
def test_report_with_a_missing_field_is_reported(found, field: str, files) -> None:
    document = copy.deepcopy(found.document)
    del document[field]
    files.write("report.json", to_json(document))
    with pytest.raises(ReportError):
        Drawn(read_document(files, "report.json"), dark=False)


def test_report_that_is_missing_truncated_or_of_another_version_is_reported(
    found, files, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    another = found.document | {"schema": {"name": "irwm-report", "version": 1}}
    for content in (None, to_json(found.document)[:1000], to_json(another)):
        if content is not None:
            files.write("report.json", content)
        with pytest.raises(IrwmError):
            read_document(files, "report.json")
    files.write("report.html", b"<!doctype html>")
    view = FindingView(None, (), None, [], lambda: ENGLISH)  # type: ignore[arg-type]
    _, said, _, _, _, page, *_ = view.shown(files, "report.json", [], dark=False)
    assert "notice-fault" in said
    assert page.visible, "it is still offered"
    files.write("report.json", to_json(found.document))
    path = files.folder / "report.json.sealed"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ReportError):
        read_document(files, "report.json")


@pytest.mark.parametrize("ending", [".pdf", ".signature.json", ".html"])
def test_a_damaged_file_of_a_sound_report_is_named(found, files, tmp_path, monkeypatch, ending: str) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    names = [f"report-leaked{each}" for each in (".json", ".pdf", ".signature.json", ".html")]
    for name in names:
        files.write(name, to_json(found.document) if name == names[0] else b"whole")
    view = FindingView(None, (), None, [], lambda: ENGLISH)  # type: ignore[arg-type]
    _, said, *_ = view.shown(files, names[0], [], dark=False)
    assert "notice-fault" not in said
    path = files.folder / f"report-leaked{ending}.sealed"
    path.write_bytes(path.read_bytes()[:-1])
    _, said, _, _, _, page, _, pdf, signature, *_ = view.shown(files, names[0], [], dark=False)
    assert [name for name in names if f">{name}<" in said] == [f"report-leaked{ending}"]
    visible = {".html": page.visible, ".pdf": pdf.visible, ".signature.json": signature.visible}
    assert visible == {each: each != ending for each in visible}


def test_inconclusive_lineage_decides_neither_way(inconclusive) -> None:
    said = finding_card(inconclusive.document).figures[2]
    assert said.value == "cannot tell"
    assert said.help.startswith("There is not enough evidence for an answer: ")


def test_verdict_card_shows_each_warning(found) -> None:
    document = copy.deepcopy(found.document)
    document["verdict"]["warnings"] = ["two rows are equal", "a file <b> was not read"]
    page = verdict_html(finding_card(document))
    assert "Note: two rows are equal." in page
    assert "Note: a file &lt;b&gt; was not read." in page
    document["verdict"]["warnings"] = []
    assert "Note: " not in verdict_html(finding_card(document))


def test_figures_of_another_key_show_its_data_and_name(found, not_found, files) -> None:
    """Two keys read on one suspect: the report covers one, and the picker redraws the figures for the other."""
    files.write("report.json", to_json(found.document))
    other = {name: not_found.document[name] for name in ("key", "parameters", "reading", "paper", "odds")}
    other["key"] = other["key"] | {"recipient": "Bolt <b>"}
    files.write("others.json", to_json({"keys": [other]}))
    view = FindingView(None, (), None, [], lambda: ENGLISH)  # type: ignore[arg-type]
    picker = key_picker(found.document, [other])
    assert [id for _, id in picker.choices] == [found.document["key"]["commitment"], other["key"]["commitment"]]
    assert picker.visible
    drawn = {}
    for _, id in picker.choices:
        figures = view.of_key(files, "report.json", "others.json", id, dark=False)
        drawn[id] = dict(zip(OF_ONE_KEY, figures, strict=True))
    own, its = (drawn[id] for _, id in picker.choices)
    assert "Key of “Northwind”" in own["figure-positions"].layout.title.subtitle.text
    for name in ("figure-positions", "figure-ranks", "figure-paper", "figure-odds"):
        assert "Key of “Bolt &lt;b&gt;”" in its[name].layout.title.subtitle.text
    assert its["figure-ranks"].layout.title.text.startswith("14 of 50"), "the other key's own ranks"
    assert own["figure-ranks"].layout.title.text.startswith("50 of 50")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"keys": 1}', b'{"keys": [{}]}'])
def test_readings_of_other_keys_that_are_damaged_offer_no_choice(found, content: bytes, files) -> None:
    files.write("others.json", content)
    assert read_others(files, "others.json") == []
    assert read_others(files, "gone.json") == []
    assert not key_picker(found.document, []).visible


@pytest.mark.parametrize("seed", [1e40, -1, 0.5, float("nan"), float("inf"), LARGEST_SEED + 1])
def test_seed_out_of_range_is_refused(seed: float) -> None:
    with pytest.raises(IrwmError):
        checked_seed(seed)
    assert [checked_seed(value) for value in (None, 0, 7.0, LARGEST_SEED)] == [0, 0, 7, LARGEST_SEED]


def test_many_keys_are_shown_as_a_summary(tmp_path) -> None:
    vault = new_vault(tmp_path / "home")
    vault.add_keys(
        NewKey(b"x", "Labs", f"Customer {n}", "m", "f" * 64, "llama", f"{n:064x}", {}) for n in range(MOST_LISTED + 276)
    )
    page = vault.find_keys(model_fingerprint="f" * 64, newest_first=False, limit=MOST_LISTED)
    assert "<strong>All 300 keys</strong> will be tried: Customer 0, Customer 1" in " ".join(summary_html(page).split())
    none = vault.find_keys("nobody", model_fingerprint="f" * 64, limit=MOST_LISTED)
    assert "No key" in summary_html(none, "nobody")


def test_damaged_key_record_is_named_next_to_the_choice(tmp_path) -> None:
    vault = new_vault(tmp_path / "home")
    (record,) = vault.add_keys([NewKey(b"x", "Labs", "Ada", "m", "f" * 64, "llama", "0" * 64, {})])
    with sqlite3.connect(next((tmp_path / "home").glob("vault.*"))) as db:
        db.execute("UPDATE keys SET meta = zeroblob(length(meta))")
    db.close()
    page = vault.find_keys(model_fingerprint="f" * 64, limit=MOST_LISTED)
    assert [name.id for name in page.damaged] == [record.id]
    assert record.id in summary_html(page)
