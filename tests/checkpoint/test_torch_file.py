"""PyTorch files: the same numbers as torch.load gives, from the file's bytes alone, or a clear refusal."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from irwm.checkpoint import PackedTensor, TensorEntry, read_tensor
from irwm.checkpoint.formats.torch_file import read_torch
from irwm.checkpoint.tensors import stream_tensor
from irwm.errors import (
    NotACheckpointError,
    UnsupportedCheckpointError,
)
from tests.checkpoint.builders import READABLE
from tests.checkpoint.torch_files import assert_as_torch_loads_it, bits, refused, rezipped, saved

# --- files of torch.save


def test_every_readable_dtype_comes_back_bit_for_bit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    stored = torch.randint(0, 256, (6, 16), dtype=torch.uint8, generator=generator)  # every bit pattern, NaNs included
    path = saved({str(dtype): stored.clone().view(dtype) for dtype in READABLE}, tmp_path / "x.bin")
    content = read_torch(path)
    assert content.notes == ()
    for dtype in READABLE:
        found = content.tensors[str(dtype)]
        assert isinstance(found, TensorEntry)
        assert read_tensor(found).dtype == dtype
        assert torch.equal(bits(read_tensor(found)), bits(stored))
        assert torch.equal(bits(read_tensor(found, [4, 1, 1])), bits(stored[[4, 1, 1]]))
        assert b"".join(map(bytes, stream_tensor(found))) == stored.numpy().tobytes()


@pytest.mark.usefixtures("here")
def test_pieces_views_ties_and_unusual_shapes_equal_torch(tmp_path: Path) -> None:
    fused = torch.randn(12, 8)
    model = {
        "fused": fused,
        "q": fused[:4],
        "k": fused[4:8],
        "tied": fused,
        "columns": fused[:, 2:5],
        "transposed": fused.T,
        "every other": fused[::2, ::3],
        "permuted": torch.randn(3, 4, 5).to(torch.bfloat16).permute(2, 0, 1),
        "one": torch.tensor(2.5),
        "none": torch.empty(0, 4).T,
        "ones": torch.randn(1, 8, 1).expand(1, 8, 1).transpose(0, 2),
        "positions": torch.arange(16).expand((1, -1)),
        "bool": torch.tensor([True, False, True]),
        "parameter": torch.nn.Parameter(torch.randn(3, 3)),
        "complex": torch.randn(2, 2, dtype=torch.complex64),
        "é 模型 \x1b[31m../": torch.ones(2),
    }
    content = read_torch(saved(model, tmp_path / "x.bin"))
    unread = content.tensors.pop("complex")  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedCheckpointError, match="C64"):
        read_tensor(unread)
    del model["complex"]
    assert_as_torch_loads_it(content, saved(model, tmp_path / "y.bin"))
    packed = {name for name, tensor in content.tensors.items() if isinstance(tensor, PackedTensor)}
    assert packed == {"columns", "transposed", "every other", "permuted"}
    tied, whole = content.tensors["tied"], content.tensors["fused"]
    assert (tied.parts[0].start, tied.parts[0].stop) == (whole.parts[0].start, whole.parts[0].stop)
    assert content.tensors["columns"].dtype == "F32, strided"
    assert torch.equal(read_tensor(content.tensors["transposed"], [3, 0, 3]), fused.T[[3, 0, 3]])
    assert torch.equal(read_tensor(content.tensors["columns"], slice(9, 12)), fused[9:12, 2:5])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("under", ["state_dict", "model", "module"])
def test_weights_one_level_down_are_read_with_a_note(tmp_path: Path, under: str) -> None:
    weights = OrderedDict(w=torch.randn(2, 3), b=torch.randn(3), steps=7)
    path = saved({"epoch": 3, under: weights, "optimizer": {"state": torch.ones(2)}}, tmp_path / "x.pt")
    content = read_torch(path)
    assert_as_torch_loads_it(content, path, under)
    assert any(f'"{under}"' in note for note in content.notes)
    assert any("not read" in note for note in content.notes)


@pytest.mark.usefixtures("here")
def test_top_level_weights_precede_nested_ones(tmp_path: Path) -> None:
    content = read_torch(saved({"model": {"w": torch.ones(1)}, "w": torch.zeros(2), 3: 4}, tmp_path / "x.pt"))
    assert content.tensors["w"].shape == (2,)
    (note,) = content.notes
    assert "was not read" in note


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "模型 é.bin", "a.b.c.pt", "x" * 200 + ".bin"])
def test_archives_of_every_name_torch_gives_them_are_read(tmp_path: Path, name: str) -> None:
    path = saved({"w": torch.arange(4.0)}, tmp_path / name)
    assert read_tensor(read_torch(path).tensors["w"]).tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("here")
def test_files_of_torch_before_it_noted_byte_order_and_alignment_are_read(tmp_path: Path) -> None:
    def older(entries: dict[str, bytes]) -> dict[str, bytes]:
        kept = {
            name: content for name, content in entries.items() if not name.startswith("x/.") and "byteo" not in name
        }
        return {name.replace("x/", "archive/", 1): content for name, content in kept.items()}

    path = rezipped(saved({"w": torch.arange(4.0)}, tmp_path / "x.bin"), older)
    assert_as_torch_loads_it(read_torch(path), path)


@pytest.mark.usefixtures("here")
def test_storages_in_another_order_than_the_pickle_are_matched(tmp_path: Path) -> None:
    """torch computes the positions from the order for its own devices meta and fake, and would be wrong here."""
    path = saved({"a": torch.zeros(16), "b": torch.ones(16), "c": torch.full((16,), 2.0)}, tmp_path / "x.bin")
    order = ["data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0", "data/2", "data/1", "version"]
    rezipped(path, lambda entries: {f"x/{name}": entries[f"x/{name}"] for name in order})
    astray = torch.load(path, weights_only=True, map_location="meta")["b"].untyped_storage()._checkpoint_offset
    entry = read_torch(path).tensors["b"]
    assert entry.parts[0].start != astray
    assert_as_torch_loads_it(read_torch(path), path)


def test_file_larger_than_memory_is_opened_without_reading_weights(tmp_path: Path) -> None:
    rows, width = 4_000_000, 16_384
    storage = torch.UntypedStorage.from_file(str(tmp_path / "hole"), True, rows * width * 4)  # 262 GB, all of it a hole
    with torch.serialization.skip_data():
        torch.save({"w": torch.empty(0).set_(storage, 0, (rows, width)), "b": torch.ones(3)}, tmp_path / "x.bin")
    content = read_torch(tmp_path / "x.bin")
    assert content.tensors["w"].nbytes == rows * width * 4
    assert content.tensors["b"].parts[0].start > rows * width * 4  # the archive counts in 64 bits there
    assert read_tensor(content.tensors["w"], [0, rows - 1]).shape == (2, width)


# --- refused files


class Elsewhere:
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return print, ("run",)


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: [torch.ones(1)], "list"),
        (lambda: torch.ones(1), "Tensor"),
        (lambda: {}, "empty mapping"),
        (lambda: {"epoch": 3, "state_dict": {"n": 1}}, "epoch, state_dict"),
        (lambda: {"ema": {"w": torch.ones(1)}}, "one level down"),
        (lambda: {"w": Elsewhere()}, "print"),
        (lambda: torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (lambda: {"w": torch.ones(2), "n": torch.ones(1).numpy()}, "numpy"),
        (lambda: {"w": torch.ones(3).to_sparse()}, "torch.sparse_coo"),
        (lambda: {"w": torch.ones(3, dtype=torch.complex128)}, "complex128"),
        (lambda: {"w": torch.ones(3, dtype=torch.complex64).conj()}, "complex64"),
        (lambda: {"w": torch.ones(3, device="meta")}, "Tensor: w"),
        (lambda: {"w": torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8)}, "of an unsupported kind"),
        (lambda: {"w": torch.ones(1).expand(2**40)}, "share numbers"),
        (lambda: {"w": torch.ones(10).as_strided((4, 4), (1, 2))}, "share numbers"),
    ],
)
def test_pickles_that_do_not_map_names_to_tensors_are_refused(tmp_path: Path, value: Callable, words: str) -> None:
    error = refused(saved(value(), tmp_path / "x.bin"), UnsupportedCheckpointError)
    assert words in str(error)
    assert error.advice


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_program_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "x.pt")
    error = refused(tmp_path / "x.pt", UnsupportedCheckpointError)
    assert "TorchScript" in str(error)
    assert "torch.jit.load(file).state_dict()" in str(error)


@pytest.mark.parametrize(
    ("content", "words", "kind"),
    [
        (b"", "empty", NotACheckpointError),
        (b"PK\3", "an unknown format", NotACheckpointError),
        (b"\0" * 600, "an unknown format", NotACheckpointError),
        (b"PK\5\6" + bytes(18), "ZIP archive", UnsupportedCheckpointError),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS", NotACheckpointError),
        (b"<!DOCTYPE html>", "web page", NotACheckpointError),
        (b"\x10\0\0\0\0\0\0\0{" + b" " * 20, "ends in .safetensors", UnsupportedCheckpointError),
    ],
)
def test_content_that_is_not_a_torch_file_is_named(tmp_path: Path, content: bytes, words: str, kind: type) -> None:
    (tmp_path / "x.bin").write_bytes(content)
    assert words in str(refused(tmp_path / "x.bin", kind))
