"""The gate's texts for a browser without the passphrase."""

from __future__ import annotations

from tests.ui.handlers import PASSPHRASE, Pages


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
