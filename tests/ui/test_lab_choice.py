"""Attacks that the Lab offers, and its messages about those that cannot run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

import irwm
from irwm import Parameters
from irwm.attacks.catalogue import ATTACKS
from irwm.attacks.quantisers import mixture, to_gguf
from irwm.errors import IrwmError
from irwm.report.lab_rows import MANY, SINGLE
from irwm.scheme.parameters import AUTO_SCALE, many_recipients, one_owner
from tests.jobs.recipients import new_vault, put_in_vault
from tests.ui.handlers import Pages, told, value
from tools.officer import place
from ui.components.lab_choice import (
    ALL,
    OWN,
    QUICK,
    QUICK_TRIALS,
    LabChoice,
    impossible,
    lab_choice,
    obstacles_html,
    obstacles_of,
    own_trial,
    token_of,
    tokens,
    trial_of,
    words_of,
)
from ui.components.markup import own
from ui.explore_settings import ExploreSettings
from ui.jobs import runner
from ui.jobs.requests import LARGEST_SEED, whole_number
from ui.pages.lab import (
    LEAST_TOKENS,
    MOST_TOKENS,
    PAPER,
    REHEARSE,
    RELEASE,
    STANDARD,
    keys_for,
    trial_marks,
)


def _choice_of(pages: Pages) -> LabChoice:
    """A separate choice: the page's handlers hold the lists of the page's own one."""
    with gr.Blocks():
        return lab_choice(pages.context)


def test_quick_choice_samples_every_kind_and_all_has_everything() -> None:
    quick, every = LabChoice.trials(QUICK), LabChoice.trials(ALL)
    assert sorted((each.attack, each.value) for each in quick) == sorted(QUICK_TRIALS)
    assert len({ATTACKS[each.attack].group for each in quick}) == len({a.group for a in ATTACKS.values()})
    assert len(every) == sum(len(attack.strengths) for attack in ATTACKS.values())
    assert tuple(trial_of(token) for token in tokens(ALL)) == every


def test_own_ticks_run_once_in_catalogue_order() -> None:
    found = LabChoice.trials(OWN, ["round|1"], None, ["prune|2", "prune|0", "prune|2"])
    assert [each.attack for each in found] == ["prune", "prune", "round"]
    assert found[0].value < found[1].value
    # A ready choice counts alone; lists that were never unfolded do not matter.
    assert LabChoice.trials(QUICK, None, ["prune|0"]) == LabChoice.trials(QUICK)


def test_own_strengths_run_after_the_offered_ones() -> None:
    found = LabChoice.trials(OWN, ["round|1"], ["round=5", "prune=0.25", "prune|0"])
    assert [(each.attack, each.value) for each in found] == [
        ("prune", 0.1),
        ("round", 4),
        ("prune", 0.25),
        ("round", 5),
    ]
    assert words_of("prune=0.25") == "Pruned, 25%"
    assert words_of("finetune-rate=0.0003") == "Fine-tuned at a rate, 0.0003"
    assert token_of(ATTACKS["round"], own_trial("round", "4.0").value) == "round|1", "an offered strength is its tick"


UNKNOWN = (
    [], ["prune|99"], ["prune|-1"], ["prune|x"], ["<img>|0"], ["prune"], ["prune|²"], ["prune=2"], ["prune=nan"],
    ["prune="], ["round=4.5"], ["rotate=1"], ["<img>=1"], ["collude=1"], ["finetune=1e9"],
)  # fmt: skip


@pytest.mark.parametrize("ticks", UNKNOWN)
def test_unknown_tick_is_refused(ticks: list[str]) -> None:
    with pytest.raises(IrwmError):
        LabChoice.trials(OWN, ticks)


def test_an_added_strength_is_ticked_once(pages: Pages) -> None:
    out = pages.call("lab-own-add", "click", "collude", " 3 ", [], [])
    group = out["lab-own-added"]
    assert (group.choices, group.value) == ([("Copies averaged, 3 copies", "collude=3")], ["collude=3"])
    assert out["lab-preset"] == OWN
    assert out["lab-own-strength"] == ""
    out = pages.call("lab-own-add", "click", "collude", "3", ["collude=3", "prune=0.2"], ["prune=0.2"])
    assert [token for _, token in out["lab-own-added"].choices] == ["collude=3", "prune=0.2"]
    assert out["lab-own-added"].value == ["prune=0.2", "collude=3"]
    assert told(pages.call("lab-own-add", "click", "collude", "1", [], [])) == ["lab-own-notice"]
    assert "from 2 to 64" in pages.call("lab-own-attack", "change", "collude")["lab-own-strength"].info


def test_attacks_that_cannot_run_show_the_reason(demo_path: Path, tmp_path: Path) -> None:
    found = obstacles_of(demo_path, demo_path, Parameters())
    assert "LayerNorm" in found["shift-tables"]
    assert not found.keys() & {name for name, _ in QUICK_TRIALS}
    text = obstacles_html(own("<b>demo</b>"), found)
    whole = found.keys() & ATTACKS.keys()
    assert found.keys() - whole == {token_of(ATTACKS["serve"], "turns")}  # it takes a second recipient
    cannot = f"{len(whole)} of {len(ATTACKS)} attacks and one strength of another attack cannot run on"
    assert f'{cannot} <span translate="no">&lt;b&gt;demo' in text
    assert "LayerNorm" in text
    for release in (to_gguf(demo_path, tmp_path / "leak", "Q8_0"), tmp_path / "nowhere", tmp_path):
        found = obstacles_of(demo_path, release, Parameters())
        assert found.keys() == ATTACKS.keys(), "no attack can run on a GGUF file, or without a model"
        assert "<li>" not in obstacles_html(own("leak"), found), "one reason for all"


def test_missing_k_quant_library_excludes_only_4_bit_files(demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the package from the process, as if it was never installed."""
    monkeypatch.setattr(mixture, "_library", lambda: None)
    found = obstacles_of(demo_path, demo_path, Parameters())
    gguf = ATTACKS["gguf"]
    of_gguf = {token: why for token, why in found.items() if token.startswith("gguf")}
    assert of_gguf.keys() == {token_of(gguf, "Q4_K_M"), token_of(gguf, "Q4_0")}
    assert all(mixture.PACKAGE in why for why in of_gguf.values())
    assert {token_of(gguf, "F16"), token_of(gguf, "Q8_0")}.isdisjoint(impossible(found))
    assert of_gguf.keys() <= impossible(found)


