from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ui import preferences
from ui.preferences import FILE_NAME, Preferences, PreferencesError
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
        *(b"", b"{", b"\xff\xfe", b"[" * 100_000, b"x" * (preferences.MOST_BYTES + 1), [], {}),
        *({"version": value} for value in (2, True, "1")),
        *({"version": 1, name: value} for name, value in (("passphrase", "x"), ("device", "tpu"), ("device", ["cpu"]))),
        *({"version": 1, "theme": value} for value in (None, "blue")),
        *({"version": 1, "idle_minutes": value} for value in (0, 241, True, 15.0, "15")),
        *({"version": 1, "roots": value} for value in ("/data", [f"/{n}" for n in range(51)])),
        *({"version": 1, "roots": [root]} for root in ("data", "", 7, "/a\0b", "/\ud800", "/" + "a" * 5000)),
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
    with pytest.raises(PreferencesError):
        preferences.write(home, CHOSEN)
    assert [path.name for path in home.iterdir()] == [FILE_NAME]


def test_preferences_apply_without_environment_values(home: Path, tmp_path: Path) -> None:
    """Links are resolved, also to a folder that is not plugged in; one in a circle is left out."""
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "round").symlink_to("round")
    roots = (str(tmp_path / "link"), "/not/plugged/in", str(tmp_path / "round"))
    preferences.write(home, Preferences(device="cpu", roots=roots))
    found = settings(home)
    assert (found.device, found.roots[:2]) == ("cpu", (tmp_path, Path("/not/plugged/in")))
    assert found.given == {"IRWM_HOME"}
    assert found.with_preferences(Preferences()).roots == found.usual_roots
    assert Path.home().resolve() in found.usual_roots


def test_the_environment_wins(home: Path, tmp_path: Path) -> None:
    preferences.write(home, Preferences(device="cpu", roots=("/elsewhere",)))
    found = settings(home, IRWM_DEVICE="auto", IRWM_ROOTS=str(tmp_path))
    assert (found.device, found.roots) == ("auto", (tmp_path,))
    assert found.given == {"IRWM_HOME", "IRWM_DEVICE", "IRWM_ROOTS"}
    other = found.with_preferences(Preferences(device="cpu", roots=("/elsewhere",), theme="light"))
    assert (other.device, other.roots, other.preferences.theme) == ("auto", (tmp_path,), "light")
