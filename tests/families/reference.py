"""Tiny models of every family, made and run by transformers: the reference for computations from files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    T5ForConditionalGeneration,
    T5GemmaForConditionalGeneration,
)

from tests.families.cases import CASES, WRAPPERS

# Families that transformers lacks: a Llama written under their names, with q, k and v fused.
FOREIGN = {"internlm2", "baichuan"}
_MASKED = {
    *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "modernbert", "eurobert", "deberta-v2", "electra")
}
# Language models that transformers loads only inside a multimodal one.
_INSIDE_ONLY = {"qwen3_omni_moe_text": "qwen3_omni_moe_thinker", "step3p5": "step3p7", "mllama_text_model": "mllama"}
_ENCODER_DECODERS = {
    **dict.fromkeys(("t5", "mt5", "umt5"), T5ForConditionalGeneration), "t5gemma": T5GemmaForConditionalGeneration
}  # fmt: skip
# They multiply q or k by the softmax's factor before the product, the others multiply the product.
_SCALED_BEFORE = {"opt", "deberta-v2"}

_ATTENTION = re.compile(
    r"(^|\.)(h|layer|layers|block|blocks)\.0\..*\b(self_attn|attn|attention|self_attention|SelfAttention)$"
)


def tiny_model(case: str, seed: int = 0) -> torch.nn.Module:
    """The case's model, float32, every parameter random: initial norms are ones and biases zeros, which hide
    mistakes."""
    model_type, settings = CASES[case]
    torch.manual_seed(seed)
    if model_type in FOREIGN:
        model_type, settings = "llama", {**settings, "attention_bias": settings.get("bias", False)}
    if model_type in _INSIDE_ONLY:
        return wrapped_model(_INSIDE_ONLY[model_type], seed)
    config = CONFIG_MAPPING[model_type](**settings)
    made = _ENCODER_DECODERS.get(model_type) or class_of(config)
    return randomise(made(config))


def wrapped_model(wrapper: str, seed: int = 0) -> torch.nn.Module:
    """A multimodal model with the language model of a case inside, float32, every parameter random."""
    case, rest = WRAPPERS[wrapper]
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[wrapper](text_config=config_of(case), **rest)
    return randomise(class_of(config, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)(config))


def class_of(config: Any, first: Any = MODEL_FOR_CAUSAL_LM_MAPPING) -> Any:
    """The class with a head; the bare one for the text part of a multimodal model, which has none."""
    first = MODEL_FOR_MASKED_LM_MAPPING if config.model_type in _MASKED else first
    mappings = (first, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, MODEL_MAPPING)
    return next(mapping for mapping in mappings if type(config) in mapping)[type(config)]


def randomise(model: torch.nn.Module) -> torch.nn.Module:
    """The model with all parameters random."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if re.search(r"norm|ln_|_ln|LayerNorm", name) and name.endswith("weight"):
                parameter.copy_(0.3 + torch.rand_like(parameter))
            elif name.endswith("bias"):
                parameter.copy_(0.5 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.1 * torch.randn_like(parameter))
    return model.eval()


def save(case: str, folder: Path, dtype: torch.dtype) -> Path:
    model = tiny_model(case).to(dtype)
    if CASES[case][0] in FOREIGN:
        folder.mkdir()
        save_file({n: t.contiguous() for n, t in _foreign(case, model).items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({**config_of(case), "dtype": str(dtype).removeprefix("torch.")}))
    else:
        model.save_pretrained(folder)
    return folder


def load_as_float32(folder: Path, dtype: torch.dtype | None = None) -> torch.nn.Module:
    """The saved model in float32, computing with the constants of the dtype that it was saved in."""
    model = AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, attn_implementation="eager"
    ).eval()
    embedding = model.get_input_embeddings()
    if isinstance(getattr(embedding, "embed_scale", None), torch.Tensor):
        saved_for = AutoModel.from_pretrained(folder, local_files_only=True).dtype
        embedding.embed_scale = embedding.embed_scale.to(saved_for).float()
    return model


