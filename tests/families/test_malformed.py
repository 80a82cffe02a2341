"""Arbitrary configs and shapes give a typed refusal, or a layout whose every reference fits the tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from irwm.errors import IrwmError
from irwm.families import Layout, Norm, TensorRef, recognise, unnamed
from irwm.families.family import Family, families
from tests.families.cases import CASES
from tests.families.reference import config_of, shapes_of
from tests.families.test_embedding_only import MODELS, make

Shapes = dict[str, tuple[int, ...]]

# One case per model type and variant, and the families without scores.
NAMES = [*CASES, *MODELS]

_NUMBERS = st.one_of(st.integers(0, 12), st.sampled_from([-1, 24, 72, 199, 2**31, 2**63, 10**400]))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    _NUMBERS,
    st.floats(),
    st.text(max_size=4),
    st.lists(_NUMBERS, max_size=2),
    st.dictionaries(st.sampled_from(["clip_qkv", "model_type", ""]), _NUMBERS, max_size=2),
)
SHAPES = st.lists(st.one_of(st.sampled_from([0, 1, 2, 12, 36, 72, 199, 216, 2**40]), st.integers(0, 400)), max_size=4)


def base(name: str) -> tuple[dict[str, Any], Shapes]:
    return (dict(_bare(name)[0]), dict(_bare(name)[1])) if name in MODELS else (config_of(name), shapes_of(name))


@cache
def _bare(model_type: str) -> tuple[dict[str, Any], Shapes]:
    with torch.device("meta"):
        model = make(model_type)
    return {"model_type": model_type, **MODELS[model_type]}, {n: tuple(t.shape) for n, t in model.state_dict().items()}


def keys_read(family: Family) -> list[str]:
    """Every config key that recognition may read for the family."""
    keys = {"vocab_size", "model_type", "text_config", "dtype", "tie_word_embeddings"}
    keys |= {key.split(".")[0] for spelled in family.spellings.values() for key in spelled}
    for each in (family, *(family.under({k: True for v in family.variants for k in v.when}),)):
        keys |= {each.heads, each.kv_heads, each.head_dim, each.hidden_size, each.embedding_width, each.clip}
        keys |= {norm.eps for norm in (each.embedding_norm, each.input_norm, each.q_norm, each.k_norm) if norm}
        keys |= {each.projections.bias_key} if each.projections else set()
    keys |= {key for variant in family.variants for key in variant.when}
    keys |= {key for defaults in family.model_types.values() for key in defaults}
    return sorted(key.split(".")[0] for key in keys if isinstance(key, str) and key)


def norm_refs(norm: Norm | None) -> Iterator[TensorRef]:
    if norm is not None:
        assert math.isfinite(norm.eps)
        yield from norm.weights
        if norm.bias is not None:
            yield norm.bias


def shape_of(ref: TensorRef, shapes: Shapes) -> tuple[int, ...]:
    """The role's shape by the rules of `TensorRef`, as `Checkpoint.read` applies them."""
    shape = shapes[ref.name][::-1] if ref.transposed else shapes[ref.name]
    first, last = ref.rows or (0, shape[0])
    assert 0 <= first < last <= shape[0]
    repeats = 1
    if ref.every is not None:
        assert last <= ref.every
        assert shape[0] % ref.every == 0
        repeats = shape[0] // ref.every
    return (repeats * (last - first), *shape[1:])


def check(layout: Layout, shapes: Shapes) -> None:
    """Checks that every reference and every alternative fits the tensors."""
    s, d = layout.vocab_size, layout.hidden_size
    for ref in (layout.embedding, layout.head, *layout.copies):
        assert ref is None or shape_of(ref, shapes) == (s, d)
    width = d
    if layout.embedding_projection is not None:
        width, narrow = shape_of(layout.embedding_projection, shapes)
        assert narrow == d
    bias = layout.embedding_projection_bias
    assert bias is None or shape_of(bias, shapes) == (width,)
    first = width if bias is None else d
    for table in (layout.position, layout.token_type):
        assert table is None or shape_of(table, shapes)[1] == first
    for norm, size in ((layout.embedding_norm, first), (layout.input_norm, width)):
        assert all(shape_of(ref, shapes) == (size,) for ref in norm_refs(norm))
    assert math.isfinite(layout.embedding_scale)
    assert layout.embedding_scale > 0
    if layout.q is None or layout.k is None:
        assert (layout.q, layout.k, layout.scores) == (None, None, "embedding")
        return
    q_rows, k_rows = layout.heads * layout.head_dim, layout.kv_heads * layout.head_dim
    assert layout.heads % layout.kv_heads == 0
    assert shape_of(layout.q, shapes) == (q_rows, width)
    assert shape_of(layout.k, shapes) == (k_rows, width)
    for bias, rows in ((layout.q_bias, q_rows), (layout.k_bias, k_rows)):
        assert bias is None or shape_of(bias, shapes) == (rows,)
    for norm, heads in ((layout.q_norm, layout.heads), (layout.k_norm, layout.kv_heads)):
        for ref in norm_refs(norm):
            assert norm is not None
            numbers = math.prod(shape_of(ref, shapes))
            whole = norm.over == "projection" or len(shape_of(ref, shapes)) == 2
            assert numbers == layout.head_dim * (heads if whole else 1)


@pytest.mark.sweep
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_config_and_any_shapes_end_in_a_refusal_or_a_layout_that_fits(name: str, data: st.DataObject) -> None:
    config, shapes = base(name)
    check(recognise(config, shapes), shapes)  # accepted before the changes
    family = next(f for f in families() if config["model_type"] in f.model_types)
    for key in data.draw(st.lists(st.sampled_from(keys_read(family)), max_size=4, unique=True)):
        config[key] = data.draw(VALUES)
    touched = [n for n in shapes if ".0." in n or "layers" not in n]
    for tensor in data.draw(st.lists(st.sampled_from(sorted(touched)), max_size=3, unique=True)):
        shape = data.draw(st.none() | SHAPES)
        if shape is None:
            del shapes[tensor]
        else:
            shapes[tensor] = tuple(shape)
    try:
        layout = recognise(config, shapes)
    except IrwmError:
        return
    check(layout, shapes)


@settings(max_examples=200, deadline=None, database=None)
@given(
    config=st.dictionaries(st.text(max_size=8) | st.just("model_type") | st.just("text_config"), VALUES, max_size=4),
    shapes=st.dictionaries(
        st.sampled_from(sorted({n for f in families() for n in (*f.embedding, *f.head, *f.layer_names)})) | st.text(),
        SHAPES.map(tuple),
        max_size=6,
    ),
)
def test_arbitrary_configs_and_names_are_refused_or_read(config: dict[str, Any], shapes: Shapes) -> None:
    try:
        layout = recognise(config, shapes)
    except IrwmError as error:
        try:
            layout = unnamed(shapes, error)
        except IrwmError:
            return
        assert shapes[layout.embedding.name] == (layout.vocab_size, layout.hidden_size)
        return
    check(layout, shapes)
