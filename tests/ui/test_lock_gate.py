"""The gate's texts for a browser without the passphrase, and what it gets from any handler of any page."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from gradio.helpers import EventData, special_args

from storage.session import IDLE_SECONDS
from tests.ui.handlers import CHEAP, PASSPHRASE, SESSION, Pages, value
from ui.components import lock_gate
from ui.sessions import Sessions

# What changes the vault, writes a file or starts a job, among others: never silently without effect.
REFUSED = {
    "back_up", "begin_dispute", "begin_item", "change_passphrase", "check_all", "choose", "export", "export_log",
    "go_on", "keep", "make_one", "open_case", "open_result", "pack", "read_json", "rename_case", "rotate", "run_again",
    "settle", "stop", "take", "take_over", "to", "toggle", "to_protect", "write", "write_note",
}  # fmt: skip


def answer(pages: Pages, function: Any, fill: object) -> str:
    """All texts that a handler gives to a page whose fields hold `fill`, or its error."""
    values = [part.value if isinstance(part, gr.State) and part.value is not None else fill for part in function.inputs]
    request = SimpleNamespace(session_hash="tests", request=None, query_params={})
    data = EventData(None, {"record": fill, "index": [0, 0], "value": fill})  # type: ignore[arg-type]
    inputs, *_ = special_args(function.fn, values, request, data)  # type: ignore[arg-type]
    try:
        found = function.fn(*inputs)
        parts = list(found) if hasattr(found, "__next__") else found
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    flat = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))] if isinstance(
        parts, list | tuple) else [parts]  # fmt: skip
    return " ".join(f"{value(each)} {getattr(each, '_constructor_args', '')}" for each in flat)


@pytest.mark.fault(54)
def test_no_handler_tells_or_does_anything_while_the_vault_is_locked(pages: Pages) -> None:
    """Each handler of each page is called with values that could be right."""
    vault, home = pages.vault, pages.context.settings.home
    key = vault.add_key(
        b"k", owner="Sealed Owner", recipient="Sealed Recipient", model_name="sealed", model_fingerprint="ab" * 32,
        family="llama", commitment="cd" * 32, parameters={}, label="Sealed Label",
    )  # fmt: skip
    case = vault.add_case("Sealed Case")
    vault.add_note(case.id, "Sealed note")
    job = pages.jobs.create("verify", "Verify for Sealed Owner", {})
    vault.backup()
    pages.lock()
    before = vault.audit_head, len(pages.context.jobs.recent()), sorted(home.rglob("*")), sorted(pages.root.rglob("*"))
    refused = set()
    for function in [each for each in pages.blocks.fns.values() if each.fn and each.name != "do_lock"]:
        for fill in (None, 0, key.id, case.id, job.id, str(pages.root)):
            told = answer(pages, function, fill)
            for secret in ("Sealed", "cd" * 8, str(home), "config.json"):
                assert secret not in told, (function.name, fill)
            if "locked" in told:
                refused.add(function.name)
    assert refused >= REFUSED
    after = vault.audit_head, len(pages.context.jobs.recent()), sorted(home.rglob("*")), sorted(pages.root.rglob("*"))
    assert after == before
    config = json.dumps(pages.blocks.get_config_file(), default=str)
    assert str(home) not in config
    assert str(pages.root) not in config


@pytest.mark.fault(54)
def test_page_that_only_polls_is_locked_after_a_while(pages: Pages) -> None:
    """Also while every timer of every page asks each minute."""
    now, context = [0.0], pages.context
    context.sessions = Sessions(context.settings.home, cost=CHEAP, monotonic=lambda: now[0])
    context.sessions.unlock(SESSION, PASSPHRASE)
    timers = [each for each in pages.blocks.fns.values() if any(event == "tick" for _, event in each.targets)]
    assert len(timers) > 3
    while now[0] < IDLE_SECONDS:
        assert context.sessions.is_open(SESSION)
        now[0] += 60
        for each in timers:
            answer(pages, each, None)
    assert not pages.call("follow-lock", "click", 1)["desk"].visible
    assert not context.sessions.is_open(SESSION)


def test_tab_follows_a_lock_message_at_once(pages: Pages) -> None:
    pages.lock()
    out = pages.call("follow-lock", "click", 1)
    assert (out["gate-about"].visible, out["gate-again"].visible, out["desk"].visible) == (True, True, False)
    for field in ("passphrase", "first-passphrase"):
        assert pages.find(field).autofocus


def test_gate_shows_no_path(pages: Pages) -> None:
    home = pages.context.settings.home
    vault = home / "vault.sqlite3"
    pages.context.sessions.forget()
    vault.unlink()
    missing = pages.call("unlock-vault", "click", PASSPHRASE, 0)
    vault.mkdir()
    unusable = pages.call("unlock-vault", "click", PASSPHRASE, 0)
    for out, said in ((missing, "no vault"), (unusable, "vault.sqlite3")):
        text = " ".join(str(getattr(each, "value", each)) for each in out.values())
        assert said in text
        assert "notice-fault" in text
        assert str(home.parent) not in text


@pytest.mark.fault(96)
def test_new_passphrase_is_not_rated_if_a_vault_exists(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    rated: list[str] = []
    monkeypatch.setattr(lock_gate, "check_new", lambda first, _: rated.append(first))
    pages.lock()
    out = pages.call("create-vault", "click", "a" * 72, "a" * 72, 0)
    assert any("notice-fault" in str(value(part)) for part in out.values())
    assert rated == []
