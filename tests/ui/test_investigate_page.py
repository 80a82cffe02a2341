"""Handlers of the page Investigate: which keys they offer, and which keys they try."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

import irwm
from tests.jobs.recipients import put_in_vault
from tests.recording.answers import ENDPOINT, MODEL, write_recording
from tests.ui.handlers import Pages, value
from ui.components.key_choice import MOST_LISTED
from ui.components.plain_blocks import NOT_OFFERED
from ui.jobs import runner


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Requests of the started jobs, none of which runs."""
    requests: list[dict[str, Any]] = []

    def start(kind: str, title: str, request: dict[str, Any], secrets: Any, jobs: Any) -> Any:
        requests.append(request)
        return SimpleNamespace(id="job")

    monkeypatch.setattr(runner, "start", start)
    return requests


class Officer:
    """Chooses an original on the page; holds the values of the page's fields."""

    def __init__(self, pages: Pages, original: Path) -> None:
        self.pages, self.path = pages, pages.root / "original"
        _copy(original, self.path)
        self.model = irwm.open_checkpoint(self.path)
        self.known = (str(self.path), self.model.fingerprint)
        self.listed: list[str] | None = None
        self.words: str | None = ""
        self.offered: list[str] | None = None
        self.may_start = False

    def notes(self) -> dict[str, str]:
        """The names that `call` gives to the pickers' notes."""
        begin = self.pages.handler("begin", "keys-notice")
        places = [place for place, output in enumerate(begin.outputs) if not output.elem_id]
        return dict(zip(("suspect", "answers", "original"), map(str, places[-3:]), strict=True))

    def makes_key(self, recipient: str) -> str:
        key = irwm.generate_key(self.model, owner="Example Labs", recipient=recipient)
        (id,) = put_in_vault(self.pages.vault, [key])
        return id

    def comes_into_view(self) -> dict[str, Any]:
        values = str(self.path), self.known, self.listed, self.words, self.offered
        out = self.pages.call("page-investigate", "select", *values, named="read_keys_again")
        self.listed, self.offered = value(out["keys"]), out["3"]
        self.words = value(out["key-words"])
        self.may_start = out["4"]
        return out

    def looks_at(self, card: str, path: Path, original: Path | None = None) -> tuple[str, bool]:
        """The last card of a suspect chosen by its path, and whether it can be examined."""
        look = self.pages.handler("look_at_suspect", card)
        base = None if original is None else str(original)
        *_, (html, sound, *_rest) = look.fn(str(path), base, None, self.pages.request)
        return html, sound

    def starts(
        self, suspect: str | None = None, since: str = "", seed: float = 0, answers: tuple[Any, ...] = ()
    ) -> dict[str, str]:
        """The places with a message, and the messages; `answers` are the values of the fields of recorded answers."""
        typed = str(self.path) if suspect is None else suspect
        ways = "answers" if answers else "weights", typed, typed, None, *(answers or ("", None, None))
        values = *ways, str(self.path), self.known
        settings = "", "", since, "", "joint", "original", seed
        keys = self.listed, self.words, self.offered
        out = self.pages.call("start-investigate", "click", *values, *keys, *settings, named="begin")
        return {name: part.value for name, part in out.items() if isinstance(part, gr.HTML) and part.value}


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())


@pytest.fixture
def officer(pages: Pages, tiny_path: Path) -> Officer:
    return Officer(pages, tiny_path)


def test_new_key_is_offered_and_chosen_when_the_page_is_shown(officer: Officer) -> None:
    officer.comes_into_view()
    assert not officer.may_start
    first = officer.makes_key("Early access 1")
    officer.comes_into_view()
    assert (officer.listed, officer.offered, officer.may_start) == ([first], [first], True)
    second = officer.makes_key("Early access 2")
    officer.comes_into_view()
    assert officer.listed == [first, second]


def test_deselected_key_stays_deselected(officer: Officer) -> None:
    first, second = (officer.makes_key(f"Early access {n}") for n in (1, 2))
    officer.comes_into_view()
    officer.listed = [second]
    third = officer.makes_key("Early access 3")
    officer.comes_into_view()
    assert officer.listed == [second, third]
    assert officer.offered == [first, second, third]


def test_untouched_key_list_requests_all_keys_at_start(officer, started) -> None:
    officer.makes_key("Early access 1")
    officer.comes_into_view()
    officer.makes_key("Early access 2")  # and the page does not come into view again
    officer.starts()
    assert (started[0]["keys"], started[0]["matching"]) == (None, "")


def test_edited_key_list_requests_the_remaining_keys(officer: Officer, started) -> None:
    _, second = (officer.makes_key(f"Early access {n}") for n in (1, 2))
    officer.comes_into_view()
    officer.listed = [second]
    officer.starts()
    assert started[0]["keys"] == [second]


def test_refusal_appears_only_at_its_field(officer: Officer, started) -> None:
    key = officer.makes_key("Early access 1")
    officer.comes_into_view()
    assert officer.starts() == {}
    notes = officer.notes()
    for place, said, values in (
        (notes["suspect"], "The suspect is missing", {"suspect": ""}),
        ("suspect-seen-notice", "This is not a date", {"since": "last week"}),
        ("suspect-seen-notice", "in the future", {"since": "2999-01-01"}),
        ("seed-notice", "seed is out of range", {"seed": -1}),
    ):
        ((where, text),) = officer.starts(**values).items()
        assert (where, said in text) == (place, True)
    officer.listed = []
    ((where, text),) = officer.starts().items()
    assert (where, "No key was chosen" in text) == ("keys-notice", True)
    officer.listed, officer.offered = ["0" * 32], ["0" * 32, key]
    ((where, text),) = officer.starts().items()
    assert (where, "no longer in the vault" in text) == ("keys-notice", True)
    assert "0" * 32 not in text, "a key's id means nothing to a user"
    assert len(started) == 1


