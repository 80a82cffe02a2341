"""Addresses of suspects on the page Investigate: refused until an officer names the server on the page Settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.errors import IrwmError
from tests.ui.handlers import Pages, value
from tools.hub import ADDRESS, Hub, put
from ui.components.browsing import BrowsingLimits, PathRefusedError, use_path
from ui.components.header import header_html
from ui.components.model_card import measure
from ui.preferences import Preferences, PreferencesError

HERE = ("127.0.0.1",)


def settled(pages: Pages, purpose: str, text: str) -> tuple[str, Any]:
    """The note below a field, and the path that was taken."""
    (settle,) = {
        block.fn for block in pages.blocks.fns.values() if getattr(block.fn, "__name__", "") == "settle"
        and [each.elem_id for each in block.inputs] == [f"path-{purpose}"]
    }  # fmt: skip
    _, note, chosen, _ = settle(text, pages.request)
    return str(value(note)), chosen


def test_an_address_needs_a_server_of_the_settings(pages: Pages, hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    pages.context.prefer(Preferences())
    note, chosen = settled(pages, "suspect", ADDRESS)
    assert chosen is None
    assert "Settings" in note
    assert hub.requests == []
    pages.context.prefer(Preferences(servers=HERE))
    note, chosen = settled(pages, "suspect", ADDRESS)
    assert "127.0.0.1" in note
    assert Path(chosen, "model.safetensors").exists()
    # An original is marked or compared as a whole.
    assert settled(pages, "original-of", ADDRESS)[1] is None


def test_a_mirrors_folder_is_no_folder_of_models(pages: Pages, hub: Hub, demo_path: Path, tmp_path: Path) -> None:
    """Its files are placeholders, which must not be hashed or marked."""
    put(hub, demo_path)
    pages.context.prefer(Preferences(roots=(str(tmp_path),), servers=HERE))
    _, chosen = settled(pages, "suspect", ADDRESS)
    with pytest.raises(PathRefusedError):
        use_path(chosen, BrowsingLimits.of(pages.context.settings))


@pytest.mark.parametrize("typed", ["http://host", "host:8080", "a b/c", "-x.org", "s3://", "*"])
def test_unusable_names_of_servers_are_refused(typed: str) -> None:
    with pytest.raises(PreferencesError):
        Preferences(servers=(typed,))


def test_servers_are_kept() -> None:
    chosen = Preferences(servers=("huggingface.co", "hf.co", "s3://models", "localhost"))
    assert Preferences.from_dict(chosen.to_dict()) == chosen
    with pytest.raises(IrwmError):
        Preferences.from_dict(chosen.to_dict() | {"servers": "hf.co"})


def test_header_says_whether_servers_may_be_asked(pages: Pages) -> None:
    pages.context.prefer(Preferences())
    assert "Nothing leaves this computer" in header_html(pages.context)
    pages.context.prefer(Preferences(servers=HERE))
    assert "Nothing leaves" not in header_html(pages.context)


def test_card_of_an_address_reads_headers_only(pages: Pages, hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    pages.context.prefer(Preferences(servers=HERE))
    _, chosen = settled(pages, "suspect", ADDRESS)
    before = hub.bytes_sent
    measured = measure(irwm.open_checkpoint(chosen))
    assert measured.fingerprint == ""
    weights = (demo_path / "model.safetensors").stat().st_size
    assert hub.bytes_sent - before < sum(file.stat().st_size for file in demo_path.iterdir()) - weights + (1 << 20)
