"""The gate's texts for a browser without the passphrase."""

from __future__ import annotations

import pytest

from tests.ui.handlers import PASSPHRASE, Pages, value
from ui.components import lock_gate


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
        assert str(home) not in text
        assert str(home.parent) not in text


@pytest.mark.fault(96)
def test_new_passphrase_is_not_rated_if_a_vault_exists(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    rated: list[str] = []
    monkeypatch.setattr(lock_gate, "check_new", lambda first, _: rated.append(first))
    pages.lock()
    out = pages.call("create-vault", "click", "a" * 72, "a" * 72, 0)
    assert any("There is a vault here already" in str(value(part)) for part in out.values())
    assert rated == []
