"""Handlers of the page Investigate: which keys they offer, and which keys they try."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import numpy as np
import pytest

import irwm
from tests.jobs.recipients import put_in_vault
from tests.recording.answers import ENDPOINT, MODEL, write_recording
from tests.recording.generated import write_generated
from tests.ui.handlers import Pages, hidden, value
from tools.running_app import REPOSITORY
from tools.waiting import PATIENCE
from ui.components.key_choice import MOST_LISTED
from ui.components.originals_table import compared_html
from ui.components.plain_blocks import NOT_OFFERED
from ui.components.uploads import browser_folder
from ui.jobs import runner
from ui.services.results import OriginalRow


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Requests of the started jobs, none of which runs."""
    requests: list[dict[str, Any]] = []

    def start(kind: str, title: str, request: dict[str, Any], secrets: Any, jobs: Any, ready: Any) -> Any:
        requests.append(request)
        return SimpleNamespace(id="job")

    monkeypatch.setattr(runner, "start", start)
    return requests


class Officer:
    """Chooses an original on the page; holds the values of the page's fields."""

    def __init__(self, pages: Pages, original: Path) -> None:
        self.pages, self.path = pages, pages.root / "original"
        shutil.copytree(original, self.path)
        self.model = irwm.open_checkpoint(self.path)
        self.known = (str(self.path), self.model.fingerprint)
        self.listed: list[str] | None = None
        self.words: str | None = ""
        self.offered = ""
        self.may_start = False
        self.unfolded: set[str] = set()

    def makes_key(self, recipient: str) -> str:
        key = irwm.generate_key(self.model, owner="Example Labs", recipient=recipient)
        (id,) = put_in_vault(self.pages.vault, [key])
        return id

    def comes_into_view(self) -> dict[str, Any]:
        values = str(self.path), self.known, self.listed, self.words, self.offered
        out = self.pages.call("page-investigate", "select", *values, named="read_keys_again")
        self.listed, self.offered = value(out["keys"]), str(out["3"])
        self.words = value(out["key-words"])
        self.may_start = out["4"]
        return out

    def looks_at(self, card: str, path: Path, original: Path | None = None) -> tuple[str, bool]:
        """The last card of a suspect chosen by its path, and whether it can be examined."""
        look = self.pages.handler("look_at_suspect", card)
        base = None if original is None else str(original)
        *_, (shown, sound, *_rest) = look.fn(str(path), base, None, self.pages.request)
        return shown, sound

    def starts(
        self, suspect: str | None = None, since: str = "", seed: float = 0, answers: tuple[Any, ...] = ()
    ) -> dict[str, str]:
        """The places with a message, and the messages; `answers` are the values of the fields of recorded answers.

        The result of an earlier start is hidden in any case.
        """
        typed = str(self.path) if suspect is None else suspect
        ways = "answers" if answers else "weights", typed, typed, None, *(answers or ("", None, None))
        values = *ways, str(self.path), self.known
        settings = "", "", since, "", "joint", "original", seed, True
        keys = self.listed, self.words, self.offered
        out = self.pages.call("start-investigate", "click", *values, *keys, *settings, named="begin")
        assert hidden(out["0"]), "the result of an earlier start"
        self.unfolded = {name for name, part in out.items() if isinstance(part, gr.Accordion) and part.open}
        return {name: part.value for name, part in out.items() if isinstance(part, gr.HTML) and part.value}


@pytest.fixture
def officer(pages: Pages, tiny_path: Path) -> Officer:
    return Officer(pages, tiny_path)


def test_new_keys_are_offered_and_a_deselected_key_stays_deselected(officer: Officer, started) -> None:
    officer.comes_into_view()
    assert not officer.may_start
    first, second = (officer.makes_key(f"Early access {n}") for n in (1, 2))
    officer.comes_into_view()
    assert (officer.listed, officer.offered, officer.may_start) == ([first, second], f"{first} {second}", True)
    officer.listed = [second]
    third = officer.makes_key("Early access 3")
    officer.comes_into_view()
    assert officer.listed == [second, third]
    assert officer.offered == f"{first} {second} {third}"
    officer.starts()
    assert started[0]["keys"] == [second, third]


