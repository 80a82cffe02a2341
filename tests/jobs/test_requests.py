"""Checks of a job's request, the same for a page, a command and a program's call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.errors import IrwmError, OutputExistsError, ParameterError
from storage import Jobs, NewKey, Vault
from ui.jobs import requests
from ui.jobs.requests import NoNoiseError, chosen_keys
from ui.services.recipients import Recipient, RecipientListError

MODEL, OTHER = "a" * 64, "b" * 64


def put(vault: Vault, recipient: str, mark: str, *, noise: int = 0, model: str = MODEL) -> str:
    new = NewKey(b"x", "Labs", recipient, "m", model, "llama", mark.ljust(64, "0"), {"noise_coordinates": noise})
    return vault.add_keys([new])[0].id


def test_keys_are_selected_by_id_or_fingerprint_prefix(vault: Vault) -> None:
    first, second = put(vault, "Ada", "12345678aa"), put(vault, "Ben", "12345678bb")
    foreign = put(vault, "Ada", "99999999", model=OTHER)
    assert chosen_keys(vault, MODEL, [second, first]) == ((second, first), "")
    assert chosen_keys(vault, MODEL, ["12345678AA", first]) == ((first,), "")
    for keys in ([first, "12345678"], [first, "1234567"], [first, "99999999"], [first, foreign], [first, ""], []):
        with pytest.raises(IrwmError):
            chosen_keys(vault, MODEL, keys)


def test_words_select_all_matching_keys(vault: Vault) -> None:
    with pytest.raises(IrwmError):
        chosen_keys(vault, MODEL)
    put(vault, "Ada", "1" * 8)
    assert chosen_keys(vault, MODEL) == (None, "")
    assert chosen_keys(vault, MODEL, None, " ada ") == (None, "ada")
    with pytest.raises(IrwmError):
        chosen_keys(vault, MODEL, None, "ben")


def test_trace_requests_only_keys_with_noise(vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    suspect = tmp_path / "suspect.safetensors"
    suspect.write_bytes(b"")
    put(vault, "Without", "1" * 8)
    with pytest.raises(NoNoiseError):
        requests.trace(vault, jobs, suspect, tmp_path, MODEL)
    put(vault, "Ada", "2" * 8, noise=5)
    ben = put(vault, "Ben", "3" * 8, noise=5)
    asked = requests.trace(vault, jobs, suspect, tmp_path, MODEL)
    assert (asked.kind, asked.title) == ("investigate", "Trace suspect.safetensors")
    assert (asked.request.keys, asked.request.noisy) == (None, True), "the keys are read when the work starts"
    assert requests.trace(vault, jobs, suspect, tmp_path, MODEL, matching="ada").request.matching == "ada"
    assert requests.trace(vault, jobs, suspect, tmp_path, MODEL, keys=[ben]).request.keys == (ben,)


def test_trace_continues_a_trace_and_not_an_investigation(vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    put(vault, "Ada", "1" * 8, noise=5)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / "several").mkdir(exist_ok=True)
        (tmp_path / "several" / name).write_bytes(b"GGUF")
    place = vault, jobs, tmp_path / "several", tmp_path, MODEL
    stopped = {}
    for ask in (requests.investigate, requests.trace):
        asked = ask(*place)
        assert (asked.kind, asked.request.resume) == ("sweep", "")
        job = jobs.create("sweep", asked.title, asked.request.to_json())
        jobs.finish(job.id, "stopped")
        stopped[ask] = job.id
        assert ask(*place).request.resume == job.id


def test_investigation_continues_the_case_with_its_title(vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    put(vault, "Ada", "1" * 8)
    known = vault.add_case("A leak", "")
    suspect = tmp_path / "suspect.safetensors"
    suspect.write_bytes(b"")
    for title, case in (("A leak", known.id), ("Another", ""), ("", "")):
        asked = requests.investigate(vault, jobs, suspect, tmp_path, MODEL, case=title)
        assert (asked.request.case_id, asked.request.case_title) == (case, title)


@pytest.mark.parametrize(
    "values",
    [
        {"case": "x" * 201}, {"note": "x" * 1001}, {"examiner": "x" * 201}, {"seed": -1}, {"seed": 0.5},
        {"seen": "yesterday"}, {"seen": "2999-01-01"}, {"statistic": "loud"}, {"invariant": ""},
    ],
)  # fmt: skip
def test_invalid_values_are_refused(vault: Vault, jobs: Jobs, tmp_path: Path, values: dict[str, Any]) -> None:
    put(vault, "Ada", "1" * 8)
    with pytest.raises(IrwmError):
        requests.investigate(vault, jobs, tmp_path / "s", tmp_path, MODEL, **values)


def test_single_release_request_and_invalid_targets(vault: Vault, tiny_path: Path, tmp_path: Path) -> None:
    plain: dict[str, Any] = {"owner": " Labs ", "parameters": irwm.Parameters(), "recipient": "Ada"}
    asked = requests.protect(vault, tiny_path, tmp_path / "out", **plain)
    assert asked.title == f"Protect {tiny_path.name} as out"
    assert (asked.request.owner, asked.request.utility) == ("Labs", "small")
    assert asked.request.recipients == (Recipient("Ada"),)
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputExistsError):
        requests.protect(vault, tiny_path, tmp_path / "there", **plain)
    for wrong in ({"owner": ""}, {"owner": "x" * 10_000}, {"label": "x" * 501}, {"utility": "often"}):
        with pytest.raises(IrwmError):
            requests.protect(vault, tiny_path, tmp_path / "out", **(plain | wrong))
    greedy = plain | {"parameters": irwm.Parameters(permutations=1_000_000, positions=10_000)}
    with pytest.raises(ParameterError):
        requests.protect(vault, tiny_path, tmp_path / "out", **greedy)


def test_many_copies_are_requested_while_any_recipient_lacks_one(vault: Vault, tiny_path: Path, tmp_path: Path) -> None:
    people = [Recipient("Ada", "first"), Recipient("Ben")]
    plain: dict[str, Any] = {"owner": "Labs", "parameters": irwm.Parameters()}
    asked = requests.protect(vault, tiny_path, tmp_path / "copies", recipients=people, **plain)
    assert asked.request.recipients == tuple(people)
    assert asked.request.many
    with pytest.raises(RecipientListError):
        requests.protect(vault, tiny_path, tmp_path / "copies", recipients=[], **plain)
    fingerprint = irwm.open_checkpoint(tiny_path).fingerprint
    for n, person in enumerate(people):
        key = put(vault, person.name, f"{n}" * 8, model=fingerprint)
        assert requests.released(vault, fingerprint, "Labs", people)[0] == people[:n]
        vault.add_release(key, tmp_path / person.name, {"f": "0" * 64}, {})
    with pytest.raises(RecipientListError):
        requests.protect(vault, tiny_path, tmp_path / "copies", recipients=people, **plain)
