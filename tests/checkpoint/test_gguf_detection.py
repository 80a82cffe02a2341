"""A marked model that was converted to GGUF: the mark and the model's origin are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

import irwm
from tests.checkpoint.gguf_builders import convert
from tests.checkpoint.test_gguf_tokens import in_order
from tests.conftest import Marked


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["Q4_0", "F16"])
def test_the_mark_is_found_in_a_gguf_file(marked, demo_path: Path, tmp_path: Path, kind: str) -> None:
    model, key, release = marked
    tokens, types = in_order(release)
    path = convert(release, tmp_path / "stolen.gguf", gguf.GGMLQuantizationType[kind], tokens=tokens, types=types)
    found = irwm.detect(irwm.open_checkpoint(path), model, key)
    assert found.verdict == "found"
    assert found.log10_p < -40
    assert (found.ranks < 0.2).sum() >= 45
    assert found.lineage.status == "derived"
    assert found.alignment.aligned
    path = convert(demo_path, tmp_path / "original.gguf", gguf.GGMLQuantizationType[kind])
    found = irwm.detect(irwm.open_checkpoint(path), model, key)
    assert (found.verdict, found.lineage.status) == ("not found", "derived")


@pytest.mark.slow
def test_mark_is_found_in_gguf_of_unknown_architecture(marked, tmp_path: Path) -> None:
    """By its embedding alone, like any model with renamed tensors."""
    model, key, release = marked
    tokens, types = in_order(release)
    path = convert(release, tmp_path / "stolen.gguf", gguf.GGMLQuantizationType.Q8_0, tokens=tokens, types=types)
    content = path.read_bytes().replace(b"llama", b"lamma")
    path.write_bytes(content)
    suspect = irwm.open_checkpoint(path)
    assert suspect.family == "unknown"
    assert irwm.detect(suspect, model, key).verdict == "found"


@pytest.mark.slow
def test_the_mark_is_found_in_a_quantised_bert(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    model, key, release = release_of("minilm")
    path = convert(release, tmp_path / "stolen.gguf", gguf.GGMLQuantizationType.Q5_1)
    found = irwm.detect(irwm.open_checkpoint(path), model, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")
