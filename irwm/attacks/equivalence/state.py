"""A whole model in memory while it is being disguised: read once, changed in float64, rounded once on saving."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from irwm.attacks.rewrite import COMPANIONS
from irwm.checkpoint import find_files
from irwm.checkpoint.layout import CONFIG_NAME, INDEX_NAME, WHOLE_NAME, require_safetensors
from irwm.errors import ParameterError, PublishError, UnsupportedCheckpointError
from irwm.families.configvalues import ConfigJson
from irwm.release.partial import partial_folder, require_absent

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
# The largest real tokenizer.json files have about 35 MB.
_MAX_COMPANION_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A model between reading and writing. Transforms return a new state and never change tensors in place.

    Attributes:
        config: config.json's content.
        tensors: by name, in the files' own orientation; floating ones in float64, so that a composition of many
            transforms is rounded only once. On the "meta" device where only shapes were read.
        dtypes: the dtype to which each floating tensor is rounded on saving.
        files: companion files by their path inside the folder, such as "tokenizer.json"; config.json not included.
        metadata: the safetensors file's string metadata.
        token_ids: int64 (vocabulary at reading,), the present row of each token that the model was read with, -1
            where it was trimmed; None until a transform moves rows. Tests compare alignments with it.
    """

    config: ConfigJson
    tensors: Mapping[str, torch.Tensor]
    dtypes: Mapping[str, torch.dtype]
    files: Mapping[str, bytes]
    metadata: Mapping[str, str]
    token_ids: torch.Tensor | None = None

    def json(self, name: str) -> Any:
        """The companion `name` as parsed JSON, a fresh copy; None where the file is missing or not JSON."""
        if name not in self.files:
            return None
        try:
            return json.loads(self.files[name])
        except ValueError:
            return None


def read_state(model_dir: str | Path, *, weights: bool = True) -> State:
    """The model in `model_dir`.

    Args:
        model_dir: a folder, or one .safetensors file.
        weights: False reads only names, shapes and dtypes, which is enough to check which transforms apply.

    Raises:
        CheckpointError: not a readable checkpoint.
        UnsupportedCheckpointError: another format than safetensors, or a tensor in a quantised number format.
    """
    found = find_files(model_dir)
    require_safetensors(found.format, found.path, "attacked")
    tensors: dict[str, torch.Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    metadata: dict[str, str] = {}
    for shard in found.shards:
        with safe_open(shard, "pt") as file:
            metadata |= file.metadata() or {}
            for name in file.keys():
                tensor = file.get_tensor(name) if weights else _shape_only(file.get_slice(name))
                if tensor.is_floating_point():
                    if tensor.dtype not in DTYPES.values():
                        raise UnsupportedCheckpointError(
                            "The tensor is quantised, but transforms need plain numbers",
                            file=shard,
                            tensor=name,
                            expected=", ".join(DTYPES),
                            found=str(tensor.dtype),
                            advice="Dequantise the model and save it as float32, float16 or bfloat16",
                        )
                    dtypes[name] = tensor.dtype
                    tensor = tensor.to(torch.float64)
                tensors[name] = tensor
    return State(deepcopy(dict(found.config)), tensors, dtypes, _companions(found.folder), metadata)


def write_state(state: State, out_dir: str | Path, dtype: str | None = None) -> Path:
    """Write the model as one safetensors file with its config and companions, atomically.

    Args:
        state: the model.
        out_dir: a new folder; parents are created.
        dtype: the number format of stored floating tensors, "float16", "bfloat16", "float32" or "float64"; None for
            each tensor's own.

    Raises:
        OutputExistsError: `out_dir` exists.
        ParameterError: an unknown dtype, or one too narrow for the model's numbers.
        PublishError: the folder cannot be written.
    """
    out = Path(out_dir)
    require_absent(out)
    state = with_dtype(state, dtype) if dtype is not None else state
    stored = {name: _rounded(name, tensor, state.dtypes.get(name)) for name, tensor in state.tensors.items()}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with partial_folder(out) as partial:
            for name, content in state.files.items():
                target = partial.path / name
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
            config = json.dumps(state.config, indent=2, ensure_ascii=False)
            (partial.path / CONFIG_NAME).write_text(config + "\n", encoding="utf-8")
            save_file(stored, partial.path / WHOLE_NAME, metadata={"format": "pt", **state.metadata})
            partial.publish()
    except OSError as error:
        raise PublishError(
            "the model could not be written", file=out, found=str(error), advice="Choose another folder"
        ) from error
    return out


def with_dtype(state: State, dtype: str) -> State:
    """The model with every floating tensor, and the config, set to be stored as `dtype`.

    Raises:
        ParameterError: an unknown dtype.
    """
    if dtype not in DTYPES:
        raise ParameterError("unknown number format", expected=", ".join(DTYPES), found=dtype)
    config = dict(state.config)
    for key in ("dtype", "torch_dtype"):  # the name transformers gives the key since 4.56, and the one before
        if key in config:
            config[key] = dtype
    return replace(state, config=config, dtypes=dict.fromkeys(state.dtypes, DTYPES[dtype]))


def _shape_only(piece: Any) -> torch.Tensor:
    # An empty slice has the dtype and reads nothing; a 0-d tensor has no slices.
    shape = piece.get_shape()
    dtype = piece[:0].dtype if shape else torch.float32
    return torch.empty(shape, dtype=dtype, device="meta")


def _companions(folder: Path) -> dict[str, bytes]:
    """The tokenizer and other companions, also those of sentence-transformers in folders such as 1_Pooling."""
    found: dict[str, bytes] = {}
    for file in sorted([*folder.glob("*"), *folder.glob("*/config.json")]):
        name = file.relative_to(folder).as_posix()
        if file.suffix in COMPANIONS and name not in (CONFIG_NAME, INDEX_NAME) and file.is_file():
            if file.stat().st_size > _MAX_COMPANION_BYTES:
                raise UnsupportedCheckpointError(
                    "A companion file is too large",
                    file=file,
                    expected=f"at most {_MAX_COMPANION_BYTES} bytes",
                    found=f"{file.stat().st_size} bytes",
                    advice="Move this file out of the model's folder",
                )
            found[name] = file.read_bytes()
    return found


def _rounded(name: str, tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    if dtype is None:
        return tensor.contiguous()
    rounded = tensor.to(dtype).contiguous()
    if not torch.equal(rounded.isfinite(), tensor.isfinite()):
        raise ParameterError(
            "a weight is too large for the number format",
            tensor=name,
            expected=f"at most {torch.finfo(dtype).max:g}",
            found=f"{tensor.abs().nan_to_num(posinf=0.0).max().item():g}",
            advice="Store the result as bfloat16 or float32, or use a smaller factor",
        )
    return rounded