def test_unrunnable_attacks_are_unticked_and_others_stay(pages: Pages, demo_path: Path) -> None:
    found = {"shift-tables": "It has no tables.", token_of(ATTACKS["prune"], 0.3): "Too small."}
    choice = _choice_of(pages)
    before = [list(each.group.value or ()) for each in choice.lists]
    cannot, *lists = choice.offered(found, [], OWN, *before)
    assert set(cannot) == impossible(found)
    for box, list_, ticked in zip(choice.lists, lists, before, strict=True):
        all_of_it = {token for _, token in box.choices}
        if all_of_it.isdisjoint(cannot):
            assert list_ == gr.skip(), "ticks set meanwhile in an unchanged list stay"
            continue
        assert {token for _, token in list_.choices} == all_of_it - set(cannot)
        assert set(list_.value) == set(ticked) - set(cannot)
        assert "Not available for this model: " in list_.info
    assert sum(list_ != gr.skip() for list_ in lists) == 2
    assert choice.offered(found, cannot, OWN, *([] for _ in before)) == (cannot, *[gr.skip()] * len(lists))
    everything = choice.offered({}, cannot, QUICK, *before)[1:]
    came_back = {token for each in everything if each != gr.skip() for token in each.value}
    assert came_back >= set(tokens(QUICK)) & set(cannot)


def test_a_broken_model_starts_no_attacks(pages: Pages, tmp_path: Path) -> None:
    broken = pages.root / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    (broken / "model.safetensors").write_bytes(b"no weights")
    choice = _choice_of(pages)
    values = REHEARSE, str(broken), None, [SINGLE], [], QUICK, *([] for _ in choice.lists)
    out = pages.call("lab-modes", "change", *values, named="look_at_model")
    assert not out["start-lab"].interactive
    assert "notice-fault" in value(out["lab-obstacles"])


