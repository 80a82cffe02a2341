from __future__ import annotations

from pathlib import Path

import pytest

from ui.components.browsing import BrowsingLimits, list_folder
from ui.components.path_picker import listing_html, start_folder


@pytest.fixture
def limits(tmp_path: Path) -> BrowsingLimits:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"x")
    (tmp_path / "plain").mkdir()
    return BrowsingLimits((tmp_path,))


def test_model_is_picked_by_its_row_or_opened_as_a_folder(limits: BrowsingLimits, tmp_path: Path) -> None:
    page = listing_html(list_folder(tmp_path, limits), limits, "model")
    assert f'class="entry entry-model" data-act="pick" data-place="{tmp_path}/model"' in page
    assert f'class="inside" data-act="open" data-place="{tmp_path}/model"' in page
    assert f'class="entry entry-folder" data-act="open" data-place="{tmp_path}/plain"' in page


def test_shown_folder_can_be_used_if_valid(limits: BrowsingLimits, tmp_path: Path) -> None:
    def has_button(folder: Path, kind: str) -> bool:
        return "Use this folder" in listing_html(list_folder(folder, limits, kind=kind), limits, kind)

    assert has_button(tmp_path, "folder")
    assert has_button(tmp_path / "model", "model")
    assert not has_button(tmp_path, "model")


def test_names_are_inert(limits: BrowsingLimits, tmp_path: Path) -> None:
    (tmp_path / "<img src=x onerror=alert(1)>").mkdir()
    (tmp_path / "a\"onfocus='x'\n\x1b").mkdir()
    page = listing_html(list_folder(tmp_path, limits), limits, "model")
    assert "<img" not in page
    assert "\x1b[" not in page
    assert "a\\x1b" not in page
    assert 'a"onfocus' not in page


def test_picker_opens_at_the_path_in_the_field(limits: BrowsingLimits, tmp_path: Path) -> None:
    assert start_folder("", limits) == tmp_path
    assert start_folder("/etc", limits) == tmp_path
    assert start_folder(str(tmp_path / "plain"), limits) == tmp_path / "plain"
    assert start_folder(str(tmp_path / "model"), limits) == tmp_path, "next to a chosen model"
    assert start_folder(str(tmp_path / "model" / "model.safetensors"), limits) == tmp_path / "model"
