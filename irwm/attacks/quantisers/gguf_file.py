"""A model folder as one GGUF file, as llama.cpp's converter and quantiser write it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from irwm.attacks.quantisers import mixture
from irwm.attacks.quantisers.converter import Convention, Place, convention, places, rope_of
from irwm.attacks.quantisers.mixture import FILE_TYPES
from irwm.attacks.quantisers.vocabulary import write_vocabulary
from irwm.attacks.rewrite import new_folder, open_safetensors
from irwm.checkpoint import Checkpoint, read_tensor
from irwm.checkpoint.model import folder_of
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.families.configvalues import ConfigJson

if TYPE_CHECKING:
    import gguf


def to_gguf(model_dir: str | Path, out_dir: str | Path, kind: str = "Q4_K_M") -> Path:
    """Write the model as the single file of a new folder, in llama.cpp's arrangement, names and number formats.

    Only one tensor at a time is in memory. The file holds the data that llama.cpp needs: hyperparameters, and the
    vocabulary if there is a tokenizer.json of a known kind next to the model. A BERT loses its heads and pooler, which
    the file cannot hold.

    Args:
        model_dir: a model folder in safetensors, of a type whose family states `gguf.writing` and an anatomy.
        out_dir: must not exist.
        kind: "F16", "Q8_0", "Q4_0" or "Q4_K_M", llama.cpp's names; the last two store the head (in Q4_K_M more
            matrices too) in K-quants, which GGML's own code rounds (package libggml-python).

    Returns:
        The file. `irwm.open_checkpoint` reads it or its folder. To run it in transformers with the model's own
        tokenizer, write `dequantised(file, model_dir, folder)` and open this folder.

    Raises:
        ParameterError: another kind.
        UnsupportedCheckpointError: another format or model type, tensors or rows that do not fit, or the package for
            K-quants is missing.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a readable checkpoint.
    """
    if kind not in FILE_TYPES:
        raise ParameterError("unknown GGUF file type", expected=" or ".join(FILE_TYPES), found=repr(kind))
    model = open_safetensors(model_dir)
    planned = places(model)
    chosen = mixture.formats(planned, kind)
    if (problem := mixture.missing(chosen)) is not None:
        raise UnsupportedCheckpointError(problem, file=model.path, advice=f"pip install {mixture.PACKAGE}")
    with new_folder(out_dir) as out:
        return _write(model, out / f"model-{kind}.gguf", kind, planned, chosen)


def gguf_obstacle(model_dir: str | Path, kind: str = "Q4_K_M") -> str | None:
    """Why `to_gguf` cannot write this model, in a sentence; None if it can. Reads no weights."""
    try:
        return mixture.missing(mixture.formats(places(open_safetensors(model_dir)), kind))
    except UnsupportedCheckpointError as error:
        return error.problem.rstrip(".") + "."


def _write(model: Checkpoint, file: Path, kind: str, planned: list[Place], chosen: list[str]) -> Path:
    import gguf

    rules = convention(model)
    writer = gguf.GGUFWriter(file, rules.architecture)
    writer.add_type("model")
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _write_settings(writer, rules, model.config, model.vocab_size)
    write_vocabulary(writer, rules.writing, folder_of(model), model.config, model.vocab_size)
    factors = _rope_factors(model.config)
    if factors is not None:
        _announce(writer, "rope_freqs.weight", factors.shape, "F32")
    for place, chosen_format in zip(planned, chosen, strict=True):
        _announce(writer, place.name, place.shape, chosen_format)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if factors is not None:
            writer.write_tensor_data(factors)
        for place, chosen_format in zip(planned, chosen, strict=True):
            value = place.there(read_tensor(model.tensors[place.source]).float())
            writer.write_tensor_data(mixture.rounded(value.contiguous(), chosen_format))
    finally:
        writer.close()
    return file


def _announce(writer: gguf.GGUFWriter, name: str, shape: tuple[int, ...], chosen: str) -> None:
    import gguf

    size = mixture.stored_bytes(shape, chosen)
    writer.add_tensor_info(name, shape, np.dtype(np.float32), size, gguf.GGMLQuantizationType[chosen])


def _write_settings(writer: gguf.GGUFWriter, rules: Convention, config: ConfigJson, rows: int) -> None:
    """The hyperparameters that llama.cpp uses."""
    writer.add_vocab_size(rows)
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_context_length(int(config.get("max_position_embeddings") or 2048))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(int(config["num_attention_heads"]))
    if rules.anatomy.rotary != "none":
        _write_attention(writer, config)
    for name, setting in rules.writing.settings.items():
        value = next((config[key] for key in setting.keys if config.get(key)), setting.default)
        name = name.format(arch=rules.architecture)
        if isinstance(setting.default, bool):
            writer.add_bool(name, bool(value))
        elif isinstance(setting.default, int):
            writer.add_uint32(name, int(value))
        else:
            writer.add_float32(name, float(value))


def _write_attention(writer: gguf.GGUFWriter, config: ConfigJson) -> None:
    """The settings that a model with RMS norms and rotary positions needs."""
    heads, head_dim = int(config["num_attention_heads"]), config.get("head_dim")
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_layer_norm_rms_eps(float(config.get("rms_norm_eps", 1e-6)))
    rope = rope_of(config)
    writer.add_rope_freq_base(float(rope["rope_theta"]))
    partial = float(rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
    writer.add_rope_dimension_count(int((head_dim or int(config["hidden_size"]) // heads) * partial))
    if head_dim:
        writer.add_key_length(int(head_dim))
        writer.add_value_length(int(head_dim))


def _rope_factors(config: ConfigJson) -> np.ndarray | None:
    """The divisors of Llama 3.1's rotary frequencies, (head_dim / 2,) float32; None for models without them."""
    rope = rope_of(config)
    if rope.get("rope_type") != "llama3":
        return None
    size = int(config.get("head_dim") or int(config["hidden_size"]) // int(config["num_attention_heads"]))
    context = float(rope["original_max_position_embeddings"])
    factor, low, high = (float(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    waves = 2 * np.pi * float(rope["rope_theta"]) ** (torch.arange(0, size, 2).double().numpy() / size)
    smooth = np.clip((context / waves - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