def test_untouched_key_list_requests_all_keys_at_start(officer, started) -> None:
    officer.makes_key("Early access 1")
    officer.comes_into_view()
    officer.makes_key("Early access 2")  # and the page does not come into view again
    officer.starts()
    assert (started[0]["keys"], started[0]["matching"]) == (None, "")


def test_start_before_the_browser_has_the_list_tries_all_keys(officer: Officer, started) -> None:
    """The server knows the original before the browser has its keys, and no key was removed from the list."""
    officer.makes_key("Early access 1")
    officer.comes_into_view()
    officer.listed, officer.offered = [], ""
    assert officer.starts() == {}
    assert (started[0]["keys"], started[0]["matching"]) == (None, "")


def test_refusal_appears_only_at_its_field(officer: Officer, started) -> None:
    key = officer.makes_key("Early access 1")
    officer.comes_into_view()
    assert officer.starts() == {}
    for place, values in (
        ("path-suspect-note", {"suspect": ""}),
        ("path-answers-note", {"answers": ("", None, None)}),
        ("suspect-seen-notice", {"since": "last week"}),
        ("seed-notice", {"seed": -1}),
    ):
        assert list(officer.starts(**values)) == [place]
        in_fold = place in ("suspect-seen-notice", "seed-notice")
        assert officer.unfolded == ({"investigate-advanced"} if in_fold else set())
    officer.listed = []
    assert list(officer.starts()) == ["keys-notice"]
    officer.listed, officer.offered = ["0" * 32], f"{'0' * 32} {key}"
    ((where, text),) = officer.starts().items()
    assert where == "keys-notice"
    assert "0" * 32 not in text, "a key's id means nothing to a user"
    assert len(started) == 1


def test_a_suspect_that_cannot_be_opened_starts_nothing(officer: Officer) -> None:
    broken = officer.pages.root / "broken.safetensors"
    broken.write_bytes(b"no weights at all")
    for path, is_sound in ((broken, False), (officer.path, True)):
        card, sound = officer.looks_at("suspect-model", path)
        assert ("notice-fault" in card, sound) == (not is_sound, is_sound)
    may_start = officer.pages.handler("may_start")
    good, unsound, mistyped = (True, False), (False, False), (True, True)
    for usable in itertools.product((good, unsound, mistyped), (good, unsound, mistyped), (True, False)):
        of_weights, of_answers, keyed = usable
        for way, source in (("weights", of_weights), ("answers", of_answers)):
            button = may_start.fn(way, *of_weights, *of_answers, keyed)
            assert button.interactive is (source == good and keyed)
    assert {output.elem_id for output in may_start.outputs} == {"start-investigate"}


def test_an_upload_replaces_a_path_that_cannot_be_used(officer: Officer) -> None:
    out = officer.pages.call("path-suspect", "submit", "/no/such/model")
    faulty = officer.pages.handler("may_start").inputs[2]
    settle = officer.pages.handler("settle", "path-suspect")
    assert list(out.values())[settle.outputs.index(faulty)] is True
    taken = officer.pages.handler("take_upload", "path-suspect")
    upload = browser_folder() / "model.safetensors"
    upload.write_bytes(b"no weights at all")
    found = dict(zip(taken.outputs, taken.fn([str(upload)], None, officer.pages.request), strict=True))
    assert found[faulty] is False, "the error is about the field, which is empty now"
    assert hidden(found[officer.pages.find("path-suspect-note")])


def test_stale_choice_is_reported_without_its_value(pages: Pages) -> None:
    values = ["a key’s id", None, False]
    with pytest.raises(gr.Error) as refused:
        asyncio.run(pages.blocks.preprocess_data(pages.handler("show_key"), values, None))
    assert NOT_OFFERED in str(refused.value)
    assert "id" not in str(refused.value)