def running_model(case: str, folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    """Computes the case's true scores from the numbers in the files."""
    if CASES[case][0] in FOREIGN:
        model = tiny_model(case).to(dtype).float()
        model.set_attn_implementation("eager")
        return model
    return load_as_float32(folder)


class _FirstProduct(TorchFunctionMode):
    """Captures the operands of the first batched product of q with k; rotation and norms have other operations."""

    PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm)
    ADDED_PRODUCTS = (torch.baddbmm, torch.Tensor.baddbmm)

    def __init__(self) -> None:
        super().__init__()
        self.caught: tuple[torch.Tensor, torch.Tensor] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.caught is None and func in self.PRODUCTS and min(args[0].dim(), args[1].dim()) >= 3:
            self.caught = args[0], args[1].transpose(-1, -2)
        if self.caught is None and func in self.ADDED_PRODUCTS:
            operands = [*args, *(kwargs[name] for name in ("batch1", "batch2") if name in kwargs)][-2:]
            self.caught = operands[0], operands[1].transpose(-1, -2)
        return func(*args, **kwargs)


@contextmanager
def _catching(model: torch.nn.Module) -> Iterator[_FirstProduct]:
    """Records layer 0's attention while it runs."""
    attention = next(module for name, module in model.named_modules() if _ATTENTION.search(name))
    mode = _FirstProduct()
    before = attention.register_forward_pre_hook(lambda *_: mode.__enter__() and None)
    after = attention.register_forward_hook(lambda *_: mode.__exit__(None, None, None))
    yield mode
    before.remove()
    after.remove()


def model_scores(model: torch.nn.Module, queries: list[int], references: list[int]) -> torch.Tensor:
    """A as the running model computes it, (t, d) float64.

    Each token is a separate sequence, so it is at position 0, where rotary embedding has no effect: the q and k that
    the model multiplies are those before rotary.
    """
    model = getattr(model, "encoder", model) if model.config.model_type in _ENCODER_DECODERS else model
    model = getattr(model, "language_model", model)
    tokens = torch.tensor([*queries, *references])[:, None]
    with torch.no_grad(), _catching(model) as mode:
        model(input_ids=tokens)
    assert mode.caught is not None
    n, size = len(tokens), mode.caught[0].shape[-1]
    q, k = (x.reshape(n, -1, size).double() for x in mode.caught)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = torch.einsum("ihe,khe->ik", q[: len(queries)], k[len(queries) :])
    return scores * size**0.5 if model.config.model_type in _SCALED_BEFORE else scores


def _foreign(case: str, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The Llama's tensors under the family's names."""
    model_type, settings = CASES[case]
    heads, kv_heads = settings["num_attention_heads"], settings.get("num_key_value_heads")
    tensors = dict(model.state_dict())
    for layer in range(settings["num_hidden_layers"]):
        stem = f"model.layers.{layer}."
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"{stem}self_attn.{p}_proj.{kind}", None) for p in "qkv"]
            if parts[0] is None:
                continue
            if model_type == "baichuan":
                tensors[f"{stem}self_attn.W_pack.{kind}"] = torch.cat(parts)
            else:
                # One key head after another: the queries that read it, its key, its value.
                size = settings["hidden_size"] // heads
                split = [p.view(kv_heads, -1, size, *p.shape[1:]) for p in parts]
                tensors[f"{stem}attention.wqkv.{kind}"] = torch.cat(split, dim=1).reshape(-1, *parts[0].shape[1:])
    if model_type == "baichuan":
        return tensors
    renamed = {
        **{"embed_tokens": "tok_embeddings", "lm_head": "output", "self_attn.o_proj": "attention.wo"},
        **{"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"},
        **{f"mlp.{old}_proj": f"feed_forward.{new}" for old, new in (("gate", "w1"), ("down", "w2"), ("up", "w3"))},
    }
    for old, new in renamed.items():
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    return tensors


def shapes_of(case: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes as the case's files hold them: a tied head is not stored."""
    return dict(_shapes(case))


@cache
def _shapes(case: str) -> dict[str, tuple[int, ...]]:
    model = tiny_model(case)
    tied = set(model.all_tied_weights_keys)
    tensors = _foreign(case, model) if CASES[case][0] in FOREIGN else model.state_dict()
    return {name: tuple(tensor.shape) for name, tensor in tensors.items() if name not in tied}


def config_of(case: str) -> dict[str, Any]:
    model_type, settings = CASES[case]
    return {"model_type": model_type, **settings}
