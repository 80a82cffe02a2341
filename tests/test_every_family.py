"""Every family is protected and investigated, and each release is recognised in every container and quantisation.

The models are tiny and random, of transformers' own classes; tests/evidence/test_detection.py and tests/checkpoint test
trained ones. A release is marked once for each family, and suspects are written from it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.checkpoint.formats import read_budget
from irwm.errors import UnsupportedCheckpointError
from tests.checkpoint.gguf_builders import ARCHITECTURES, F16, convert
from tests.checkpoint.parsing import without_child
from tests.checkpoint.quantised_builders import Quantised, awq, compressed, fp8_rows, gptq, model_of
from tests.families.reference import CASES, save
from tests.release.leftovers import leftovers

PARAMETERS = irwm.Parameters(positions=20, constraints=5, required_positions=12, permutations=199)


@dataclass(frozen=True)
class Marked:
    """A family's original, the key, and the release's folder."""

    case: str
    original: irwm.Checkpoint
    key: irwm.Key
    release: Path


@pytest.fixture(scope="module", params=CASES)
def marked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Marked:
    folder = tmp_path_factory.mktemp("family")
    original = irwm.open_checkpoint(save(request.param, folder / "original", torch.bfloat16))
    key = irwm.generate_key(original, PARAMETERS, secret=bytes(range(32)))
    return Marked(request.param, original, key, irwm.insert(original, key, folder / "release").path)


def without_weights(marked: Marked, out: Path) -> Path:
    """The release's other files, in a new folder."""
    return Path(shutil.copytree(marked.release, out, ignore=shutil.ignore_patterns("*.safetensors", "SHA256SUMS")))


def require_found(marked: Marked, suspect: Path) -> irwm.Finding:
    found = irwm.detect(irwm.open_checkpoint(suspect), marked.original, marked.key)
    assert found.verdict == "found", found.reason
    assert found.count == found.present == PARAMETERS.positions
    assert found.lineage.status == "derived", found.lineage.reason
    assert found.paper is not None, found.warnings
    return found


@pytest.mark.sweep
def test_the_release_is_found_and_holds_no_original_row(marked: Marked) -> None:
    require_found(marked, marked.release)
    assert irwm.detect(marked.original, marked.original, marked.key).verdict == "not found"
    assert leftovers(marked.original, marked.release) == []


@pytest.mark.sweep
@pytest.mark.sampled(3)
def test_release_in_several_shards_is_found(marked: Marked, tmp_path: Path) -> None:
    folder = without_weights(marked, tmp_path / "x")
    tensors = load_file(marked.release / "model.safetensors")
    for number in (1, 2):
        part = {name: tensors[name] for name in sorted(tensors)[number - 1 :: 2]}
        save_file(part, folder / f"model-{number:05}-of-00002.safetensors", metadata={"format": "pt"})
    require_found(marked, folder)


@pytest.mark.sweep
@pytest.mark.sampled(3)
def test_release_as_a_pytorch_file_is_found(marked: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser runs in this process here; tests/checkpoint/test_torch_models.py starts its real child."""
    monkeypatch.setattr(read_budget, "run_parser", without_child)
    folder = without_weights(marked, tmp_path / "x")
    torch.save(load_file(marked.release / "model.safetensors"), folder / "pytorch_model.bin")
    require_found(marked, folder)
    with pytest.raises(UnsupportedCheckpointError):
        irwm.insert(irwm.open_checkpoint(folder), marked.key, tmp_path / "out")


@pytest.mark.sweep
def test_release_as_gguf_is_found(marked: Marked, tmp_path: Path) -> None:
    if CASES[marked.case][0] not in ARCHITECTURES or marked.case in NOT_IN_LLAMA_CPP:
        pytest.skip("llama.cpp has no such architecture")
    require_found(marked, convert(marked.release, tmp_path / "x.gguf", F16))


# Variants that llama.cpp's converter does not take, although it has the architecture.
NOT_IN_LLAMA_CPP = ("phi, norms on heads", "gpt_bigcode, every head its own key", "falcon, rw")
GROUP = 24  # since most of the tiny models are 72 wide
SCHEMES: dict[str, Callable[[torch.Tensor], Quantised]] = {
    "GPTQ": partial(gptq, group=GROUP),
    "AWQ": partial(awq, group=GROUP),
    "compressed-tensors int8": partial(compressed, format="int-quantized", num_bits=8, strategy="channel"),
    "FP8": fp8_rows,
}


@pytest.mark.sweep
@pytest.mark.sampled(len(SCHEMES))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_release_with_quantised_projections_is_found(marked: Marked, tmp_path: Path, scheme: str) -> None:
    layout = marked.original.layout
    if layout.q is None or layout.q.transposed or layout.kv_heads * layout.head_dim % 8:
        pytest.skip("it has no layer-0 q and k that these tools quantise")
    if marked.original.tensors[layout.q.name].shape[1] % GROUP:
        pytest.skip(f"its projections do not divide into groups of {GROUP}")
    names = {ref.name for ref in (layout.q, layout.k) if ref is not None}
    model_of(marked.release, tmp_path / "x", SCHEMES[scheme], chosen=lambda name: name in names)
    (tmp_path / "x" / "SHA256SUMS").unlink(missing_ok=True)
    require_found(marked, tmp_path / "x")
