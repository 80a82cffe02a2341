"""The page Protect: names, the place of the release, files that it leaves out, and the release in its place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.helpers import EventData, special_args

import irwm
from tests.ui.handlers import Pages, value
from tests.ui.test_protect_words import RECEIPT
from tools.officer import place
from ui.drafts import Draft
from ui.pages.protect import ONE, SEVERAL, replaced_by
from ui.services.protect import CSV_NAME
from ui.services.request import SMALL


def check_place(pages: Pages, model: Path, offered: list[str], chosen: list[str] | None) -> Any:
    check = pages.handler("check_place").fn
    values = [str(model), str(pages.root), "release", ONE, (1, 1), offered, chosen]
    inputs, *_ = special_args(check, values, pages.request, EventData(None, {}))  # type: ignore[arg-type]
    return check(*inputs)


def test_left_out_files_are_listed_and_a_selection_stays(pages: Pages, tiny_path: Path) -> None:
    model = place(tiny_path, pages.root, "tiny")
    (model / "modeling_own.py").write_text("")
    (model / "weights.zip").write_bytes(b"")
    (model / ".cache").mkdir()
    said, offered, also = check_place(pages, model, [], None)
    assert "Left out: .cache/<" in said
    assert isinstance(also, gr.CheckboxGroup)
    assert [name for name, _ in also.choices] == ["modeling_own.py", "weights.zip"], "a folder cannot be selected"
    assert (also.value, also.visible) == ([], True)
    assert offered == ["modeling_own.py", "weights.zip"]
    said, *unchanged = check_place(pages, model, offered, ["weights.zip"])
    assert "Needs" in said
    assert unchanged == [gr.skip(), gr.skip()], "a selection made meanwhile stays"
    (model / "weights.zip").unlink()
    _, offered, also = check_place(pages, model, offered, ["modeling_own.py", "weights.zip"])
    assert (offered, also.value) == (["modeling_own.py"], ["modeling_own.py"])


def test_no_question_without_left_out_files(pages: Pages, tiny_path: Path) -> None:
    said, _, also = check_place(pages, place(tiny_path, pages.root, "tiny"), [], None)
    assert "Left out" not in said
    assert also == gr.skip(), "it is not shown"


@pytest.mark.parametrize(
    ("owner", "names", "goes_on"),
    [("", "Ada", False), ("Labs", "Ada\nADA", False), ("Labs", "", False), ("Labs", "Ada\nBen", True)],
)
def test_names_that_cannot_be_used_stop_the_wizard(pages: Pages, owner: str, names: str, goes_on: bool) -> None:
    """A missing owner is reported below its field, and faulty lines are already reported below the list."""
    out = pages.call("to-setting", "click", SEVERAL, owner, names, None, named="check_names")
    assert ("notice-fault" in str(value(out["owner-notice"]))) == (not owner)
    assert (out["protect-steps"] != gr.skip()) == goes_on


def test_existing_folder_and_small_disk_are_reported_before_the_start(
    pages: Pages, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = place(tiny_path, pages.root, "tiny")
    (pages.root / "release").mkdir()
    assert "notice-fault" in check_place(pages, model, [], None)[0]
    (pages.root / "release").rmdir()
    assert "notice-fault" not in check_place(pages, model, [], None)[0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6 - 1000, 1000))  # type: ignore[attr-defined]
    assert "notice-fault" in check_place(pages, model, [], None)[0]


def test_headers_are_shown_before_the_embedding_is_read(
    pages: Pages, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, read = place(tiny_path, pages.root, "tiny"), irwm.Checkpoint.embedding
    seen: list[str] = []

    def embedding(self: irwm.Checkpoint, *more: Any) -> Any:
        seen.append("read")
        return read(self, *more)

    monkeypatch.setattr(irwm.Checkpoint, "embedding", embedding)
    for _, card, start, *_ in pages.handler("look", "protect-model").fn(str(model), None, pages.request):
        seen.append("reading …" if "reading …" in card else "complete")
        assert start.interactive
    assert (seen[0], seen[-1], "read" in seen) == ("reading …", "complete", True)


def test_folder_that_cannot_be_used_stops_the_last_button_until_another_is_filled_in(
    pages: Pages, tiny_path: Path
) -> None:
    (stops,) = [
        each for each in pages.blocks.fns.values()
        if [pages.find("start-protect")] == each.outputs and each.name == "_unless_faulty"
    ]  # fmt: skip
    (faulty,) = stops.inputs
    settle, look = pages.handler("settle", "path-target"), pages.handler("look", "protect-model")
    settled = dict(zip(settle.outputs, settle.fn("/no/such/folder", pages.request), strict=True))
    assert settled[faulty] is True
    model = place(tiny_path, pages.root, "tiny")
    first, *_ = look.fn(str(model), None, pages.request)
    assert dict(zip(look.outputs, first, strict=True))[faulty] is False, "the model’s own folder is filled in"


def test_newest_release_replaces_the_wizard_until_another_is_begun(pages: Pages) -> None:
    job = pages.jobs.create("protect", "Protect tiny", {})
    pages.jobs.finish(job.id, "failed", error={"problem": "no space"})
    give_back = pages.handler("give_back")
    replaced, wizard = give_back.fn(pages.request, None, "", "", "", "", ONE)[-2:]
    assert (replaced, wizard.elem_classes) == (True, ["replaced"])
    back, *_ = pages.handler("show", "receipt").fn(job.id, pages.request)
    assert back.visible
    assert pages.handler("start_again").fn(pages.request, job.id) == (None, gr.skip()), (
        "at the step where it was started"
    )
    assert replaced_by(None)[1].elem_classes == []
    pages.context.drafts.keep(
        pages.context.session(pages.request), Draft(("Example Labs", "", "", "", ONE), place=("", "", SMALL))
    )
    assert give_back.fn(pages.request, None, "", "", "", "", ONE)[-2:] == (gr.skip(), gr.skip())


def test_finished_release_offers_another(pages: Pages) -> None:
    job = pages.jobs.create("protect", "Protect tiny", {"out": "/releases/copies"})
    pages.jobs.files(job.id).append(CSV_NAME, "")
    pages.jobs.finish(job.id, "done", RECEIPT)
    shown = pages.handler("show", "receipt")
    back, _, _, table, *_, done = shown.fn(job.id, pages.request)
    assert Path(table.value["path"]).name == "receipts-copies.csv"
    assert (back.visible, done) == (False, RECEIPT), "the next steps have the way back"
    another = pages.find("protect-another")
    assert (another._id, "click") in pages.handler("start_again").targets
    none, steps = pages.handler("start_again").fn(pages.request, job.id)
    assert (none, steps.selected) == (None, 1)


def test_fields_of_a_replaced_wizard_are_no_draft(pages: Pages) -> None:
    keep = pages.handler("keep_draft")
    values = [each.value for each in keep.inputs]
    keep.fn(pages.request, True, "/models/tiny", *values[2:])
    assert pages.context.drafts.of(pages.context.session(pages.request)) is None