def test_search_words_remain_with_many_keys(officer: Officer, started) -> None:
    for n in range(MOST_LISTED + 1):
        officer.makes_key(f"Customer {n}")
    officer.comes_into_view()
    assert (officer.listed, officer.offered) == ([], "")
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
        usable = way == "answers", False, True, False, True
        out = officer.pages.call("suspect-way", "change", way, *usable, named="choose_way")
        *parts, start = out.values()
        assert [part.visible for part in parts] == shown
        assert start.interactive == (way == "answers"), "the suspect of the other way does not count"


def test_recorded_texts_have_a_card_too(officer: Officer, started) -> None:
    officer.makes_key("Early access 1")
    officer.comes_into_view()
    answers = irwm.Answers([np.arange(6)], [2], [-np.ones(4)])
    file = write_generated(answers, officer.model, officer.pages.root / "answers.jsonl")
    card, sound = officer.looks_at("answers-model", file, officer.path)
    assert sound
    for text in ("<h2>answers.jsonl</h2>", MODEL, ENDPOINT, "1 text of at most 32 tokens each"):
        assert text in card
    assert officer.starts(answers=(str(file), str(file), None)) == {}
    file.write_bytes(file.read_bytes()[:60])
    card, sound = officer.looks_at("answers-model", file, officer.path)
    assert not sound
    assert "first line" in card


def test_text_is_a_suspect_as_a_file_and_pasted(officer: Officer, started) -> None:
    officer.makes_key("Early access 1")
    officer.comes_into_view()
    file = officer.pages.root / "said.txt"
    file.write_text("One text.\n---\nAnother text.\n")
    card, sound = officer.looks_at("answers-model", file, officer.path)
    assert sound
    for text in ("<h2>said.txt</h2>", "Texts", "Words"):
        assert text in card
    assert officer.starts(answers=(str(file), str(file), None)) == {}
    assert (started[0]["suspect"], started[0]["fits"]) == (str(file), True)
    take = officer.pages.handler("take_text").fn
    card, sound, held, *_ = take("What it said.", officer.path, officer.pages.request)
    assert sound
    assert "<h2>pasted-text.txt</h2>" in card
    assert Path(held).read_text() == "What it said."
    assert officer.starts(answers=("", None, held)) == {}
    file.write_bytes(b"caf\xe9")
    card, sound = officer.looks_at("answers-model", file, officer.path)
    assert not sound
    assert "not text in UTF-8" in card


def test_unexaminable_answers_are_reported_below_their_field(officer: Officer) -> None:
    """Too few may still fit another original; the error of a broken original is below its field."""
    few, text = officer.pages.root / "few.safetensors", officer.pages.root / "text.safetensors"
    write_recording(officer.model, officer.model, few, count=20)
    text.write_text("no weights and no answers at all")
    for file, base, sound in (
        (few, officer.path, False),
        (text, officer.path, False),
        (few, None, True),
        (few, text, True),
    ):
        card, found = officer.looks_at("answers-model", file, base)
        assert ("notice-fault" in card, found) == (not sound, sound)


