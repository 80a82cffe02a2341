"""Several language models in the files: which one is read, and that the others are not lost."""

from __future__ import annotations

from typing import Any

import pytest

from irwm.errors import CorruptCheckpointError
from irwm.families import TensorRef, recognise
from irwm.families.building import MOST_ROWS
from tests.families.cases import VOCABULARY
from tests.families.reference import config_of, shapes_of

Shapes = dict[str, tuple[int, ...]]
BODY = "model."


def behind(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name.removeprefix(BODY): shape for name, shape in shapes.items() if name.startswith(BODY)}


def nested() -> dict[str, Any]:
    return {"model_type": "llava", "text_config": config_of("llama"), "vision_config": {}}


@pytest.mark.parametrize("real", ["model.language_model.", "language_model.model."])
@pytest.mark.parametrize("decoy", ["model.", ""])
def test_a_multimodal_models_language_model_is_read_under_its_wrapper(real: str, decoy: str) -> None:
    """transformers reports the others as unexpected and does not load them."""
    shapes = shapes_of("llama")
    layout = recognise(nested(), behind(real, shapes) | behind(decoy, shapes))
    assert layout.embedding == TensorRef(real + "embed_tokens.weight")
    assert layout.q == TensorRef(real + "layers.0.self_attn.q_proj.weight")
    assert layout.alternatives == (TensorRef(decoy + "embed_tokens.weight"),)
    (note,) = [note for note in layout.notes if "may be the embedding" in note]
    assert decoy + "embed_tokens.weight" in note


@pytest.mark.parametrize("other", ["", "language_model.model.", "model.language_model.", "somebodys.model."])
def test_a_plain_model_is_read_at_its_family_path_and_the_other_is_kept(other: str) -> None:
    shapes = shapes_of("llama")
    layout = recognise(config_of("llama"), shapes | behind(other, shapes))
    assert layout.embedding == TensorRef("model.embed_tokens.weight")
    (elsewhere,) = layout.elsewhere
    assert layout.alternatives == (elsewhere.embedding,) == (TensorRef(other + "embed_tokens.weight"),)
    assert elsewhere.q == TensorRef(other + "layers.0.self_attn.q_proj.weight")


def test_a_multimodal_model_under_plain_names_is_read_there() -> None:
    layout = recognise(nested(), shapes_of("llama"))
    assert layout.embedding == TensorRef("model.embed_tokens.weight")
    assert layout.alternatives == ()


def test_a_decoy_that_does_not_fit_the_config_is_ignored() -> None:
    shapes = shapes_of("llama")
    decoy = {name: (3, *shape[1:]) for name, shape in shapes.items() if name.startswith(BODY)}
    layout = recognise(config_of("llama"), decoy | behind("language_model.model.", shapes))
    assert layout.embedding == TensorRef("language_model.model.embed_tokens.weight")


def test_an_embedding_of_the_same_width_under_another_path_is_an_alternative() -> None:
    shapes = shapes_of("llama") | {"a.b.embed_tokens.weight": (9, 72), "c.embed_tokens.weight": (VOCABULARY, 71)}
    assert recognise(config_of("llama"), shapes).alternatives == (TensorRef("a.b.embed_tokens.weight"),)


def test_vision_tower_with_the_same_layer_names_is_not_a_language_model() -> None:
    shapes = shapes_of("llama")
    tower = {name: shape for name, shape in behind("vision_tower.encoder.", shapes).items() if "embed" not in name}
    layout = recognise(nested(), behind("model.text_model.", shapes) | tower)
    assert layout.embedding == TensorRef("model.text_model.embed_tokens.weight")
    assert layout.alternatives == ()
    assert "unusual prefix" in layout.notes[0]


def test_embedding_of_an_additional_layer_is_a_copy() -> None:
    """As in the layer for multi-token prediction in checkpoints of DeepSeek and GLM."""
    shapes = shapes_of("llama") | {"model.layers.61.embed_tokens.weight": (VOCABULARY, 72)}
    layout = recognise(config_of("llama"), shapes)
    assert layout.copies == (TensorRef("model.layers.61.embed_tokens.weight"),)
    assert layout.alternatives == ()


def test_more_rows_than_any_vocabulary_are_refused() -> None:
    """A sparse file is cheap, and reading all of it fills the memory."""
    shapes = shapes_of("llama") | {"model.embed_tokens.weight": (MOST_ROWS, 72), "lm_head.weight": (MOST_ROWS, 72)}
    assert recognise(config_of("llama"), shapes).vocab_size == MOST_ROWS
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        shapes[name] = (MOST_ROWS + 1, 72)
    with pytest.raises(CorruptCheckpointError, match="more rows than any vocabulary"):
        recognise(config_of("llama"), shapes)
