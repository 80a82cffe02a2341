from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ui import server
from ui.settings import Settings, SettingsError


def read(tmp_path: Path, **values: str) -> Settings:
    return Settings.from_environment({"IRWM_HOME": str(tmp_path / "home"), **values})


def test_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert (settings.port, settings.device) == (7860, "auto")
    assert Path.home().resolve() in settings.roots
    assert Path.cwd().resolve() in settings.roots
    assert settings.home == tmp_path / "home"
    assert settings.home.stat().st_mode & 0o077 == 0


def test_empty_values_count_as_unset(tmp_path: Path) -> None:
    assert read(tmp_path, IRWM_PORT=" ", IRWM_DEVICE="", IRWM_ROOTS="") == read(tmp_path)


def test_settings_read_the_environment(tmp_path: Path) -> None:
    """A root that is a link is resolved, and each root is taken once."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("one")
    roots = os.pathsep.join(str(tmp_path / name) for name in ("link", "two", "one"))
    settings = read(tmp_path, IRWM_PORT="8123", IRWM_DEVICE="CPU", IRWM_ROOTS=roots)
    assert (settings.port, settings.device) == (8123, "cpu")
    assert settings.roots == (tmp_path / "one", tmp_path / "two")


BAD = {
    "IRWM_PORT": ["0", "65536", "-1", "80.5", "http", "7_860", "+80", "٨٠"],
    "IRWM_DEVICE": ["tpu"],
    "IRWM_ROOTS": ["relative/folder", "/no/such/folder", "/etc/passwd", "~no-such-user/x", "/a\0b"],
    "IRWM_SCHEDULER": ["scheduler:8786", "http://x:1", "tcp://x", "tcp://x:port", "tls://a b:1"],
}


@pytest.mark.parametrize(("variable", "value"), [(name, each) for name, values in BAD.items() for each in values])
def test_a_bad_value_is_refused_with_its_variable(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, **{variable: value})
    assert caught.value.variable == variable
    assert caught.value.advice


@pytest.mark.parametrize("address", ["tls://scheduler.example:8786", "tcp://10.0.0.5:8786", "tcp://[::1]:8786"])
def test_a_scheduler_is_an_address(address: str, tmp_path: Path) -> None:
    assert read(tmp_path, IRWM_SCHEDULER=address).scheduler == address


@pytest.mark.parametrize(("value", "opens"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_browser_opens_if_the_environment_says_so(tmp_path: Path, value: str, opens: bool) -> None:
    assert read(tmp_path, IRWM_BROWSER=value).open_browser is opens


def test_browser_does_not_open_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(server.webbrowser, "open", lambda url: not opened.append(url))
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not server.open_in_browser("http://127.0.0.1:7860/")
    monkeypatch.setenv("DISPLAY", ":0")
    assert server.open_in_browser("http://127.0.0.1:7861/")
    assert opened == ["http://127.0.0.1:7861/"]
