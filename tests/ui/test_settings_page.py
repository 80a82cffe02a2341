"""Handlers of the page Settings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import torch

from irwm.errors import IrwmError
from storage import audit
from storage.errors import StorageFullError
from tests.ui.handlers import Pages, told, value
from ui import preferences
from ui.components.browsing import BrowsingLimits, PathRefusedError, use_path
from ui.components.header import device_label, settle_device
from ui.pages.settings import named_roots
from ui.preferences import Preferences, PreferencesError
from ui.settings import Settings


@pytest.fixture
def free(pages: Pages) -> Pages:
    """Pages whose environment sets only the home folder."""
    context = pages.context
    given = frozenset({"IRWM_HOME"})
    context.settings = replace(context.settings, given=given).with_preferences(Preferences(roots=(str(pages.root),)))
    return pages


def save(
    pages: Pages,
    theme: Any = "dark",
    idle: Any = 5,
    device: Any = "cpu",
    roots: Any = "",
    servers: Any = "",
    language: Any = "en",
    backups: Any = "",
) -> dict[str, Any]:
    return pages.call("save-settings", "click", theme, language, idle, device, roots, servers, backups)


def test_saved_settings_apply_at_once_and_persist(free: Pages, tmp_path: Path) -> None:
    other = tmp_path / "other models"
    other.mkdir()
    (free.context.settings.home / preferences.FILE_NAME).write_text("{")  # damaged
    note = Settings.from_environment({"IRWM_HOME": str(free.context.settings.home)}).note
    free.context.settings = replace(free.context.settings, note=note)
    out = save(free, roots=f'{free.root}\n\n  "{other}"  \n{other}\n')
    assert told(out) == []
    assert (note is None, free.context.settings.note, out["settings-note"].visible) == (False, None, False)
    kept = preferences.read(free.context.settings.home)
    assert kept == Preferences("cpu", (str(free.root), str(other)), 5, "dark")
    assert free.context.settings.roots == (free.root, other)
    assert free.context.settings.preferences == kept
    assert free.vault.idle_seconds == 300
    assert "settings changed" in [entry.event for entry in free.vault.audit_log()]


def test_saved_servers_may_be_asked_at_once(free: Pages) -> None:
    out = save(free, servers="HuggingFace.co\nhf.co hf.co")
    assert told(out) == []
    assert free.context.settings.servers == ("huggingface.co", "hf.co")
    assert os.environ["IRWM_SERVERS"] == "huggingface.co hf.co"
    assert told(save(free, servers="https://hf.co")) != []
    assert free.context.settings.servers == ("huggingface.co", "hf.co")
    save(free)
    assert os.environ["IRWM_SERVERS"] == ""


def test_folder_for_backups_is_outside_the_vaults_folder(free: Pages, tmp_path: Path) -> None:
    other, home = tmp_path / "other disk", free.context.settings.home
    other.mkdir()
    (home / "inside").mkdir()
    assert told(save(free, backups=f' "{other}" ')) == []
    assert preferences.read(home).backups == str(other)
    for wrong in (str(home), str(home / "inside"), str(tmp_path / "missing"), "relative", "a\0b"):
        assert told(save(free, backups=wrong)) == ["set-backups-notice"], wrong
    assert preferences.read(home).backups == str(other)
    other.rmdir()  # its disk was unplugged
    assert told(save(free, backups=str(other))) == []
    assert told(save(free)) == []
    assert preferences.read(home).backups == ""


def test_saved_folders_apply_at_once_to_every_picker(free: Pages, tmp_path: Path) -> None:
    other = tmp_path / "other models"
    other.mkdir()
    before = BrowsingLimits.of(free.context.settings)
    with pytest.raises(PathRefusedError):
        use_path(str(other), before, kind="folder")
    free.context.prefer(Preferences(roots=(str(other),)))
    assert use_path(str(other), BrowsingLimits.of(free.context.settings), kind="folder") == other
    out = free.call("browse-suspect", "click", False, "")
    assert "other models" in str(value(out["listing-suspect"]))
    assert str(free.root) not in str(value(out["listing-suspect"])).replace(str(other), "")


def test_settings_from_the_environment_are_read_only(pages: Pages) -> None:
    fields = {each.elem_id: each for each in pages.blocks.blocks.values() if getattr(each, "elem_id", None)}
    assert fields["set-device"].interactive is False
    assert "IRWM_DEVICE" in str(fields["set-device"].info)
    assert fields["set-roots"].interactive is False
    assert "IRWM_ROOTS" in str(fields["set-roots"].info)
    save(pages, device="cuda", roots="/etc")
    kept = preferences.read(pages.context.settings.home)
    assert (kept.device, kept.roots) == ("auto", ())
    assert pages.context.settings.roots == (pages.root,)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "wrong",
    [*({"idle": idle} for idle in (0, 241, 2.5, None, float("nan"), float("inf"), True, "15")), {"theme": "<script>"}],
)
def test_a_wrong_value_is_refused_at_its_field_and_nothing_is_kept(pages: Pages, wrong: dict[str, Any]) -> None:
    out = save(pages, **wrong)
    assert told(out) == ["set-idle-notice" if "idle" in wrong else "settings-notice"]
    assert out["settings-saved"] == "", "an earlier success is not shown next to the error"
    assert preferences.read(pages.context.settings.home) == Preferences()
    assert pages.vault.idle_seconds == 900


def test_no_number_field_of_any_page_rounds_what_was_typed(pages: Pages) -> None:
    """A field that rounds makes 2 from 1.5 before the page can refuse it."""
    fields = [each for each in pages.blocks.blocks.values() if isinstance(each, gr.Number)]
    assert len(fields) > 10
    assert [each.label for each in fields if each.preprocess(1.5) != 1.5] == []


def test_only_folders_of_models_are_taken_and_each_once(free: Pages, tmp_path: Path) -> None:
    """Neither the root of all files nor a virtual file system, also if it was set before."""
    typed = f'{tmp_path}\n\n "{tmp_path}" \n/gone/before'
    assert named_roots(typed, ("/gone/before",)) == (str(tmp_path), "/gone/before")
    (tmp_path / "top").symlink_to("/")
    unusable = ("models", "/no/such/folder", "/etc/passwd", "~no-such-user/x", "/a\0b")
    too_broad = ("/", "//", "/usr/..", "/proc", "/proc/self", "/sys/", "/dev/shm", str(tmp_path / "top"))
    for line, known in (*((each, ()) for each in (*unusable, *too_broad)), *((each, (each,)) for each in too_broad)):
        with pytest.raises(PreferencesError):
            named_roots(line, known)
    before = free.context.settings
    assert told(save(free, roots=f"{free.root}\n/")) == ["set-roots-notice"]
    assert free.context.settings == before
    assert not (before.home / preferences.FILE_NAME).exists()


def test_change_that_cannot_be_logged_or_saved_has_no_effect(
    free: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other models"
    other.mkdir()

    def full(*_: Any, **__: Any) -> None:
        raise StorageFullError("the disk of the vault is full")

    before = free.context.settings
    with monkeypatch.context() as patch:
        patch.setattr(audit, "append", full)
        out = save(free, roots=str(other))
    assert told(out) == ["settings-notice"]
    assert free.context.settings == before
    assert not (before.home / preferences.FILE_NAME).exists()
    assert free.vault.idle_seconds == 900
    (before.home / preferences.FILE_NAME).mkdir()
    assert told(save(free)) == ["settings-notice"]
    assert "settings changed" not in [entry.event for entry in free.vault.audit_log()]


def test_missing_gpu_is_refused_or_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    preferred = Settings.from_environment({"IRWM_HOME": str(tmp_path / "home")})
    preferred = preferred.with_preferences(Preferences(device="cuda"))
    settled, label = settle_device(preferred)
    assert (settled.device, label) == ("auto", device_label("auto"))
    assert "GPU" in str(settled.note)
    asked = Settings.from_environment({"IRWM_HOME": str(tmp_path / "home"), "IRWM_DEVICE": "cuda"})
    with pytest.raises(IrwmError):
        settle_device(asked)
