"""What stands on the page of a finding: of a sound report, and of one that is gone or damaged."""

from __future__ import annotations

import copy
import sqlite3

import pytest

from irwm.errors import IrwmError
from irwm.report import to_json
from irwm.report.document import ReportError
from storage import NewKey, Vault
from storage.encryption import Cost
from tests.report.conftest import found, inconclusive, world
from ui.candidates import several_in
from ui.components.finding_card import finding_card
from ui.components.finding_view import Drawn, read_document
from ui.components.key_choice import MOST_LISTED, summary_html
from ui.jobs.requests import LARGEST_SEED, checked_seed

__all__ = ["found", "inconclusive", "world"]


def test_a_report_that_is_gone_is_said_in_words(tmp_path) -> None:
    with pytest.raises(ReportError, match="numbers are gone"):
        read_document(tmp_path / "report.json")


@pytest.mark.parametrize("field", ["verdict", "alignment", "reading", "parameters", "items"])
def test_a_report_that_lacks_a_field_is_said_in_words(found, field: str, tmp_path) -> None:
    document = copy.deepcopy(found.document)
    del document[field]
    (tmp_path / "report.json").write_bytes(to_json(document))
    with pytest.raises(ReportError, match="damaged"):
        Drawn(read_document(tmp_path / "report.json"), dark=False)


def test_a_truncated_report_is_said_in_words(found, tmp_path) -> None:
    (tmp_path / "report.json").write_bytes(to_json(found.document)[:1000])
    with pytest.raises(IrwmError):
        read_document(tmp_path / "report.json")


def test_what_cannot_be_told_settles_nothing_either_way(inconclusive) -> None:
    said = finding_card(inconclusive.document).figures[2]
    assert said.value == "cannot tell"
    assert said.help.startswith("What was seen settles nothing either way: ")
    document = copy.deepcopy(inconclusive.document)
    document["lineage"]["reason"] = "one thing: and its other half: the median row has cosine 0.1 with the original's"
    assert finding_card(document).figures[2].help.endswith("either way: one thing: and its other half")


@pytest.mark.parametrize("seed", [1e40, -1, 0.5, float("nan"), float("inf"), LARGEST_SEED + 1])
def test_a_seed_out_of_range_is_refused_in_words(seed: float) -> None:
    with pytest.raises(IrwmError, match="seed"):
        checked_seed(seed)


def test_a_seed_in_range_is_kept() -> None:
    assert [checked_seed(value) for value in (None, 0, 7.0, LARGEST_SEED)] == [0, 0, 7, LARGEST_SEED]


def test_a_checkpoints_folder_and_a_file_are_one_suspect_and_others_are_several(tiny_path, tmp_path) -> None:
    assert several_in(tiny_path) is None
    assert several_in(tiny_path / "model.safetensors") is None
    assert several_in(tmp_path) is None
    (tmp_path / "a.gguf").write_bytes(b"x")
    (tmp_path / "b.gguf").write_bytes(b"x")
    assert len(several_in(tmp_path).paths) == 2


def test_many_keys_are_a_summary_and_never_a_list(tmp_path) -> None:
    vault = Vault.create(tmp_path / "home", "four unrelated plain words", cost=Cost(memory_kib=8, passes=1, lanes=1))
    vault.add_keys(
        NewKey(b"x", "Labs", f"Customer {n}", "m", "f" * 64, "llama", f"{n:064x}", {}) for n in range(MOST_LISTED + 276)
    )
    page = vault.find_keys(model_fingerprint="f" * 64, newest_first=False, limit=MOST_LISTED)
    assert "<strong>All 300 keys</strong> will be tried: Customer 0, Customer 1" in " ".join(summary_html(page).split())
    few = vault.find_keys("customer 7", model_fingerprint="f" * 64, newest_first=False, limit=MOST_LISTED)
    assert "that fit these words" in summary_html(few, "customer 7")
    none = vault.find_keys("nobody", model_fingerprint="f" * 64, limit=MOST_LISTED)
    assert "No key" in summary_html(none, "nobody")


def test_a_damaged_key_record_is_named_beside_the_choice(tmp_path) -> None:
    vault = Vault.create(tmp_path / "home", "four unrelated plain words", cost=Cost(memory_kib=8, passes=1, lanes=1))
    (record,) = vault.add_keys([NewKey(b"x", "Labs", "Ada", "m", "f" * 64, "llama", "0" * 64, {})])
    with sqlite3.connect(next((tmp_path / "home").glob("vault.*"))) as db:
        db.execute("UPDATE keys SET meta = zeroblob(length(meta))")
    db.close()
    page = vault.find_keys(model_fingerprint="f" * 64, limit=MOST_LISTED)
    assert [name.id for name in page.damaged] == [record.id]
    assert record.id in summary_html(page)
