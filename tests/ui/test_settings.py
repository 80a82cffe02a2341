from __future__ import annotations

import os
from pathlib import Path

import pytest

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
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    roots = os.pathsep.join((str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "one")))
    settings = read(tmp_path, IRWM_PORT="8123", IRWM_DEVICE="CPU", IRWM_ROOTS=roots)
    assert (settings.port, settings.device) == (8123, "cpu")
    assert settings.roots == (tmp_path / "one", tmp_path / "two")


def test_a_root_that_is_a_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert read(tmp_path, IRWM_ROOTS=str(tmp_path / "link")).roots == (tmp_path / "real",)


@pytest.mark.parametrize("value", ["0", "65536", "-1", "80.5", "http", "7_860", "+80", "٨٠"])
def test_a_bad_port_is_named(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingsError, match="IRWM_PORT") as caught:
        read(tmp_path, IRWM_PORT=value)
    assert caught.value.variable == "IRWM_PORT"
    assert caught.value.advice


def test_a_bad_device_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"IRWM_DEVICE.*auto, cpu, cuda"):
        read(tmp_path, IRWM_DEVICE="tpu")


@pytest.mark.parametrize("value", ["relative/folder", "/no/such/folder", "/etc/passwd", "~no-such-user/x", "/a\0b"])
def test_a_bad_root_is_named(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingsError, match="IRWM_ROOTS"):
        read(tmp_path, IRWM_ROOTS=value)


@pytest.mark.parametrize("address", ["tls://scheduler.example:8786", "tcp://10.0.0.5:8786", "tcp://[::1]:8786"])
def test_a_scheduler_is_an_address(address: str, tmp_path: Path) -> None:
    assert Settings.from_environment({"IRWM_HOME": str(tmp_path / "h"), "IRWM_SCHEDULER": address}).scheduler == address


@pytest.mark.parametrize("address", ["scheduler:8786", "http://x:1", "tcp://x", "tcp://x:port", "tls://a b:1"])
def test_invalid_scheduler_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="IRWM_SCHEDULER is not the address"):
        Settings.from_environment({"IRWM_HOME": str(tmp_path / "h"), "IRWM_SCHEDULER": address})
