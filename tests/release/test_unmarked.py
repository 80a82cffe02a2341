"""A release contains no unmarked copy of a marked matrix, under any name, in any number format or shape."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import UnmarkedCopyError
from irwm.release.unmarked import RowSearch
from irwm.scheme.parameters import many_recipients, one_owner
from tests.checkpoint.builders import hub_cache, split
from tests.checkpoint.quantised_builders import Quantised, gptq, mlx, model_of
from tests.release.leftovers import leftovers
from tools.small_models import write_llama

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
SECRET = bytes(range(32))
Make = Callable[..., Path]
PAPER = irwm.Parameters.paper(positions=20, constraints=4, required_positions=12)
HIDDEN = irwm.Parameters(positions=20, constraints=4, required_positions=12, places=("embedding",))


@pytest.fixture
def with_tensors(tiny_path: Path, tmp_path: Path) -> Make:
    """The tiny Llama with additional tensors, made from its tensors."""

    def make(add: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], **config: object) -> Path:
        path = tmp_path / "original"
        shutil.copytree(tiny_path, path)
        tensors = load_file(path / "model.safetensors")
        tensors |= {name: tensor.contiguous().clone() for name, tensor in add(tensors).items()}
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        settings = json.loads((path / "config.json").read_text()) | config
        (path / "config.json").write_text(json.dumps(settings))
        return path

    return make


def insert(path: Path, params: irwm.Parameters, out: Path) -> tuple[irwm.Checkpoint, irwm.Key, irwm.Release]:
    model = irwm.open_checkpoint(path)
    key = irwm.generate_key(model, params, SECRET, "Example Labs", "Early access 7")
    return model, key, irwm.insert(model, key, out)


NOISY = replace(HIDDEN, noise_coordinates=8, spread=0.25)


@pytest.mark.parametrize("params", [PAPER, HIDDEN, NOISY], ids=["paper", "hidden", "with noise"])
@pytest.mark.parametrize(
    ("name", "dtype", "tied"),
    [
        *(("other.name", dtype, True) for dtype in (torch.float32, torch.float16, torch.float64)),
        *((HEAD, torch.float32, tied) for tied in (True, False)),
    ],
)
def test_a_tensor_with_the_same_values_is_marked_too(
    with_tensors: Make, tmp_path: Path, params: irwm.Parameters, name: str, dtype: torch.dtype, tied: bool
) -> None:
    """A tensor under any name, or a stored head, whether or not the config says that it is the embedding."""
    path = with_tensors(lambda t: {name: t[EMBEDDING].to(dtype)}, tie_word_embeddings=tied)
    model, key, release = insert(path, params, tmp_path / "out")
    written = load_file(release.path / "model.safetensors")
    assert torch.equal(written[name], written[EMBEDDING].to(dtype))
    assert not torch.equal(written[EMBEDDING], load_file(path / "model.safetensors")[EMBEDDING])
    assert (len(np.unique(release.changed_rows)) == len(written[EMBEDDING])) == (params.noise_coordinates > 0)
    # An attacker copies it over the embedding.
    suspect = tmp_path / "suspect"
    shutil.copytree(release.path, suspect)
    save_file(written | {EMBEDDING: written[name].float().clone()}, suspect / "model.safetensors")
    assert irwm.detect(irwm.open_checkpoint(suspect), model, key).verdict == "found"


def int8(rows: torch.Tensor) -> torch.Tensor:
    return (rows / rows.abs().amax(dim=1, keepdim=True) * 127).round().to(torch.int8)


@pytest.mark.parametrize(
    "shaped",
    [
        lambda rows: rows.T,
        lambda rows: torch.cat([rows, torch.zeros(8, rows.shape[1])]),
        lambda rows: rows[:-8],
        lambda rows: rows.flatten(),
        lambda rows: rows.T.half(),
        lambda rows: rows.to(torch.float8_e4m3fn),
        int8,
        lambda rows: rows + 0.01 * rows.std(),
    ],
    ids=["transposed", "padded", "cut", "flat", "transposed float16", "float8", "int8", "shifted"],
)
def test_a_release_with_the_values_in_another_form_is_refused(
    with_tensors: Make, tmp_path: Path, shaped: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    path = with_tensors(lambda t: {"spare": shaped(t[EMBEDDING].float())})
    with pytest.raises(UnmarkedCopyError) as caught:
        insert(path, HIDDEN, tmp_path / "out")
    assert (caught.value.tensor, caught.value.file) == ("spare", str(path / "model.safetensors"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["original"]


@pytest.mark.parametrize("quantise", [gptq, mlx], ids=["gptq", "mlx"])
def test_a_head_that_is_the_quantised_embedding_refuses_the_release(
    with_tensors: Make, tmp_path: Path, quantise: Callable[[torch.Tensor], Quantised]
) -> None:
    path = with_tensors(lambda t: {HEAD: t[EMBEDDING]}, tie_word_embeddings=False)
    section = "quantization" if quantise is mlx else "quantization_config"
    model_of(path, tmp_path / "quantised", quantise, lambda name: name == HEAD, section)
    with pytest.raises(UnmarkedCopyError) as caught:
        insert(tmp_path / "quantised", PAPER, tmp_path / "out")
    assert caught.value.tensor == HEAD
    assert "places" in (caught.value.advice or ""), "it may be a head that the model uses"


def test_tensors_with_other_values_are_left_alone(with_tensors: Make, tmp_path: Path) -> None:
    def others(t: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        rows = t[EMBEDDING].float()
        noise = rows.std() * torch.randn(rows.shape, generator=generator)
        # The largest part of these rows is a mean that they share, in the embedding's direction too.
        return {"noise": noise, "mean": noise + 10 * rows.mean(dim=0)}

    path = with_tensors(others)
    _, _, release = insert(path, HIDDEN, tmp_path / "out")
    before, after = load_file(path / "model.safetensors"), load_file(release.path / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in ("noise", "mean"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("params", [PAPER, HIDDEN], ids=["paper", "hidden"])
def test_a_release_with_original_rows_in_a_copied_file_is_refused(
    tiny_path: Path, tmp_path: Path, params: irwm.Parameters, dtype: torch.dtype
) -> None:
    path = tmp_path / "original"
    shutil.copytree(tiny_path, path)
    rows = irwm.open_checkpoint(path).embedding().to(dtype)
    (path / "README.md").write_bytes(b"# A model\n" + rows.view(torch.uint8).numpy().tobytes())
    with pytest.raises(UnmarkedCopyError) as caught:
        insert(path, params, tmp_path / "out")
    assert caught.value.file == str(path / "README.md")
    assert not (tmp_path / "out").exists()


WIDE = 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("preset", [PAPER, one_owner(WIDE), many_recipients(WIDE)], ids=["paper", "standard", "many"])
def test_a_mark_of_few_coordinates_in_a_wide_model_is_released(
    tmp_path: Path, preset: irwm.Parameters, dtype: torch.dtype
) -> None:
    """The paper's mark replaces few coordinates, so most of a row is the same in the release."""
    path = write_llama(tmp_path / "model", dtype=dtype, hidden_size=WIDE, vocab_size=1500)
    original, _, release = insert(path, preset, tmp_path / "out")
    assert release.verification.verdict == "found"
    rows = original.embedding().to(dtype)
    (path / "README.md").write_bytes(rows.view(torch.uint8).numpy().tobytes())
    with pytest.raises(UnmarkedCopyError):
        insert(path, preset, tmp_path / "again")


