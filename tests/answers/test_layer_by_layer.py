"""An original that is larger than the memory gives the same evidence, with one layer at a time in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import irwm
from irwm.answers import Fits, reading
from irwm.answers.reading import gradients_by_fit
from irwm.errors import UnsupportedCheckpointError
from irwm.inference.layer_by_layer import layers_of
from irwm.inference.loading import open_weights
from irwm.scheme.parameters import EMBEDDING, HEAD
from tests.answers.test_tracing import invented
from tests.checkpoint.gguf_builders import convert
from tools.small_models import write_llama

LAYERS = 3


@pytest.fixture(params=["untied", "tied"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tied = request.param == "tied"
    return write_llama(tmp_path / "original", num_hidden_layers=LAYERS, tie_word_embeddings=tied, dtype=torch.bfloat16)


def test_gradients_are_those_of_the_whole_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, answers, fits = irwm.open_checkpoint(path), invented(0), Fits(steps=3, prompt=4)
    places = (EMBEDDING,) if model.output_head is None else (EMBEDDING, HEAD)
    whole = list(gradients_by_fit(answers, model, places, fits=fits))
    monkeypatch.setattr(reading, "free_memory", lambda: 0)
    monkeypatch.setattr(reading, "open_weights", kept := _Opener())
    parts = list(gradients_by_fit(answers, model, places, fits=fits))
    assert kept.layer_by_layer
    assert [name for name, _ in parts] == [name for name, _ in whole]
    for (name, found), (_, wanted) in zip(parts[:2], whole, strict=False):
        for by, per_place in wanted.items():
            for place, values in per_place.items():
                np.testing.assert_allclose(found[by][place], values, atol=1e-5 * abs(values).max(), err_msg=name)


class _Opener:
    """Notes how a model was opened."""

    layer_by_layer = False

    def __call__(self, *given: object, layer_by_layer: bool) -> object:
        self.layer_by_layer = layer_by_layer
        return open_weights(*given, layer_by_layer=layer_by_layer)  # type: ignore[arg-type]


def test_layers_are_not_in_memory_between_runs(path: Path) -> None:
    model = open_weights(path, layer_by_layer=True).model
    tokens = torch.arange(8)[None]
    model.requires_grad_(False)
    weight = model.get_input_embeddings().weight
    weight.requires_grad_(True)
    loss = model(input_ids=tokens, use_cache=False).logits.log_softmax(-1).sum()
    _, layers = layers_of(model)
    assert len(layers) == LAYERS
    assert {value.device.type for value in layers.parameters()} == {"meta"}
    (gradient,) = torch.autograd.grad(loss, [weight])
    assert {value.device.type for value in layers.parameters()} == {"meta"}
    assert gradient.abs().sum() > 0


def test_gguf_file_is_rejected(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "original")
    file = convert(folder, tmp_path / "original.gguf")
    with pytest.raises(UnsupportedCheckpointError, match="its layers cannot be read one at a time") as found:
        open_weights(file, layer_by_layer=True)
    assert found.value.advice == "Use a folder of safetensors files, or a computer with more memory"


def test_pytorch_file_is_rejected(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "original")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedCheckpointError, match="its layers cannot be read one at a time") as found:
        open_weights(folder, layer_by_layer=True)
    assert found.value.advice == "Use a folder of safetensors files, or a computer with more memory"