def test_lab_on_a_release_is_requested_with_its_key(
    pages: Pages, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    job = SimpleNamespace(id="job")
    monkeypatch.setattr(runner, "start", lambda kind, title, request, *_: asked.append(request) or job)
    original, release = (place(tiny_path, pages.root, name) for name in ("own", "own-marked"))
    ticks = ["prune|0"], *([] for _ in _choice_of(pages).lists[1:])
    settings = STANDARD, None, "", 1024, 0, "Leak of January", ""

    def start(base: str, copy: str, key: str | None) -> dict[str, Any]:
        return pages.call("start-lab", "click", RELEASE, base, [SINGLE], copy, key, *settings, OWN, *ticks)

    for missing in (("", str(release), "key"), (str(original), "", "key"), (str(original), str(release), None)):
        assert "notice-fault" in "".join(str(value(part)) for part in start(*missing).values())
    assert not asked
    start(str(original), str(release), "key")
    assert (asked[0]["original"], asked[0]["release"], asked[0]["key"]) == (str(original), str(release), "key")


def test_trial_marks_use_preset_model_and_settings(demo_path: Path) -> None:
    marks = trial_marks(demo_path, [MANY, SINGLE], STANDARD, None)
    assert list(marks) == [SINGLE, MANY]
    assert marks[SINGLE] == one_owner(256)
    assert marks[MANY] == many_recipients(256)
    assert trial_marks(demo_path, [SINGLE], PAPER, "")[SINGLE].scale == 1000.0
    given = ExploreSettings(parameters=Parameters(positions=60, noise_coordinates=4), recipients=7)
    marks = trial_marks(demo_path, [SINGLE, MANY], STANDARD, given.to_json())
    assert (marks[SINGLE].positions, marks[MANY].positions) == (50, 60)
    for modes, text in (([], None), (None, None), ([SINGLE], "{")):
        with pytest.raises(IrwmError):
            trial_marks(demo_path, modes, STANDARD, text)


def test_the_key_of_a_release_is_found_by_its_record(tmp_path: Path, tiny_path: Path) -> None:
    model = irwm.open_checkpoint(tiny_path)
    settings = Parameters(positions=20, required_positions=12, constraints=5, scale=AUTO_SCALE)
    keys = [irwm.generate_key(model, settings, bytes([n]) * 32, "Example Labs", f"Customer {n}") for n in range(2)]
    release = irwm.insert(model, keys[1], tmp_path / "release").path
    vault = new_vault(tmp_path / "home")
    assert keys_for(vault, str(tiny_path), None) == ([], None)
    ids = put_in_vault(vault, keys)
    choices, own = keys_for(vault, str(tiny_path), str(release))
    assert ([id for _, id in choices], own) == (ids, None)
    copy = irwm.open_checkpoint(release)
    vault.add_release(ids[1], str(release), {}, {"release_fingerprint": copy.fingerprint})
    choices, own = keys_for(vault, str(tiny_path), str(release))
    assert own == ids[1]
    assert [id for _, id in choices] == [ids[1], ids[0]]
    assert "Customer 1" in choices[0][0]


@pytest.mark.parametrize(
    ("least", "most", "good", "bad"),
    [
        (LEAST_TOKENS, MOST_TOKENS, (64, 1024.0, 65_536), (63, 65_537, 100.5, None, float("nan"), float("inf"))),
        (0, LARGEST_SEED, (0, LARGEST_SEED), (-1, 1.5, LARGEST_SEED + 1)),
    ],
)
def test_only_whole_numbers_in_range_are_taken(
    least: int, most: int, good: tuple[float, ...], bad: tuple[float | None, ...]
) -> None:
    assert [whole_number("seed", each, least, most) for each in good] == list(good)
    for each in bad:
        with pytest.raises(IrwmError):
            whole_number("seed", each, least, most)
