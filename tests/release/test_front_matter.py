"""The base model in a release's card: added, kept, and all other bytes unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from irwm.checkpoint import open_checkpoint
from irwm.errors import CorruptCheckpointError, ParameterError
from irwm.release import publish, verify_manifest
from irwm.release.front_matter import front_matter, rewrites_of, with_base_model

NAME = "example-labs/base"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# A model\n", "---\nbase_model: example-labs/base\n---\n\n# A model\n"),
        ("", "---\nbase_model: example-labs/base\n---\n\n"),
        ("---\nlicense: mit\n---\nx", "---\nbase_model: example-labs/base\nlicense: mit\n---\nx"),
        ("---\r\na: 1\r\n---\r\nx", "---\r\nbase_model: example-labs/base\r\na: 1\r\n---\r\nx"),
        ("---\nbase_model:\na: 1\n---\n", "---\nbase_model: example-labs/base\na: 1\n---\n"),
        ("---\n---\nx", "---\nbase_model: example-labs/base\n---\nx"),
        ("\ufeff# A\n", "\ufeff---\nbase_model: example-labs/base\n---\n\n# A\n"),
        ("---\nbase_model: org/other\n---\n", "---\nbase_model: org/other\n---\n"),
        ("---\nbase_model:\n- a\n- b\n---\n", "---\nbase_model:\n- a\n- b\n---\n"),
        ("\n---\nlicense: mit\n---\nx", "\n---\nbase_model: example-labs/base\nlicense: mit\n---\nx"),
        ("a\n---\nb: 1\n---\n", "---\nbase_model: example-labs/base\n---\n\na\n---\nb: 1\n---\n"),
    ],
)
def test_only_the_line_of_the_base_model_is_added(tmp_path: Path, before: str, after: str) -> None:
    card = tmp_path / "README.md"
    card.write_bytes(before.encode())
    assert with_base_model(card, NAME).decode() == after
    card.write_bytes(after.encode())
    assert front_matter(card)["base_model"] in (NAME, "org/other", ["a", "b"])
    assert with_base_model(card, NAME).decode() == after


@pytest.mark.parametrize("name", ["yes", "a: b", "#x", "1.5", "ä/\u2192", "'", "- x"])
def test_any_name_is_read_back(tmp_path: Path, name: str) -> None:
    card = tmp_path / "README.md"
    card.write_text("x")
    card.write_bytes(with_base_model(card, name))
    assert front_matter(card) == {"base_model": name}


def test_card_of_a_release_names_its_base_model(folder: Path, tmp_path: Path) -> None:
    model = open_checkpoint(folder)
    released = publish(model, tmp_path / "out", {}, rewrites=rewrites_of(model, NAME))
    assert front_matter(released.path / "README.md")["base_model"] == NAME
    assert (released.path / "README.md").read_bytes().endswith((folder / "README.md").read_bytes())
    assert verify_manifest(released.path).ok
    assert "README.md" not in released.shared
    assert released.bytes_written == sum(file.stat().st_size for file in released.path.iterdir())


def test_card_is_not_cloned_from_a_copy_without_the_name(folder: Path, tmp_path: Path) -> None:
    model = open_checkpoint(folder)
    first = publish(model, tmp_path / "first", {})
    second = publish(model, tmp_path / "second", {}, shared=first.shared, rewrites=rewrites_of(model, NAME))
    assert front_matter(second.path / "README.md")["base_model"] == NAME


def test_model_without_a_card_has_no_place_for_the_name(folder: Path) -> None:
    (folder / "README.md").unlink()
    model = open_checkpoint(folder)
    assert rewrites_of(model, "") == {}
    with pytest.raises(ParameterError, match="no model card"):
        rewrites_of(model, NAME)


@pytest.mark.parametrize("name", ["a\nb", " a", "x" * 301])
def test_unusable_names_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(ParameterError, match="not the name of a base model"):
        rewrites_of(open_checkpoint(folder), name)


@pytest.mark.parametrize(
    "lines",
    [
        "  license: mit",
        "{license: mit}",
        "base_model:\n  null",
        "a: 1\nbase_model:\n  null",
        "base_model: [\n]",
        '"base_model":',
        "base_model:\n- \nb: 1",
        "!!bool foo",
        "a: !!timestamp foo",
    ],
)
def test_card_that_would_lose_a_value_is_refused(tmp_path: Path, lines: str) -> None:
    card = tmp_path / "README.md"
    card.write_text(f"---\n{lines}\n---\n")
    with pytest.raises(CorruptCheckpointError, match="front matter"):
        with_base_model(card, NAME)


@pytest.mark.parametrize("lines", ["a: [", "- x", "text", "a: 2026-99-99", "!!python/object:os.system {}"])
def test_front_matter_that_is_no_mapping_is_refused(folder: Path, lines: str) -> None:
    (folder / "README.md").write_text(f"---\n{lines}\n---\n")
    with pytest.raises(CorruptCheckpointError, match="front matter"):
        rewrites_of(open_checkpoint(folder), NAME)
