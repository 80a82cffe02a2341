"""Input in the wizard survives a reload: in memory, for its own browser, until it is used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from tests.ui.handlers import SESSION, Pages, value
from tools.officer import place
from ui.drafts import KEPT, Draft, Drafts
from ui.pages.protect import ONE, SEVERAL

EMPTY = ("", "", "", "", ONE)
TEXTS = ("Example Labs", "", "Ada\nBen\n", "for the spring release", SEVERAL)


def keep(
    pages: Pages,
    *texts: str,
    source: str | None = None,
    step: int = 1,
    name: str = "keep_draft",
    replaced: bool = False,
    **set_to: Any,
) -> None:
    """Calls the handler with the fields' values on a new page, except for those that are given."""
    function = pages.handler(name)
    _, _, _, filled_for, *fields = function.inputs
    known = {"path-target": "", "release-name": ""} | set_to
    settings = [known.get(field.elem_id, field.value) for field in fields[len(EMPTY) :]]
    function.fn(pages.request, replaced, source, step, filled_for.value, *texts, *settings)


def after_reload(pages: Pages, *texts: str, source: str | None = None, session: str = "tests") -> dict[str, Any] | None:
    """The values that the fields are given back, by their ids; None if there is no draft."""
    function = pages.handler("give_back")
    found = function.fn(SimpleNamespace(session_hash=session, request=None), source, *texts)
    assert len(found) == len(function.outputs)
    if all(part == gr.skip() for part in found):
        return None
    named = {part.elem_id: each for part, each in zip(function.outputs, found, strict=True) if part.elem_id}
    return named | {"texts": tuple(map(value, found[: len(EMPTY)]))}


def test_reload_restores_typed_text(pages: Pages) -> None:
    keep(pages, *TEXTS)
    keep(pages, *EMPTY, name="keep_filled")  # as from a page that is being drawn
    back = after_reload(pages, *EMPTY)
    assert back is not None
    assert back["texts"] == TEXTS
    assert back["recipient"].visible is False, "several recipients have a list instead"
    assert value(back["start-protect"]) == "Write the copies"
    assert after_reload(pages, "Other", "", "", "", ONE) is None, "text typed since then stays"
    assert after_reload(pages, *EMPTY, source="/models/other") is None, "and so does a model chosen since then"
    assert after_reload(pages, *EMPTY, session="another browser") is None


def test_restored_place_stays_while_fields_are_filled(pages: Pages, tiny_path: Path) -> None:
    """The page keeps a draft with each field that gets its value, the first ones before the name has its own."""
    model = str(place(tiny_path, pages.root, "tiny"))
    keep(pages, *TEXTS, source=model, step=4, **{"path-target": str(pages.root), "release-name": "spring"})
    give_back = pages.handler("give_back")
    found = give_back.fn(pages.request, None, *EMPTY)
    look = pages.handler("look", "protect-model")
    chosen, given_back = (found[give_back.outputs.index(state)] for state in look.inputs)
    keep(pages, *TEXTS, source=model, step=1, **{"path-target": str(pages.root)})
    looked = [dict(zip(look.outputs, part, strict=True)) for part in look.fn(chosen, given_back, pages.request)]
    name, state = pages.find("release-name"), look.inputs[1]
    assert [part[name] for part in looked] == [gr.skip()] * 2
    assert [part[state] for part in looked] == [None] * 2, "a model chosen later gets the usual name"
    first, _ = look.fn(chosen, looked[-1][state], pages.request)
    assert "tiny-marked" in first


def test_selection_of_left_out_files_survives_a_reload(pages: Pages, tiny_path: Path) -> None:
    model = place(tiny_path, pages.root, "tiny")
    for name in ("notes.txt", "prompts.txt"):
        (model / name).write_text("Dear Sirs", encoding="utf-8")
    where = {"path-target": str(pages.root), "release-name": "spring"}
    keep(pages, *TEXTS, source=str(model), step=4, also=["prompts.txt"], name="keep_filled", **where)
    give_back, check = pages.handler("give_back"), pages.handler("check_place")
    back = dict(zip(give_back.outputs, give_back.fn(pages.request, None, *EMPTY), strict=True))
    left_out, also = check.inputs[-2:]
    assert (back[also].value, back[also].visible) == (["prompts.txt"], True)
    asked = (str(model), str(pages.root), "spring", ONE, (1, 1), back[left_out], back[also].value, pages.request)
    _, offered, shown = check.fn(*asked)
    assert offered == ["notes.txt", "prompts.txt"]
    assert shown.value == ["prompts.txt"]
    assert [name for name, _ in shown.choices] == offered


def test_missing_original_must_be_chosen_again(pages: Pages) -> None:
    keep(pages, *TEXTS, source=str(pages.root / "gone"), step=3)
    back = after_reload(pages, *EMPTY)
    assert back is not None
    assert back["protect-steps"].selected == 1
    assert back["path-original"] == ""
    assert back["texts"] == TEXTS


def test_locked_browser_gets_no_draft_and_no_draft_is_on_disk(pages: Pages) -> None:
    keep(pages, "Example Labs", "A secret customer", "", "", ONE)
    home = pages.context.settings.home
    assert not any(b"A secret customer" in path.read_bytes() for path in home.rglob("*") if path.is_file())
    pages.lock()
    keep(pages, "Other Labs", "", "", "", ONE)
    kept = pages.context.drafts.of(SESSION)
    assert kept is not None
    assert kept.texts[0] == "Example Labs", "a locked browser cannot replace the draft"


def test_drafts_are_per_browser_and_limited() -> None:
    drafts = Drafts()
    for n in range(KEPT + 1):
        drafts.keep(f"browser {n}", Draft((f"text {n}",)))
    assert drafts.of("browser 0") is None
    assert drafts.of(f"browser {KEPT}") == Draft((f"text {KEPT}",))
    drafts.drop(f"browser {KEPT}")
    assert drafts.of(f"browser {KEPT}") is None
    assert drafts.of(None) is None