@pytest.mark.slow
def test_the_shown_command_plans_a_recording(pages: Pages, gemma_path: Path, tmp_path: Path) -> None:
    """Run unchanged, except for the values that only the officer knows."""
    shown = re.search(r'data-copy="([^"]*)"', pages.handler("tell_how").fn(str(gemma_path), pages.request))
    assert shown is not None
    known = {"python": sys.executable, "app.py": str(REPOSITORY / "app.py"), "https://SERVER": "http://127.0.0.1:1"}
    words = [known.get(word, word) for word in shlex.split(html.unescape(shown[1]))]
    ended = subprocess.run(words, cwd=tmp_path, input="", capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    assert "requests" in json.loads(ended.stdout)["result"]
    assert not list(tmp_path.glob("answers*"))


def test_inputs_of_a_finished_investigation_fold_until_they_are_changed(pages: Pages) -> None:
    asked = {"suspect": "/models/leaked-<b>", "original": "/models/demo"}
    done, failed = (pages.jobs.create("investigate", "Investigate", asked).id for _ in range(2))
    pages.jobs.finish(done, "done", {"json": "report.json", "rows": []})  # an error is shown in its place
    pages.jobs.finish(failed, "failed", error={"problem": "no space"})
    show = pages.handler("show", "investigate-folded").fn
    *_, line, summary, inputs = show(done, False, done, pages.request)
    assert (line.visible, inputs.elem_classes) == (True, ["replaced"])
    assert "leaked-&lt;b&gt;</strong> against <strong>demo<" in summary
    for ended, begun in ((done, None), (failed, failed), (None, done)):
        assert all(each == gr.skip() for each in show(ended, False, begun, pages.request)[-3:]), (
            "of another session, or without a result"
        )
    out = pages.call("investigate-change", "click", named="unfold")
    assert (out["investigate-folded"].visible, out["investigate-inputs"].elem_classes) == (False, [])


def test_opened_page_prepares_a_process_for_the_task(pages: Pages) -> None:
    ready: Any = pages.context.ready
    before = ready.asked
    pages.call("page-investigate", "select", named="get_ready")
    assert ready.asked == before + 1
    pages.lock()
    pages.call("page-investigate", "select", named="get_ready")
    assert ready.asked == before + 1, "the app is locked"


def test_without_an_original_all_originals_of_the_vault_are_compared(officer: Officer, started, tmp_path: Path) -> None:
    pages, (key, other) = officer.pages, (officer.makes_key(name) for name in ("Ada", "Bob"))
    suspect = officer.path

    def comes_into_view() -> tuple[str, bool]:
        out = pages.call("page-investigate", "select", None, None, None, "", None, named="read_keys_again")
        return out["original-model"], out["4"]

    def starts(suspect: Path, way: str = "weights") -> dict[str, str]:
        own = str(suspect), str(suspect), None
        sources = (*own, "", None, None) if way == "weights" else ("", None, None, *own)
        settings = "", "", "", "", "joint", "original", 0, True
        out = pages.call(
            "start-investigate", "click", way, *sources, "", None, None, "", None, *settings, named="begin"
        )
        return {name: part.value for name, part in out.items() if isinstance(part, gr.HTML) and part.value}

    assert comes_into_view() == ("", False)
    assert "vault’s originals is where" in html.unescape(starts(suspect)["path-original-of-note"])
    outside = tmp_path / "outside"
    shutil.copytree(officer.path, outside)
    for id, model in ((key, officer.path), (other, outside)):
        receipt: Any = {"model": str(model)}
        pages.vault.add_release(id, pages.root / f"copy-{id}", {"model.safetensors": "0" * 64}, receipt)
    card, may_start = comes_into_view()
    assert may_start
    assert "<strong>1 original</strong> of your vault: original." in card, "the other folder may not be read"
    assert starts(suspect) == {}
    assert (started[0]["original"], started[0]["originals"]) == ("", [str(officer.path)])
    several = pages.root / "several"
    for name in ("a", "b"):
        shutil.copytree(officer.path, several / name)
    assert "no original was chosen" in html.unescape(starts(several)["path-original-of-note"]).lower()
    assert len(started) == 1


def test_table_of_compared_originals_says_what_is_open() -> None:
    row: OriginalRow = {"path": "/m/a", "name": "<a>", "lineage": "derived", "similarity": 1.0, "p": 0.02, "keys": 2,
                        "verdict": "found", "whose": ["Ada"], "reason": "said"}  # fmt: skip
    gone: OriginalRow = {**row, "name": "b", "lineage": "", "keys": 0, "verdict": "", "whose": [], "reason": "why"}
    text = compared_html([row, gone])
    assert 'class="model-fold"><' in text, "folded, since the verdict follows"
    for part in ("marks found of &lt;a&gt;", "found, Ada", "2 keys tried", "Keys of these were not tried: b.", "why"):
        assert part in text
    assert "said" not in text
    assert 'class="model-fold" open>' in compared_html([gone])
    assert compared_html([]) == ""
