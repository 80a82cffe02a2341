"""PyTorch files: the same numbers as torch.load gives, from the file's bytes alone, or a clear refusal."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from irwm.checkpoint import PackedTensor, TensorEntry, read_tensor
from irwm.checkpoint.formats.torch_file import read_torch
from irwm.checkpoint.tensors import stream_tensor
from irwm.errors import UnsupportedCheckpointError
from tests.checkpoint.builders import READABLE, refused
from tests.checkpoint.torch_files import Call, assert_as_torch_loads_it, bits, rezipped, saved


def test_every_readable_dtype_comes_back_bit_for_bit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    stored = torch.randint(0, 256, (6, 16), dtype=torch.uint8, generator=generator)  # every bit pattern, NaNs included
    content = read_torch(saved({str(dtype): stored.clone().view(dtype) for dtype in READABLE}, tmp_path / "x.bin"))
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
    views = {"tied": fused, "q": fused[:4], "k": fused[4:8]}
    strided = {
        "columns": fused[:, 2:5],
        "transposed": fused.T,
        "every other": fused[::2, ::3],
        "permuted": torch.randn(3, 4, 5).to(torch.bfloat16).permute(2, 0, 1),
    }
    others = {
        "one": torch.tensor(2.5),
        "none": torch.empty(0, 4).T,
        "ones": torch.randn(1, 8, 1).expand(1, 8, 1).transpose(0, 2),
        "positions": torch.arange(16).expand((1, -1)),
        "bool": torch.tensor([True, False, True]),
        "parameter": torch.nn.Parameter(torch.randn(3, 3)),
        "é 模型 \x1b[31m../": torch.ones(2),
    }
    model = {"fused": fused, **views, **strided, **others}
    content = read_torch(saved({**model, "complex": torch.randn(2, 2, dtype=torch.complex64)}, tmp_path / "x.bin"))
    with pytest.raises(UnsupportedCheckpointError) as caught:
        read_tensor(content.tensors.pop("complex"))  # type: ignore[attr-defined]
    assert caught.value.tensor == "complex"
    assert_as_torch_loads_it(content, saved(model, tmp_path / "y.bin"))
    assert {name for name, tensor in content.tensors.items() if isinstance(tensor, PackedTensor)} == strided.keys()
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
    assert f'"{under}"' in " ".join(content.notes)
    content = read_torch(saved({under: {"w": torch.ones(1)}, "w": torch.zeros(2), 3: 4}, path))
    assert content.tensors["w"].shape == (2,), "the level above has precedence"
    assert len(content.notes) == 1


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "模型 é.bin", "a.b.c.pt", "x" * 200 + ".bin"])
def test_archives_of_every_name_torch_gives_them_are_read(tmp_path: Path, name: str) -> None:
    path = saved({"w": torch.arange(4.0)}, tmp_path / name)
    assert read_tensor(read_torch(path).tensors["w"]).tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("here")
def test_files_of_torch_before_it_noted_byte_order_and_alignment_are_read(tmp_path: Path) -> None:
    def older(entries: dict[str, bytes]) -> dict[str, bytes]:
        later = {name for name in entries if name.startswith("x/.") or "byteo" in name}
        return {name.replace("x/", "archive/", 1): entries[name] for name in entries if name not in later}

    path = rezipped(saved({"w": torch.arange(4.0)}, tmp_path / "x.bin"), older)
    assert_as_torch_loads_it(read_torch(path), path)


@pytest.mark.usefixtures("here")
def test_storages_in_another_order_than_the_pickle_are_matched(tmp_path: Path) -> None:
    """torch computes the positions from the order for its own devices meta and fake, and would be wrong here."""
    path = saved({"a": torch.zeros(16), "b": torch.ones(16), "c": torch.full((16,), 2.0)}, tmp_path / "x.bin")
    order = ["data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0", "data/2", "data/1", "version"]
    rezipped(path, lambda entries: {f"x/{name}": entries[f"x/{name}"] for name in order})
    astray = torch.load(path, weights_only=True, map_location="meta")["b"].untyped_storage()._checkpoint_offset
    assert read_torch(path).tensors["b"].parts[0].start != astray
    assert_as_torch_loads_it(read_torch(path), path)


def test_file_larger_than_memory_is_opened_without_reading_weights(tmp_path: Path) -> None:
    rows, width = 4_000_000, 16_384
    storage = torch.UntypedStorage.from_file(str(tmp_path / "hole"), True, rows * width * 4)  # 262 GB, all of it a hole
    with torch.serialization.skip_data():
        torch.save({"w": torch.empty(0).set_(storage, 0, (rows, width)), "b": torch.ones(3)}, tmp_path / "x.bin")
    tensors = read_torch(tmp_path / "x.bin").tensors
    assert tensors["w"].nbytes == rows * width * 4
    assert tensors["b"].parts[0].start > rows * width * 4  # the archive counts in 64 bits there
    assert read_tensor(tensors["w"], [0, rows - 1]).shape == (2, width)


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (lambda: [torch.ones(1)], "list"),
        (lambda: torch.ones(1), "Tensor"),
        (lambda: {}, "empty mapping"),
        (lambda: {"epoch": 3, "state_dict": {"n": 1}}, "epoch, state_dict"),
        (lambda: {"ema": {"w": torch.ones(1)}}, "ema"),
        (lambda: {"w": Call(print, ("run",))}, "print"),
        (lambda: torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (lambda: {"w": torch.ones(2), "n": torch.ones(1).numpy()}, "numpy"),
        (lambda: {"w": torch.ones(3).to_sparse()}, "torch.sparse_coo"),
        (lambda: {"w": torch.ones(3, dtype=torch.complex128)}, "complex128"),
        (lambda: {"w": torch.ones(3, dtype=torch.complex64).conj()}, "complex64"),
        (lambda: {"w": torch.ones(3, device="meta")}, ""),
        (lambda: {"w": torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8)}, ""),
        (lambda: {"w": torch.ones(1).expand(2**40)}, ""),
        (lambda: {"w": torch.ones(10).as_strided((4, 4), (1, 2))}, ""),
    ],
)
def test_pickles_that_do_not_map_names_to_tensors_are_refused(tmp_path: Path, value: Callable, found: str) -> None:
    error = refused(saved(value(), tmp_path / "x.bin"), UnsupportedCheckpointError)
    assert found in str(error.found)
    assert error.advice


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_program_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "x.pt")
    error = refused(tmp_path / "x.pt", UnsupportedCheckpointError)
    assert "torch.jit.load(file).state_dict()" in str(error.advice)
