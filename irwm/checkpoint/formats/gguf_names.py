"""GGUF's names and settings as those of transformers, and llama.cpp's rearrangements undone.

GGUF has one name for each role a tensor can play, whatever the family: "blk.0.attn_norm.weight". So has a family's
data file here, which is all this module goes by: each role is given the name, and q and k the arrangement, that the
family's own checkpoints have. Only what the layout needs is translated, the embedding and layer 0; everything else
keeps its GGUF name. gguf's own get_tensor_name_map does not serve here: it leads from all spellings of a role to GGUF's
name and not back. What writes GGUF files goes by it (`irwm.attacks.quantisers.converter`).

llama.cpp's converter also does this to the weights:

* a head's rows of q and k are paired in some architectures (`families.family.Architecture`);
* a fused q, k and v always becomes all of q, all of k, all of v, and a transposed matrix is turned round;
* a norm whose gain is one plus what is stored (Gemma, Nemotron) has that one added in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from irwm.checkpoint.formats.gguf_layer import less, projections
from irwm.checkpoint.formats.gguf_settings import Settings
from irwm.checkpoint.ggml import is_block_format
from irwm.checkpoint.tensors import Tensor, TensorEntry
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError, printable
from irwm.families.family import Architecture, Family, NormRole, families

# Files that go with a model and are none, by their own word.
_COMPANIONS = {
    "adapter": ("an adapter", "Merge it into its base model, with llama.cpp's export-lora, and give the result"),
    "mmproj": ("the part of a multimodal model that sees or hears", "Give the file of the language model"),
    "imatrix": ("an importance matrix for quantising", "Give the file of the model"),
}


def translated(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    """Tensors under transformers' names, a config as transformers would write it, and what a person should know.

    Args:
        tensors: a GGUF file's tensors by their names in it.
        metadata: its settings.

    Raises:
        UnsupportedCheckpointError: the file is no model but something that goes with one.
        CorruptCheckpointError: its settings and tensors contradict each other.
    """
    stored = {name: entry for name, entry in tensors.items() if isinstance(entry, TensorEntry)}
    _require_model(stored, metadata)
    settings = Settings.of(metadata, stored)
    found = _family(settings)
    if found is None:
        architecture = printable(settings.architecture, 40)
        return _unknown(
            settings, f"Its architecture, {architecture}, is not known." if architecture else "It names no model."
        )
    family, stored_as = found
    if family.projections is not None and settings.heads is None:
        return _unknown(
            settings,
            f"It does not say how many heads its attention has ({settings.architecture}.attention.head_count).",
        )
    switches = settings.switches(family, stored_as.model_type)
    variant = family.under(switches)
    config = settings.config(variant, stored_as.model_type, tied=_tied(settings, stored_as)) | switches
    done = _Translation(variant, settings, paired=stored_as.paired)
    return done.tensors(), config, done.notes()


def _require_model(stored: Mapping[str, TensorEntry], metadata: Mapping[str, Any]) -> None:
    kind = metadata.get("general.type")
    if isinstance(kind, str) and kind in _COMPANIONS:
        what, advice = _COMPANIONS[kind]
        file = next((entry.file for entry in stored.values()), None)
        raise UnsupportedCheckpointError(
            f"The file is not a model but {what}",
            file=file,
            expected="general.type model",
            found=f"general.type {kind}",
            advice=advice,
        )


def _family(settings: Settings) -> tuple[Family, Architecture] | None:
    """The family of a file, and how it is stored there; where several share an architecture, one that is told apart."""
    fitting = [
        (family, row)
        for family in families()
        if (row := family.gguf.architectures.get(settings.architecture)) is not None
        and (row.counts is None or (settings.count(row.counts) or 0) > 0)
        and (row.lacks is None or row.lacks not in settings.stored)
    ]
    return min(fitting, key=lambda each: each[1].counts is None and each[1].lacks is None, default=None)


def _tied(settings: Settings, stored_as: Architecture) -> bool | None:
    """Whether the output head is the embedding; None leaves it to the model type's default."""
    if "output.weight" not in settings.stored:
        return True
    return None if stored_as.doubled else False