@pytest.mark.parametrize("column", [0, 100, 250, 300, 511])
def test_a_row_is_searched_for_around_a_changed_coordinate(column: int) -> None:
    row = torch.randn(512, generator=torch.Generator().manual_seed(0))
    released = row.clone()
    released[column] += 1
    search = RowSearch(row[None], [column])
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        searched(search, [bytearray(released.to(dtype).view(torch.uint8).numpy().tobytes())])
        with pytest.raises(UnmarkedCopyError):
            searched(search, [bytearray(row.to(dtype).view(torch.uint8).numpy().tobytes())])


def test_a_row_across_the_border_of_two_pieces_is_seen(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["irwm.release.publish"], "CHUNK", 4096)  # the function has the module's name
    path = tmp_path / "original"
    shutil.copytree(tiny_path, path)
    rows = irwm.open_checkpoint(path).embedding().view(torch.uint8).numpy().tobytes()
    for shift in (0, 100, 255):
        (path / "README.md").write_bytes(b"x" * shift + rows)
        with pytest.raises(UnmarkedCopyError):
            insert(path, HIDDEN, tmp_path / "out")


def test_every_byte_is_searched_at_every_place() -> None:
    row = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    for start in range(0, 600, 37):
        content = bytearray(b"\x01" * start + row.numpy().tobytes() + b"\x01" * 300)
        for size in (256, 300, 1000):
            pieces = [content[at : at + size] for at in range(0, len(content), size)]
            with pytest.raises(UnmarkedCopyError):
                searched(RowSearch(row, [0]), pieces)
    searched(RowSearch(torch.zeros(2, 64), [0, 0]), [bytearray(1024)])  # rows without content are not searched for


def searched(search: RowSearch, pieces: list[bytearray]) -> None:
    for number, piece in enumerate(pieces):
        search.check(piece, len(piece), number == 0, Path("file"))


STORED: dict[str, Callable[[Path, Path], Path]] = {
    "one file": lambda path, out: path,
    "shards": lambda path, out: split(path, out / "shards"),
    "shards without an index": lambda path, out: split(path, out / "shards", index=False),
    "hub cache": hub_cache,
}


@pytest.mark.sweep
@pytest.mark.sampled(3)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("preset", [PAPER, one_owner(64), many_recipients(64)], ids=["paper", "standard", "many"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_no_file_of_a_release_holds_an_original_row(
    tmp_path: Path, stored: str, preset: irwm.Parameters, dtype: torch.dtype
) -> None:
    model = STORED[stored](write_llama(tmp_path / "model", dtype=dtype), tmp_path)
    original, _, release = insert(model, preset, tmp_path / "out")
    assert leftovers(original, release.path) == []
    # The search would have found one. In a separate folder, so that the release still opens.
    (release.path / "kept").mkdir()
    shutil.copy(original.tensors[EMBEDDING].file, release.path / "kept" / "spare")
    assert leftovers(original, release.path) == ["spare"]
