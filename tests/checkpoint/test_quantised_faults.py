"""Quantised weights that contradict themselves or are unknown, and other tensors next to them.

Contradictions are refused by name, unknown ones are left as they are, and irrelevant tensors hide no weight.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from irwm.checkpoint import PackedTensor, find_files, open_checkpoint, read_tensor
from irwm.checkpoint.quantised.gptq import _of_embedding
from irwm.errors import CorruptCheckpointError, IrwmError, UnsupportedCheckpointError
from tests.checkpoint import quantised_builders as build
from tests.checkpoint.builders import EMBEDDING, contradiction
from tests.checkpoint.quantised_builders import (
    NAME,
    STEM,
    Quantised,
    blocks_of_4_bits,
    fp8_rows,
    gptq,
    mlx,
    opened,
    written,
)

SCHEMES: dict[str, Callable[[torch.Tensor], Quantised]] = {
    **{"gptq": gptq, "awq": build.awq, "compressed": build.packed_with_zeros, "nvfp4": build.nvfp4, "mlx": build.mlx},
    **{"fp8 blocks": build.fp8_blocks, "fp8 rows": build.fp8_rows},
    **{"4 bits": build.blocks_of_4_bits, "8 bits": build.rows_of_8_bits},
}


@pytest.fixture(scope="module")
def made() -> dict[str, Quantised]:
    weight = (0.05 * torch.randn(64, 128, generator=torch.Generator().manual_seed(0))).bfloat16()
    return {name: quantise(weight) for name, quantise in SCHEMES.items()}


def read(folder: Path, parts: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> torch.Tensor | None:
    """The weight, or None if it was left as it is."""
    files = opened(folder, parts, config)
    if NAME in files.refused:
        raise files.refused[NAME]
    found = files.tensors.get(NAME)
    return read_tensor(found) if isinstance(found, PackedTensor) else None


def refused(folder: Path, parts: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> CorruptCheckpointError:
    """The refusal, which names file and tensor."""
    with pytest.raises(CorruptCheckpointError) as caught:
        read(folder, parts, config)
    assert caught.value.file == str(folder / "model.safetensors")
    assert caught.value.tensor is not None
    assert caught.value.tensor.startswith(STEM)
    assert caught.value.expected is not None
    assert caught.value.found is not None
    return caught.value


def short(t: torch.Tensor) -> torch.Tensor:
    return t[:-1]


def narrow(t: torch.Tensor) -> torch.Tensor:
    return t[:, :-1].clone()


def first(t: torch.Tensor) -> torch.Tensor:
    return t[0]


def filled(*shape: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: torch.ones(shape)


WRONG_PIECES: dict[tuple[str, str], list[Callable[[torch.Tensor], torch.Tensor]]] = {
    ("gptq", "qzeros"): [short, narrow],
    ("gptq", "scales"): [narrow, torch.Tensor.double],
    ("gptq", "qweight"): [short, lambda t: t[None]],
    ("gptq", "g_idx"): [
        lambda t: t[:-9],
        first,
        torch.Tensor.float,
        lambda t: t + 1,
        lambda t: t - 1,
        lambda t: t * 2**30,
    ],
    ("awq", "qzeros"): [short],
    ("awq", "scales"): [lambda t: t[:, 1:]],
    ("awq", "qweight"): [short],
    ("compressed", "weight_scale"): [short, torch.Tensor.char],
    ("compressed", "weight_zero_point"): [short, first],
    ("compressed", "weight_shape"): [
        *(lambda t, shape=shape: torch.tensor(shape) for shape in ([64, 2**62], [64, -128], [2**40, 128])),
        *(lambda t: t[:1], torch.Tensor.float),
    ],
    ("nvfp4", "weight_scale"): [narrow],
    ("nvfp4", "weight_global_scale"): [filled(2)],
    ("nvfp4", "weight_packed"): [lambda t: t[:, :-3]],
    ("fp8 blocks", "weight_scale_inv"): [filled(65, 1), filled(3, 1), filled(1, 1, 1, 2)],
    ("fp8 rows", "weight_scale"): [short, torch.Tensor.int],
    ("mlx", "scales"): [short],
    ("mlx", "biases"): [narrow, torch.Tensor.double],
    ("mlx", "weight"): [narrow],
    ("4 bits", "weight"): [short],
    ("4 bits", "weight.absmax"): [short, torch.Tensor.float],
    ("4 bits", "weight.nested_absmax"): [filled(9)],
    ("4 bits", "weight.nested_quant_map"): [lambda t: t[:16]],
    ("8 bits", "SCB"): [short, torch.Tensor.char],
    ("8 bits", "weight"): [first],
}


@pytest.mark.parametrize(("scheme", "part"), WRONG_PIECES)
def test_mismatched_piece_is_named(tmp_path: Path, made: dict[str, Quantised], scheme: str, part: str) -> None:
    sound = made[scheme]
    assert read(tmp_path / "sound", sound.parts, sound.config) is not None
    for number, corrupt in enumerate(WRONG_PIECES[scheme, part]):
        refused(tmp_path / str(number), {**sound.parts, part: corrupt(sound.parts[part])}, sound.config)


WRONG_NUMBERS: list[tuple[str, str, Any]] = [
    *(("gptq", "bits", value) for value in (64, 0, "4", True)),
    *(("gptq", "group_size", value) for value in (0, -7, 10**400)),
    *(("awq", "bits", 64), ("awq", "group_size", 0), ("mlx", "group_size", 0), ("mlx", "bits", [[[]]])),
    *(("fp8 blocks", "weight_block_size", value) for value in ([0, 128], 128, [128, 128, 128])),
]


@pytest.mark.parametrize(("scheme", "key", "value"), WRONG_NUMBERS, ids=lambda value: str(value)[:20])
def test_invalid_number_in_config_is_named(tmp_path: Path, made: dict, scheme: str, key: str, value: Any) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        read(tmp_path, made[scheme].parts, {**made[scheme].config, key: value})
    assert caught.value.file == str(tmp_path / "config.json")
    assert key in str(caught.value)


def test_contradicted_group_size_is_refused(tmp_path: Path, made: dict[str, Quantised]) -> None:
    parts = {name: value for name, value in made["gptq"].parts.items() if name != "g_idx"}
    assert read(tmp_path / "right", parts, made["gptq"].config) is not None
    refused(tmp_path / "gptq", parts, {**made["gptq"].config, "group_size": 16})
    refused(tmp_path / "awq", made["awq"].parts, {**made["awq"].config, "group_size": 16})
    refused(tmp_path / "mlx", made["mlx"].parts, {**made["mlx"].config, "group_size": 48})


STATE = "weight.quant_state.bitsandbytes__nf4"
SOUND = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [64, 128]}
WRONG_STATES: list[dict[str, Any]] = [
    *({"shape": shape} for shape in ([2**60, 2**60], [64, 10**400], [64, 127], [0, 128], [True, True], [8192], None)),
    *({"blocksize": 0}, {"blocksize": 64.0}, {"blocksize": 2**62}, {"dtype": "complex64"}, {"dtype": ["float32"]}),
    *({"quant_type": "fp4"}, {"nested_blocksize": 7, "nested_offset": 0.1}, {"nested_offset": 1e300}),
    {"nested_offset": "0"},
]


def as_tensor(text: str | bytes) -> torch.Tensor:
    return torch.tensor(list(text.encode() if isinstance(text, str) else text), dtype=torch.uint8)


@pytest.mark.parametrize("change", WRONG_STATES, ids=lambda change: str(change)[:40])
def test_impossible_bitsandbytes_state_is_refused(tmp_path: Path, change: dict) -> None:
    sound = build.blocks_of_4_bits(torch.ones(64, 128).bfloat16(), nested=False)
    assert read(tmp_path / "sound", {**sound.parts, STATE: as_tensor(json.dumps(SOUND))}, {}) is not None
    refused(tmp_path / "corrupted", {**sound.parts, STATE: as_tensor(json.dumps(SOUND | change))}, {})


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 4000, b" " * 5000, b'{"shape": NaN}'])
def test_non_object_bitsandbytes_state_is_refused(tmp_path: Path, made: dict[str, Quantised], text: bytes) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        read(tmp_path, {**made["4 bits"].parts, STATE: as_tensor(text)}, {})
    assert caught.value.file == str(tmp_path / "model.safetensors")


def test_double_quantisation_without_second_scales_is_refused(tmp_path: Path, made: dict[str, Quantised]) -> None:
    parts = {name: value for name, value in made["4 bits"].parts.items() if name != "weight.nested_absmax"}
    assert "nested_absmax" in str(refused(tmp_path, parts, {}))


def test_an_8_bit_weight_in_order_of_gpu_is_refused_when_it_is_read(tmp_path: Path, made: dict[str, Quantised]) -> None:
    parts = {**made["8 bits"].parts, "weight_format": torch.tensor(2, dtype=torch.uint8)}
    with pytest.raises(UnsupportedCheckpointError) as caught:
        read(tmp_path, parts, {})
    assert caught.value.tensor == STEM + "weight_format"


def corrupted(value: torch.Tensor, drawn: random.Random) -> torch.Tensor:
    """A tensor that has been cut, reshaped, cast or filled with something else."""
    match drawn.randrange(6):
        case 0:
            return value[: drawn.randrange(len(value) + 1)] if value.dim() else value[None]
        case 1:
            return value.flatten()[: drawn.randrange(value.numel() + 1)]
        case 2:
            dtypes = [torch.float32, torch.float64, torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool]
            return value.float().to(drawn.choice([*dtypes, torch.float8_e4m3fn, torch.uint32]))
        case 3:
            return value[None, None] if drawn.random() < 0.5 else value.reshape(-1, 1)
        case 4:
            content = bytes(drawn.randrange(256) for _ in range(value.nbytes))
            return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(value.dtype).reshape(value.shape)
        case _:
            return torch.full_like(value.float(), -1).to(value.dtype)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_corrupted_pieces_raise_only_typed_errors(tmp_path: Path, made: dict[str, Quantised], scheme: str) -> None:
    drawn, refusals = random.Random(scheme), 0
    for round in range(60):
        parts = dict(made[scheme].parts)
        for part in drawn.sample(sorted(parts), k=drawn.randint(1, min(2, len(parts)))):
            if drawn.random() < 0.15:
                del parts[part]
            else:
                parts[part] = corrupted(parts[part], drawn)
        try:
            if parts:
                read(tmp_path / str(round), parts, made[scheme].config)
        except CorruptCheckpointError:
            refusals += 1
        except IrwmError:
            continue
    assert refusals


GEMV = {"qweight": (64, 16), "qzeros": (64, 1), "scales": (64, 2)}
UNKNOWN = {
    "AWQ with GEMV packing": (GEMV, {"quant_method": "awq", "version": "gemv"}),
    "AWQ with GEMV-FAST packing": (GEMV, {"quant_method": "awq", "version": "gemv_fast"}),
    "W_q": ({"W_q": (64, 16), "scale": (64, 1), "zero": (64, 1)}, {"quant_method": "hqq"}),
    "with aqlm": ({"codes": (64, 16), "codebooks": (1, 256)}, {"quant_method": "aqlm"}),
    "an unnamed method": ({"packed": (64, 16)}, {"something": 1}),
    "MLX codes without a group size in the config": ({"weight": (64, 16), "scales": (64, 2), "biases": (64, 2)}, {}),
}


@pytest.mark.parametrize("said", UNKNOWN)
def test_an_unsupported_quantisation_is_named_and_left_as_it_is(tmp_path: Path, said: str) -> None:
    shapes, config = UNKNOWN[said]
    whole = dict.fromkeys(("qweight", "qzeros", "W_q", "codes", "packed", "weight"), torch.int32)
    parts = {name: torch.ones(shape, dtype=whole.get(name, torch.float16)) for name, shape in shapes.items()}
    files = opened(tmp_path, parts, config)
    assert set(files.tensors) == {STEM + part for part in parts}
    assert [said in note for note in files.notes] == [True]


def test_a_hostile_method_name_cannot_change_how_a_note_reads(tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "\x1b[31m\u202e<script>" + "x" * 5000}}
    (note,) = find_files(written(tmp_path, {"a": torch.ones(1)}, config)).notes
    assert note.isprintable()
    assert len(note) < 300


@pytest.mark.parametrize("section", [[], "gptq", {"quant_method": 4}, {"quant_method": ["gptq"]}, None, {}])
def test_quantisation_section_of_another_kind_is_allowed(tmp_path: Path, section: Any) -> None:
    files = find_files(written(tmp_path, {"a": torch.ones(1)}, {"quantization_config": section, "text_config": []}))
    assert set(files.tensors) == {"a"}


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config", None])
def test_quantisation_section_is_found_in_other_places(tmp_path: Path, made: dict, section: str | None) -> None:
    stated = {"checkpoint_format": "gptq_v2"}
    config = {"compression_config": stated} if section is None else {section: {"quantization_config": stated}}
    tensors = {STEM + part: value for part, value in made["gptq"].parts.items()}
    files = find_files(written(tmp_path, tensors, config))
    assert not torch.equal(read_tensor(files.tensors[NAME]), made["gptq"].expected)  # it is of the first version


def test_codes_do_not_replace_a_plain_weight_of_the_same_name(tmp_path: Path, made: dict[str, Quantised]) -> None:
    files = opened(tmp_path, {**made["gptq"].parts, "weight": torch.zeros(64, 128)}, {})
    assert torch.equal(read_tensor(files.tensors[NAME]), torch.zeros(64, 128))
    assert any("next to" in note for note in files.notes)
    # A program may use either of the two, so both are kept.
    assert torch.equal(read_tensor(files.tensors["quantised." + NAME]), made["gptq"].expected)


def test_scales_next_to_plain_numbers_are_ignored(tmp_path: Path) -> None:
    parts = {"weight": torch.ones(4, 4), "weight_scale": torch.zeros(1), "SCB": torch.zeros(4)}
    files = opened(tmp_path, parts, {})
    assert torch.equal(read_tensor(files.tensors[NAME]), torch.ones(4, 4))


def test_two_schemes_for_one_tensor_are_refused(tmp_path: Path) -> None:
    """GPTQ's scales of a single output are a column of floats, which bitsandbytes' codes may be as well."""
    sound = gptq(torch.linspace(-1, 1, 128)[None], group=64)
    state = as_tensor(json.dumps(SOUND | {"shape": [1, 8]}))
    parts = {**sound.parts, "scales.quant_state.bitsandbytes__nf4": state, "scales.absmax": torch.ones(1)}
    files = opened(tmp_path, parts, {"quant_method": "bitsandbytes"})
    assert sum(isinstance(tensor, PackedTensor) for tensor in files.tensors.values()) == 1
    assert any("next to other tensors" in note for note in files.notes)


def test_an_embedding_is_recognised_by_its_name_at_any_length_of_the_name() -> None:
    """A regular expression with backtracking would hang here: its time grows with the square of the length."""
    for name in ("model.embed_tokens.weight", "transformer.wte.weight", "tok_embeddings.weight"):
        assert _of_embedding(name)
    for name in ("model.layers.0.mlp.up_proj.weight", "model.embed_tokens.bias", "embed.layers.0.weight"):
        assert not _of_embedding(name)
    assert not _of_embedding("embed" * 2_000_000)


WEIGHT = 0.05 * torch.randn(64, 128, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def config(tiny_path: Path) -> dict[str, Any]:
    return dict(open_checkpoint(tiny_path).config)


@pytest.fixture(scope="module")
def plain(tiny_path: Path) -> dict[str, torch.Tensor]:
    return load_file(tiny_path / "model.safetensors")


def with_q(plain: Mapping[str, torch.Tensor], q: Quantised) -> dict[str, torch.Tensor]:
    """The model with a quantised q."""
    return {n: value for n, value in plain.items() if n != NAME} | {STEM + n: value for n, value in q.parts.items()}


def with_embedding(plain: dict[str, torch.Tensor], codes: Quantised, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    """The model with codes of its embedding, some of its pieces added or replaced."""
    return {**plain, **{EMBEDDING.removesuffix("weight") + part: value for part, value in (codes.parts | more).items()}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_text_does_not_turn_plain_numbers_into_codes(config, plain, tmp_path: Path, dtype: torch.dtype) -> None:
    """transformers ignores the text, and the bytes of the numbers would look like codes of a taller matrix."""
    tensors = {name: value.to(dtype) for name, value in plain.items()}
    for name in (EMBEDDING, NAME):
        width = tensors[name].shape[1]
        taller = torch.ones(2 * tensors[name].nbytes // width, width).bfloat16()
        parts = blocks_of_4_bits(taller, nested=False).parts
        tensors |= {name.removesuffix("weight") + part: parts[part] for part in parts.keys() - {"weight"}}
    model = open_checkpoint(written(tmp_path, tensors, config))
    assert torch.equal(model.embedding(), tensors[EMBEDDING].float())
    assert model.layout.q is not None
    assert torch.equal(model.read(model.layout.q), tensors[NAME].float())
    assert model.notes


@pytest.mark.parametrize("method", ["bitsandbytes", ""])
def test_codes_declared_as_floats_are_read_with_a_bitsandbytes_config(tmp_path: Path, method: str) -> None:
    sound = blocks_of_4_bits(WEIGHT.bfloat16())
    codes = sound.parts["weight"].view(-1, 2).view(torch.bfloat16)
    assert codes.shape[1] == 1
    found = opened(tmp_path, {**sound.parts, "weight": codes}, {"quant_method": method}).tensors[NAME]
    assert torch.equal(read_tensor(found).float(), sound.expected) is bool(method)


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


JUNK: dict[str, dict[str, torch.Tensor]] = {
    "gptq": {"junk.qweight": zeros(2, 3), "junk.qzeros": zeros(1, 9), "junk.scales": torch.ones(1, 3)},
    "mlx": {"junk.weight": zeros(2, 2), "junk.scales": torch.ones(3, 1), "junk.biases": torch.ones(3, 1)},
    "bitsandbytes": {
        **{"junk": zeros(1, 1, dtype=torch.uint8), "junk.absmax": torch.ones(1)},
        "junk.quant_state.bitsandbytes__nf4": zeros(3, dtype=torch.uint8),
    },
    "fp8": {"junk.weight": torch.zeros(4, 4).to(torch.float8_e4m3fn), "junk.weight_scale": torch.ones(9, 9)},
}


@pytest.mark.parametrize("kind", JUNK)
def test_contradictory_pieces_next_to_model_do_not_prevent_reading_it(config, plain, tmp_path: Path, kind: str) -> None:
    model = open_checkpoint(written(tmp_path, plain | JUNK[kind], config))
    assert torch.equal(model.embedding(), plain[EMBEDDING].float())
    assert model.layout.q is not None
    assert any("junk" in note for note in model.notes)


def test_contradictory_pieces_in_layer_0_leave_the_embedding(config, plain, tmp_path: Path) -> None:
    tensors = with_q(plain, gptq(plain[NAME], group=32))
    tensors[STEM + "scales"] = tensors[STEM + "scales"][:, :-1].clone()
    tensors |= JUNK["fp8"]
    assert str(contradiction(written(tmp_path / "q", tensors, config)).tensor).startswith(STEM)
    tensors = with_embedding(plain, fp8_rows(plain[EMBEDDING]), weight_scale=torch.ones(3, 3, 3))
    unusual = written(tmp_path / "e", tensors, config | {"tie_word_embeddings": True})
    assert str(contradiction(unusual).tensor).startswith(EMBEDDING)
    assert open_checkpoint(unusual).unread == (EMBEDDING,), "another tensor was used, so no key is ruled out"


@pytest.mark.parametrize(
    ("section", "whole"),
    [
        ({"quant_method": "auto-round", "packing_format": "auto_round"}, True),
        ({"quant_method": "auto-round", "packing_format": "auto_round:gptqmodel"}, True),
        ({"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}, False),
        ({"quant_method": "intel/auto-round", "backend": "auto_round:gptq:exllamav2"}, False),
        ({"quant_method": "gptq", "packing_format": "auto_round"}, False),
        ({"quant_method": "gptq", "checkpoint_format": "gptq_v2"}, True),
    ],
)
def test_autorounds_packings_with_and_without_one_less(tmp_path: Path, section: dict[str, str], whole: bool) -> None:
    sound = gptq(WEIGHT)
    parts = dict(sound.parts)
    if whole:
        parts["qzeros"] = parts["qzeros"] + 0x11111111
    found = opened(tmp_path, parts, {"bits": 4, "group_size": 64, "sym": False, **section}).tensors[NAME]
    assert torch.equal(read_tensor(found), sound.expected)


def test_autoround_layer_settings_apply_to_their_layer(tmp_path: Path) -> None:
    sound = gptq(WEIGHT, group=64)
    parts = {part: value for part, value in sound.parts.items() if part != "g_idx"}
    section = {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4, "group_size": 32}
    assert NAME in opened(tmp_path / "all", parts, section).refused
    section["extra_config"] = {STEM[:-1]: {"bits": 4, "group_size": 64}, "other": 1}
    assert torch.equal(read_tensor(opened(tmp_path / "own", parts, section).tensors[NAME]), sound.expected)


def test_modelopts_column_factors_are_applied(config, plain, tmp_path: Path) -> None:
    """The module multiplies its input by them, so the weight for the plain input includes them."""
    factors = torch.linspace(0.2, 3.0, plain[NAME].shape[1])
    codes = fp8_rows(plain[NAME] / factors)
    tensors = with_q(plain, codes) | {STEM + "pre_quant_scale": factors}
    section = {"quantization_config": {"quant_method": "modelopt"}}
    model = open_checkpoint(written(tmp_path, tensors, config | section))
    assert model.layout.q is not None
    expected = codes.expected * factors
    assert torch.equal(model.read(model.layout.q), expected)
    assert torch.equal(model.read(model.layout.q, [5, 2]), expected[[5, 2]])
    assert torch.nn.functional.cosine_similarity(expected.flatten(), plain[NAME].flatten(), dim=0) > 0.99


def test_invalid_column_factors_leave_the_embedding(config, plain, tmp_path: Path) -> None:
    tensors = with_q(plain, fp8_rows(plain[NAME])) | {STEM + "pre_quant_scale": torch.ones(3)}
    section = {"quantization_config": {"quant_method": "modelopt"}}
    assert contradiction(written(tmp_path, tensors, config | section)).tensor == STEM + "pre_quant_scale"


@pytest.mark.parametrize("piece", ["pre_quant_scale", "weight_scale_2", "svdquant_lora_a", "lora_A.weight"])
@pytest.mark.parametrize("quantise", [fp8_rows, gptq, mlx, blocks_of_4_bits])
def test_a_weight_with_an_unknown_piece_is_not_read(config, plain, tmp_path: Path, quantise: Any, piece: str) -> None:
    q = quantise(plain[NAME].bfloat16())
    section = {"quantization" if quantise is mlx else "quantization_config": dict(q.config)}
    assert open_checkpoint(written(tmp_path / "sound", with_q(plain, q), config | section)).layout.q is not None
    tensors = with_q(plain, q) | {STEM + piece: torch.ones(64)}
    model = open_checkpoint(written(tmp_path / "unusual", tensors, config | section))
    assert any(piece in note for note in model.notes)
    assert model.layout.q is not None
    for rows in (None, [1]):
        with pytest.raises(UnsupportedCheckpointError) as caught:
            model.read(model.layout.q, rows)
        assert (caught.value.tensor, caught.value.found) == (NAME, STEM + piece)
    assert torch.equal(model.embedding(), plain[EMBEDDING].float())


@pytest.mark.parametrize("piece", ["bias", "input_scale", "input_zero_point", "output_scale"])
def test_harmless_pieces_do_not_prevent_reading_a_weight(tmp_path: Path, piece: str) -> None:
    q = fp8_rows(WEIGHT)
    files = opened(tmp_path, {**q.parts, piece: torch.ones(1)}, q.config)
    assert torch.equal(read_tensor(files.tensors[NAME]), q.expected)


def test_an_unknown_piece_does_not_hide_a_quantised_embedding(config, plain, tmp_path: Path) -> None:
    codes = fp8_rows(plain[EMBEDDING])
    model = open_checkpoint(written(tmp_path, with_embedding(plain, codes, junk=torch.ones(1)), config))
    assert torch.equal(model.embedding(), codes.expected)
    assert any("junk" in note for note in model.notes)


def test_unreadable_attention_leaves_the_embedding_readable(config, plain, tmp_path: Path) -> None:
    q = Quantised({"W_q": zeros(8, 1), "scale": torch.ones(1), "zero": torch.ones(1)}, plain[NAME], {})
    suspect = open_checkpoint(
        written(tmp_path, with_q(plain, q), config | {"quantization_config": {"quant_method": "hqq"}})
    )
    assert suspect.layout.q is None
    assert torch.equal(suspect.embedding(), plain[EMBEDDING])
    assert any("W_q" in note for note in suspect.notes)


def test_transformed_inputs_are_noted(config, plain, tmp_path: Path) -> None:
    section = {"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"u": {"type": "hadamard"}}}}
    model = open_checkpoint(written(tmp_path, plain, config | {"quantization_config": section}))
    assert any("transform_config" in note for note in model.notes)


def test_empty_row_selection_of_a_quantised_weight_works(config, plain, tmp_path: Path) -> None:
    codes = mlx(plain[EMBEDDING])
    stated = config | {"quantization": dict(codes.config)}
    model = open_checkpoint(written(tmp_path, with_embedding(plain, codes), stated))
    assert model.embedding([]).shape == (0, model.hidden_size)
    assert torch.equal(model.embedding([3]), codes.expected[[3]].float())