def test_a_suspect_that_cannot_be_opened_starts_nothing(officer: Officer) -> None:
    broken = officer.pages.root / "broken.safetensors"
    broken.write_bytes(b"no weights at all")
    for path, is_sound in ((broken, False), (officer.path, True)):
        card, sound = officer.looks_at("suspect-model", path)
        assert ("notice-fault" in card, sound) == (not is_sound, is_sound)
    may_start = officer.pages.handler("may_start")
    for way, sound in (("weights", (True, False)), ("answers", (False, True))):
        other = tuple(not each for each in sound)
        ready = ((*sound, True), (*other, True), (*sound, False))
        assert [may_start.fn(way, *each).interactive for each in ready] == [True, False, False]
    assert {output.elem_id for output in may_start.outputs} == {"start-investigate"}


def test_stale_choice_is_reported_without_its_value(pages: Pages) -> None:
    values = ["a key’s id", None, False]
    with pytest.raises(gr.Error) as refused:
        asyncio.run(pages.blocks.preprocess_data(pages.handler("show_key"), values, None))
    assert str(refused.value) == repr(NOT_OFFERED) or NOT_OFFERED in str(refused.value)
    assert "id" not in str(refused.value)


def test_search_words_remain_with_many_keys(officer: Officer, started) -> None:
    for n in range(MOST_LISTED + 1):
        officer.makes_key(f"Customer {n}")
    officer.comes_into_view()
    assert (officer.listed, officer.offered) == ([], None)
    officer.words = "Customer 7"
    out = officer.comes_into_view()
    assert officer.words == "Customer 7"
    assert "Customer 7" in value(out["key-summary"])
    officer.starts()
    assert (started[0]["keys"], started[0]["matching"]) == (None, "Customer 7")


def test_key_choice_stays_while_another_original_is_read(officer: Officer) -> None:
    officer.makes_key("Early access 1")
    values = "/another/original", officer.known, None, "", None
    out = officer.pages.call("page-investigate", "select", *values, named="read_keys_again")
    assert all(each == gr.skip() for each in out.values())


def test_answers_have_a_separate_input(officer: Officer, started) -> None:
    officer.makes_key("Early access 1")
    officer.comes_into_view()
    file = write_recording(officer.model, officer.model, officer.pages.root / "answers.safetensors")
    card, sound = officer.looks_at("answers-model", file, officer.path)
    assert sound
    for text in ("<h2>answers.safetensors</h2>", MODEL, ENDPOINT, "2026-03-01 10:00"):
        assert text in card
    notes = officer.notes()
    ((where, said),) = officer.starts(answers=("", None, None)).items()
    assert (where, "The suspect is missing" in said) == (notes["answers"], True)
    assert not started
    assert officer.starts(answers=(str(file), str(file), None)) == {}
    assert (started[0]["suspect"], started[0]["answers"]) == (str(file), True)
    # Values in the fields of the other way are not a suspect.
    assert officer.starts(suspect="") != {}


def test_the_command_names_the_original_that_was_chosen(officer: Officer) -> None:
    for path, shown in ((None, "PATH-TO-THE-ORIGINAL"), ("/models/a b", "&#39;/models/a b&#39;")):
        out = officer.pages.handler("tell_how").fn(path, officer.pages.request)
        assert f"--original {shown}" in out
        assert "--plan" in out


def test_only_one_input_mode_is_shown(officer: Officer) -> None:
    for way, shown in (("weights", [True, False, False]), ("answers", [False, True, False])):
        out = officer.pages.call("suspect-way", "change", way, way == "answers", True, True, named="choose_way")
        *parts, start = out.values()
        assert [part.visible for part in parts] == shown
        assert start.interactive == (way == "answers"), "the suspect of the other way does not count"


@pytest.mark.parametrize(
    ("corrupt", "said"),
    [
        ({"count": 20}, "There are too few answers"),
        ("text", "These answers cannot be read"),
    ],
)
def test_unexaminable_suspect_is_reported_below_its_field(officer: Officer, corrupt: Any, said: str) -> None:
    file = officer.pages.root / "answers.safetensors"
    write_recording(officer.model, officer.model, file, **(corrupt if isinstance(corrupt, dict) else {}))
    if corrupt == "text":
        file.write_text("no answers at all")
    card, sound = officer.looks_at("answers-model", file, officer.path)
    assert not sound
    assert "notice-fault" in card
    assert said in card


def test_answers_that_do_not_fit_one_original_may_fit_another(officer: Officer) -> None:
    """Before an original is chosen a whole file cannot be wrong; a broken original has its own message."""
    file = write_recording(officer.model, officer.model, officer.pages.root / "answers.safetensors", count=20)
    assert [officer.looks_at("answers-model", file, base)[1] for base in (None, officer.path)] == [True, False]
    broken = officer.pages.root / "broken.safetensors"
    broken.write_bytes(b"no weights at all")
    assert officer.looks_at("answers-model", file, broken)[1]


def test_upload_states_accepted_files_and_the_path_alternative(pages: Pages) -> None:
    assert pages.find("suspect-files").label.endswith("2.1 GB at most")
    texts = [each.value for each in pages.blocks.blocks.values() if isinstance(each, gr.Markdown)]
    assert any("needs no upload: paste its path above" in text and "200 files of 1.1 GB each" in text for text in texts)
