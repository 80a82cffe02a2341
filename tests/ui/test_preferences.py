from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from storage.encryption import Cost
from ui import preferences
from ui.preferences import FILE_NAME, Preferences, PreferencesError
from ui.sessions import Sessions
from ui.settings import Settings

CHOSEN = Preferences(device="cpu", roots=("/data/models", "/srv/größe"), idle_minutes=5, theme="dark")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def put(home: Path, content: Any) -> Path:
    path = home / FILE_NAME
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environment({"IRWM_HOME": str(home), **environ})


def test_preferences_round_trip(home: Path) -> None:
    preferences.write(home, CHOSEN)
    assert preferences.read(home) == CHOSEN
    assert stat.S_IMODE((home / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [FILE_NAME], "no partial file stays"
    assert json.loads((home / FILE_NAME).read_text("utf-8"))["version"] == 1


def test_unset_preferences_use_defaults(home: Path) -> None:
    assert preferences.read(home) == Preferences("auto", (), 15, "system")
    put(home, {"version": 1, "theme": "dark"})
    assert preferences.read(home) == Preferences(theme="dark"), "a missing name has its default"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"x" * (preferences.MOST_BYTES + 1),
        [],
        {},
        {"version": 2},
        {"version": True},
        {"version": "1"},
        {"version": 1, "passphrase": "x"},
        {"version": 1, "device": "tpu"},
        {"version": 1, "device": ["cpu"]},
        {"version": 1, "theme": None},
        {"version": 1, "idle_minutes": 0},
        {"version": 1, "idle_minutes": 241},
        {"version": 1, "idle_minutes": True},
        {"version": 1, "idle_minutes": 15.0},
        {"version": 1, "idle_minutes": "15"},
        {"version": 1, "roots": "/data"},
        {"version": 1, "roots": ["data"]},
        {"version": 1, "roots": [""]},
        {"version": 1, "roots": [7]},
        {"version": 1, "roots": ["/a\0b"]},
        {"version": 1, "roots": ["/\ud800"]},
        {"version": 1, "roots": ["/" + "a" * 5000]},
        {"version": 1, "roots": [f"/{n}" for n in range(51)]},
    ],
)
def test_unusable_preferences_are_named_and_ignored(home: Path, content: Any) -> None:
    path = put(home, content)
    with pytest.raises(PreferencesError) as caught:
        preferences.read(home)
    assert caught.value.file == str(path)
    assert caught.value.advice
    before = path.read_bytes()
    found = settings(home)
    assert found.preferences == Preferences()
    assert found.note is not None
    assert found.note.file == str(path)
    assert path.read_bytes() == before, "it is left for inspection"


def test_unopenable_preferences_are_named(home: Path) -> None:
    (home / FILE_NAME).mkdir()
    assert settings(home).note is not None
    with pytest.raises(PreferencesError, match="cannot be saved"):
        preferences.write(home, CHOSEN)
    assert [path.name for path in home.iterdir()] == [FILE_NAME]


def test_preferences_apply_without_environment_values(home: Path, tmp_path: Path) -> None:
    preferences.write(home, Preferences(device="cpu", roots=(str(tmp_path), "/not/plugged/in")))
    found = settings(home)
    assert (found.device, found.roots) == ("cpu", (tmp_path, Path("/not/plugged/in")))
    assert found.given == {"IRWM_HOME"}


def test_the_environment_wins(home: Path, tmp_path: Path) -> None:
    preferences.write(home, Preferences(device="cpu", roots=("/elsewhere",)))
    found = settings(home, IRWM_DEVICE="auto", IRWM_ROOTS=str(tmp_path))
    assert (found.device, found.roots) == ("auto", (tmp_path,))
    assert found.given == {"IRWM_HOME", "IRWM_DEVICE", "IRWM_ROOTS"}
    other = found.with_preferences(Preferences(device="cpu", roots=("/elsewhere",), theme="light"))
    assert (other.device, other.roots, other.preferences.theme) == ("auto", (tmp_path,), "light")


def test_removing_folders_restores_the_defaults(home: Path) -> None:
    preferences.write(home, Preferences(roots=("/elsewhere",)))
    found = settings(home)
    assert found.roots == (Path("/elsewhere"),)
    assert found.with_preferences(Preferences()).roots == found.usual_roots
    assert Path.home().resolve() in found.usual_roots


def test_linked_folders_are_resolved_and_link_cycles_are_skipped(home: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    os.symlink(tmp_path / "round", tmp_path / "round")
    found = settings(home).with_preferences(Preferences(roots=(str(tmp_path / "link"), str(tmp_path / "round"))))
    assert found.roots[0] == tmp_path / "real"


def test_idle_time_applies_to_open_and_new_browsers(home: Path) -> None:
    now = [0.0]
    cost = Cost(memory_kib=8, passes=1, lanes=1)
    sessions = Sessions(home, cost=cost, idle_seconds=900, monotonic=lambda: now[0])
    sessions.create("first", "four unrelated plain words")
    sessions.set_idle(60)
    sessions.unlock("second", "four unrelated plain words")
    now[0] = 59
    assert sessions.is_open("first")
    now[0] = 61
    assert not sessions.is_open("first")
    assert not sessions.is_open("second")


def test_longer_idle_time_does_not_reopen_ended_sessions(home: Path) -> None:
    now = [0.0]
    cost = Cost(memory_kib=8, passes=1, lanes=1)
    sessions = Sessions(home, cost=cost, idle_seconds=60, monotonic=lambda: now[0])
    sessions.create("browser", "four unrelated plain words")
    now[0] = 61  # without a request since then
    sessions.set_idle(900)
    assert not sessions.is_open("browser")