def _unknown(settings: Settings, said: str) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    """Names as they are, but for the embedding's, which every architecture has."""
    tensors: dict[str, Tensor] = dict(settings.stored)
    name = "embed_tokens.weight"
    if "token_embd.weight" in tensors and name not in tensors:
        tensors[name] = tensors.pop("token_embd.weight")
    architecture = settings.architecture
    return tensors, {"model_type": architecture} if architecture else {}, [f"The file is GGUF. {said}"]


class _Translation:
    """Collects the tensors of one file; an object only so that family and settings need not be passed around."""

    def __init__(self, family: Family, settings: Settings, *, paired: bool) -> None:
        self.family = family
        self.settings = settings
        self.paired = paired
        self.left = dict(settings.stored)
        self.named: dict[str, Tensor] = {}
        self.undone: dict[str, None] = {}
        self.body, self.outer = family.prefixes[0].body, family.prefixes[0].head

    def notes(self) -> list[str]:
        undone = "; ".join(self.undone)
        tail = f" Put back into the form of the model's own checkpoints: {undone}." if undone else ""
        return [f"The file is GGUF, its architecture {printable(self.settings.architecture, 40)}.{tail}"]

    def tensors(self) -> dict[str, Tensor]:
        family, layer = self.family, self.settings.layer
        self._move("token_embd.weight", self.body + family.embedding[0])
        if family.head:
            self._move("output.weight", self.outer + family.head[0])
        if family.position is not None:
            self._move("position_embd.weight", self.body + family.position.name)
        if family.token_type is not None:
            self._move("token_types.weight", self.body + family.token_type)
        self._norm(family.embedding_norm, "token_embd_norm")
        # Falcon's two norms: the one in front of the attention is the second in GGUF.
        both = f"{layer}attn_norm_2.weight" in self.left
        self._norm(family.input_norm, f"{layer}attn_norm_2" if both else f"{layer}attn_norm", first=both)
        self._norm(family.q_norm, f"{layer}attn_q_norm")
        self._norm(family.k_norm, f"{layer}attn_k_norm")
        if family.projections is not None:
            for target, tensor, undone in projections(self.settings, family.projections, paired=self.paired):
                self._put(self.body + target, tensor)
                self.undone.update(dict.fromkeys(undone))
                for part in tensor.parts:
                    self.left.pop(part.name, None)
        for name, entry in self.left.items():
            self._put(name, entry)
        return self.named

    def _put(self, name: str, tensor: Tensor) -> None:
        if name in self.named:
            raise CorruptCheckpointError(
                "Two tensors of the file play one role",
                file=tensor.file,
                tensor=name,
                expected="GGUF's name for the role alone",
                found="that and transformers' name",
            )
        self.named[name] = tensor

    def _move(self, name: str, target: str) -> None:
        entry = self.left.pop(name, None)
        if entry is None:
            return
        if name == "token_types.weight" and len(entry.shape) == 1:  # of a single type, squeezed by older converters
            entry = replace(entry, shape=(1, *entry.shape))
        self._put(target, entry)

    def _norm(self, role: NormRole | None, name: str, *, first: bool = True) -> None:
        """Moves a norm; `first` takes the first of the role's names, else the last."""
        if role is None:
            return
        for kind, targets in (("weight", role.weight), ("bias", role.bias)):
            entry = self.left.get(f"{name}.{kind}")
            if entry is None or not targets:
                continue
            del self.left[f"{name}.{kind}"]
            target = self.body + targets[0 if first else -1]
            stacked = len(entry.shape) == 2 and entry.shape[0] in (self.settings.heads, self.settings.kv_heads)
            if role.gain == "a tensor per head" and kind == "weight" and stacked and not is_block_format(entry.dtype):
                self._put_heads(target, entry)
            elif role.offset and kind == "weight":
                self._put(target, less(role.offset, entry, target))
                self.undone[f"the {role.offset:g} that was added to the gains of the norms"] = None
            else:
                self._put(target, entry)

    def _put_heads(self, target: str, entry: TensorEntry) -> None:
        """One stacked tensor of gains as one tensor per head."""
        row = entry.nbytes // entry.shape[0]
        for head in range(entry.shape[0]):
            start = entry.start + head * row
            self._put(
                target.replace("{head}", str(head)),
                replace(entry, shape=entry.shape[1:], start=start, stop=start + row),
            )
        self.undone["the stacking of the heads' norms"] = None
