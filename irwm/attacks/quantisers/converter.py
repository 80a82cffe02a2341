"""Each tensor's name and arrangement in a GGUF file, as llama.cpp's converter writes it.

The names are gguf's own. The other steps of the converter are under `gguf` in the family's data file; the tests compare
them with transformers' own GGUF loader. `irwm.checkpoint.formats.gguf_translation` undoes only layer 0; this module
converts the whole model, in both directions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from irwm.checkpoint import Checkpoint, TensorEntry
from irwm.errors import UnsupportedCheckpointError, printable
from irwm.families.configvalues import ConfigJson
from irwm.families.family import Anatomy, Family, Writing, anatomy_of, dissected, family_of


@dataclass(frozen=True, slots=True)
class Convention:
    """How one model type is written.

    Attributes:
        family, anatomy, writing: its entry in irwm/families/data.
        architecture: llama.cpp's name for it.
        paired: whether a head's rows of q and k are interleaved in pairs, as llama.cpp's rotary embedding needs.
    """

    family: Family
    anatomy: Anatomy
    writing: Writing
    architecture: str
    paired: bool


# Kinds of rotary embedding whose settings in a GGUF file are known.
_ROPES = ("default", "llama3")


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a tensor in the file.

    Attributes:
        source: its name in the model folder.
        name: its name in the GGUF file.
        shape: the same in both.
        heads: number of heads whose rows are paired; 0 for none.
        added: the number added to every entry.
    """

    source: str
    name: str
    shape: tuple[int, ...]
    heads: int = 0
    added: float = 0.0

    def there(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor as the file holds it."""
        if self.heads:
            value = value.reshape(self.heads, 2, -1, *value.shape[1:]).transpose(1, 2).reshape(value.shape)
        return value + self.added if self.added else value

    def back(self, value: torch.Tensor) -> torch.Tensor:
        """The file's tensor as the model holds it."""
        value = value - self.added if self.added else value
        if self.heads:
            value = value.reshape(self.heads, -1, 2, *value.shape[1:]).transpose(1, 2).reshape(value.shape)
        return value


def convention(model: Checkpoint) -> Convention:
    """The convention of a model's type.

    Raises:
        UnsupportedCheckpointError: there is no convention for it.
    """
    model_type = model.config.get("model_type")
    found = _convention(model_type)
    if found is None:
        written = [known for known in dissected() if _convention(known) is not None]
        raise UnsupportedCheckpointError(
            f"GGUF files can be written only for models of the types {', '.join(written)}; "
            f"the type of this model is {printable(str(model_type), 40) if model_type else 'not stated in its config'}",
            file=model.path,
        )
    kind = rope_of(model.config).get("rope_type", "default")
    if kind not in _ROPES or (kind == "llama3" and not found.paired):
        raise UnsupportedCheckpointError(
            f"Writing position embeddings of type {printable(str(kind), 40)} to a GGUF file is not supported",
            file=model.path,
            expected=" or ".join(_ROPES),
            found=printable(str(kind), 40),
        )
    return found


def _convention(model_type: object) -> Convention | None:
    family, anatomy = family_of(model_type), anatomy_of(model_type)
    if family is None or anatomy is None or family.gguf.writing is None:
        return None
    architecture, stored_as = family.gguf.stored_as(str(model_type))
    return Convention(family, anatomy, family.gguf.writing, architecture, stored_as.paired)


def places(model: Checkpoint) -> list[Place]:
    """The place of every tensor of the model, in the order of the file.

    Raises:
        UnsupportedCheckpointError: the model's type, or a tensor, has no place in a GGUF file.
    """
    import gguf

    rules, config = convention(model), model.config
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == rules.architecture)
    names = gguf.get_tensor_name_map(arch, int(config["num_hidden_layers"]))
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    spec, norm = rules.family.projections, rules.family.input_norm
    rows = {rules.family.module(spec.q): heads, rules.family.module(spec.k): kv_heads} if spec and rules.paired else {}
    found = []
    for source, tensor in model.tensors.items():
        bare = source.removeprefix(rules.writing.prefix)
        if re.search(rules.writing.left_out, bare) or (model.tied and bare in rules.family.head):
            continue
        name = names.get_name(bare, try_suffixes=(".weight", ".bias"))
        if name is None or not isinstance(tensor, TensorEntry):
            shown = printable(source, 80)
            unnamed, quantised = (
                f"The tensor {shown} has no GGUF name",
                f"The tensor {shown} is already quantised",
            )
            raise UnsupportedCheckpointError(unnamed if name is None else quantised, file=model.path, tensor=source)
        parted = next((count for module, count in rows.items() if bare.rpartition(".")[0].endswith(f".{module}")), 0)
        added = norm.offset if norm is not None and bare.endswith("norm.weight") else 0.0
        found.append(Place(source, name, tensor.shape, parted, added))
    return sorted(found, key=lambda place: _order(place.name))


def _order(name: str) -> tuple[int, str]:
    """Embedding first, then layer by layer, then the rest."""
    layer = re.match(r"blk\.(\d+)\.", name)
    return (int(layer[1]) if layer else 1_000_000 if name.startswith("output") else -1, name)


def rope_of(config: ConfigJson) -> ConfigJson:
    """The settings of the rotary embedding, as any version of transformers states them."""
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if "type" in found:
        found.setdefault("rope_type", found["type"])
    found.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    return found
