"""A low-rank adapter (LoRA) on its base model: the base with the adapter's changes applied.

Neither is written or merged: the result is a `Checkpoint` that computes changed weights when they are read. The caller
must give the base. An adapter names one itself, but that path comes from an untrusted file and is not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from irwm.checkpoint.files import listed, open_regular, read_json_object, require_inside, resolved
from irwm.checkpoint.formats import PYTORCH, SAFETENSORS, Format, ReadBudget
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.lora import EMBEDDING_A, EMBEDDING_B, LENGTHS, TOKENS, WHOLE, A, B, Change, changed, crosswise
from irwm.checkpoint.model import Checkpoint, is_examined
from irwm.checkpoint.tensors import Tensor
from irwm.checkpoint.weight_sets import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError, path_from, printable
from irwm.families import names_an_embedding
from irwm.families.building import layer0
from irwm.families.configvalues import shown
from irwm.families.family import families

# The format of an adapted checkpoint, which can be examined but not marked.
ADAPTER = Format("LoRA adapter", (), None, None, read_safetensors)
MERGE = "First merge the adapter into its base model with peft's merge_and_unload. Then open the result"
# Real ones have a few kB; those that adapt all linear layers of a mixture of experts may list thousands of names.
_MAX_CONFIG_BYTES = 8 * 1024 * 1024
_ROLES = {
    "lora_A": A,
    "lora_B": B,
    "lora_embedding_A": EMBEDDING_A,
    "lora_embedding_B": EMBEDDING_B,
    "lora_magnitude_vector": LENGTHS,
}
# MLX transposes the two factors, except those of an embedding.
_MLX_ROLES = {"lora_a": A, "lora_b": B, "m": LENGTHS}
_MLX_KINDS = ("lora", "dora", "full")
_MLX_SCALE = 20.0
# Settings that change the meaning of the tensors, or the base itself.
_UNREAD = (
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "monteclora_config",
    "use_bdlora",
    "use_qalora",
    "velora_config",
)
# Initialisations of A and B that do not change the base; others subtract the initial product from the base.
_PLAIN_STARTS = ("gaussian", "eva", "orthogonal")
# A pattern of alphas is a regular expression, which could run forever. Only plain names are accepted.
_PLAIN_PATTERN = re.compile(r"\^?[\w.\\]+\$?", re.ASCII)
# How many targets are used to find out how the base spells their names.
_TRIED = 64
# Denotes the output head of a base that stores its tied embedding under the head's name.
_HEAD = ""


def is_adapter(path: str | Path) -> bool:
    """Whether `path` is a folder with an adapter, or the adapter's weight file. The folder may also contain a model's
    weights."""
    path = path_from(path)
    if path.name in ADAPTER_WEIGHTS:
        return os.path.lexists(path.parent / ADAPTER_CONFIG)
    return any(os.path.lexists(path / name) for name in (ADAPTER_CONFIG, *ADAPTER_WEIGHTS))


def adapted(path: Path, base: Checkpoint | None) -> Checkpoint:
    """`base` with the adapter in the folder `path` applied; no weight is read.

    Args:
        path: the folder, or the adapter's weight file in it.
        base: the model that the adapter was trained on.

    Raises:
        UnsupportedCheckpointError: no base given, or an unsupported type of adapter.
        CorruptCheckpointError: the adapter was made for another model, or its files break the rules.
        NotACheckpointError: a file is missing or unreadable.
        CheckpointChangedError: a file shrank while it was read.
    """
    folder = resolved(path.parent if path.name in ADAPTER_WEIGHTS else path)
    config = _Config.of(folder)
    if base is None:
        raise UnsupportedCheckpointError(
            "The folder contains an adapter, which can be read only together with its base model",
            file=folder,
            expected="both the adapter and its base model",
            found=f"only an adapter for {printable(config.base)}" if config.base else "only an adapter",
            advice="Choose the base model as the original (in Python: open_checkpoint(path, base=...)), or first merge "
            "the adapter into the base model",
        )
    names = (path.name,) if path.name in ADAPTER_WEIGHTS else ADAPTER_WEIGHTS
    weights = next((folder / name for name in names if os.path.lexists(folder / name)), None)
    if weights is None:
        raise CorruptCheckpointError(
            "The adapter's weights are missing",
            file=folder,
            expected=" or ".join(ADAPTER_WEIGHTS),
            found="neither",
            advice="Download the missing file",
        )
    require_inside(weights, folder)
    format = SAFETENSORS if SAFETENSORS.owns(weights.name) else PYTORCH
    content = format.read(weights, ReadBudget(folder))
    pieces = _pieces(content.tensors, weights) if config.scale is None else _mlx_pieces(content.tensors)
    places = _places(pieces, base, weights)
    resizable = {ref.name for ref in (base.layout.embedding, base.layout.head) if ref is not None}
    tensors = dict(base.tensors)
    # Weights in unsupported formats cannot be changed.
    places = {target: name for target, name in places.items() if is_examined(base.tensors[name])}
    for target, name in places.items():
        change = config.change(target, pieces[target])
        tensors[name] = changed(name, base.tensors[name], change, resizable=name in resizable)
    embedding = tensors[base.layout.embedding.name]
    return Checkpoint(
        path=folder,
        config=base.config,
        tensors=tensors,
        shards=(weights, folder / ADAPTER_CONFIG),
        notes=(*base.notes, *content.notes, *_notes(config, base, pieces, places)),
        unread_tensors=tuple(_kept_heads(base, pieces, places)),
        layout=replace(base.layout, vocab_size=embedding.shape[0]),
        bytes_total=sum(_size(file) for file in (weights, folder / ADAPTER_CONFIG)),
        format=ADAPTER,
        metadata=base.metadata,
        base=base,
    )


def _size(file: Path) -> int:
    with open_regular(file) as (_, seen):
        return seen.size


def _pieces(tensors: Mapping[str, Tensor], weights: Path) -> dict[str, dict[str, Tensor]]:
    """The adapter's tensors by role, for each weight that they change, named as in the adapter."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        target, role = _meaning(name, weights)
        if role in found.setdefault(target, {}):
            raise CorruptCheckpointError(
                "The adapter contains two tensors with the same role",
                file=weights,
                tensor=name,
                expected="one",
                found=f"a second one, {printable(found[target][role].name)}",
            )
        found[target][role] = tensor
    return found


def _mlx_pieces(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The same for an adapter from MLX: `lora_a` (in, r) and `lora_b` (r, out); for an embedding (vocabulary, r) and
    (r, width)."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        role = _MLX_ROLES.get(last)
        if role is None:
            found.setdefault(name, {})[WHOLE] = tensor
            continue
        target = f"{stem}.weight"
        if role != LENGTHS and names_an_embedding(target):
            role = A if role == B else B
        elif role != LENGTHS:
            tensor = crosswise(tensor)
        found.setdefault(target, {})[role] = tensor
    return found


def _meaning(name: str, weights: Path) -> tuple[str, str]:
    """The name of the weight that a tensor changes, and the tensor's role in the change."""
    parts = name.removeprefix("base_model.model.").split(".")
    for place, part in enumerate(parts):
        # The rest is "weight" and, in early files, the adapter's name.
        plain = parts[place + 1 :] in ([], ["weight"], ["default"], ["default", "weight"])
        if part in _ROLES and plain:
            return ".".join([*parts[:place], "weight"]), _ROLES[part]
        if part == "token_adapter" and parts[place + 1 : place + 2] == ["trainable_tokens_delta"]:
            return ".".join([*parts[:place], "weight"]), TOKENS
        if part.startswith(("lora_", "token_adapter")):
            raise UnsupportedCheckpointError(
                "The adapter contains a tensor of an unsupported type",
                file=weights,
                tensor=name,
                expected=", ".join(_ROLES),
                found=part,
                advice=MERGE,
            )
    # Names of layers that are saved in full may contain peft's wrappers.
    return ".".join(part for part in parts if part not in ("base_layer", "modules_to_save", "default")), WHOLE


def _places(pieces: Iterable[str], base: Checkpoint, weights: Path) -> dict[str, str]:
    """The adapter's targets with their names in the base. Omits targets that the base lacks, and the output head of a
    base that stores its embedding under the head's name.

    The two may use different prefixes for the language model; the replacement of prefixes that fits best is used.

    Raises:
        CorruptCheckpointError: the base has none of the targets, or lacks a target in attention or the embedding.
    """
    targets = list(pieces)
    bodies = ["", *dict.fromkeys(prefix.body for family in families() for prefix in family.prefixes if prefix.body)]

    stands_in = _under_head(base)

    def name_of(target: str, drop: str, add: str) -> str:
        name = add + target.removeprefix(drop)
        if stands_in is None:
            return name
        # The base stores its tied embedding as the head: changes of the embedding apply to that tensor, changes of the
        # head do not.
        if name == base.layout.embedding.name:
            return _HEAD
        return base.layout.embedding.name if name == stands_in else name

    exchanges = [("", ""), *((drop, add) for drop in bodies for add in bodies if drop != add)]
    drop, add = max(exchanges, key=lambda each: sum(name_of(t, *each) in base.tensors for t in targets[:_TRIED]))
    places = {target: name_of(target, drop, add) for target in targets if name_of(target, drop, add) in base.tensors}
    kept = [target for target in targets if name_of(target, drop, add) == _HEAD]
    lost = [target for target in targets if target not in places and target not in kept]
    needed = [target for target in lost if ("att" in target.lower() and ".0." in target) or "embed" in target.lower()]
    if needed or not (places or kept) or len(set(places.values())) < len(places):
        raise CorruptCheckpointError(
            "The adapter targets weights that the base model does not contain",
            file=weights,
            tensor=next(iter(needed or lost or targets), None),
            expected=f"weights of {base.path.name}, a {base.family} model",
            found=listed(needed or lost or targets) or "no tensor",
            advice="Provide the base model that the adapter was trained on",
        )
    return places


def _under_head(base: Checkpoint) -> str | None:
    """The name that the embedding would have, if the base stores it under its output head's name; else None."""
    for family in families():
        if family.name == base.family:
            for prefix in family.prefixes:
                heads = [prefix.head + head for head in family.head]
                here = layer0(family)[:1]
                if base.layout.embedding.name in heads and all(prefix.body + name in base.tensors for name in here):
                    return prefix.body + family.embedding[0]
    return None


def _kept_heads(base: Checkpoint, pieces: Iterable[str], places: Mapping[str, str]) -> list[str]:
    """The adapter's own output heads, if the base stores its embedding under the head's name."""
    if _under_head(base) is None:
        return []
    return [target for target in pieces if target not in places and target.endswith(base.layout.embedding.name)]


def _notes(config: _Config, base: Checkpoint, pieces: Mapping[str, object], places: Mapping[str, str]) -> list[str]:
    layout = base.layout
    roles = (("the embedding", layout.embedding), ("q", layout.q), ("k", layout.k))
    touched = [role for role, ref in roles if ref is not None and ref.name in places.values()]
    what = " and ".join(filter(None, (", ".join(touched[:-1]), *touched[-1:])))
    notes = [
        f"This is a LoRA adapter. It was applied in memory to {what} of its base model, {printable(base.path.name)}."
        if touched
        else "This is a LoRA adapter that changes neither the embedding nor layer 0's q and k. "
        f"Only its base model, {printable(base.path.name)}, is read."
    ]
    if config.base:
        notes.append(f"The adapter's config names {printable(config.base)} as the base model.")
    heads = _kept_heads(base, pieces, places)
    if heads:
        notes.append(
            "The adapter changes the output head. The base model stores its embedding under the name of the output "
            "head; this embedding was not changed."
        )
    lost = len(pieces) - len(places) - len(heads)
    if lost:
        notes.append(
            "Some weights that the adapter changes were left out because the base model does not contain them or they "
            f"are not supported: {lost}."
        )
    return notes


@dataclass(frozen=True, slots=True)
class _Config:
    """The content of adapter_config.json, validated.

    Attributes:
        file: the config.
        base: the base that it names; "" without one.
        alpha: alpha of weights that match no pattern.
        alphas: alpha by the last part of a module's name.
        stabilised: rank-stabilised LoRA.
        turned: weights are stored as (in, out).
        tokens: the token ids whose rows peft's trainable tokens replace, by the last part of a module's name.
        scale: the factor s that MLX states; None for peft.
    """

    file: Path
    base: str
    alpha: float
    alphas: Mapping[str, float]
    stabilised: bool
    turned: bool
    tokens: Mapping[str, tuple[int, ...]]
    scale: float | None = None

    @classmethod
    def of(cls, folder: Path) -> _Config:
        """Reads the config in the adapter's folder.

        Raises:
            UnsupportedCheckpointError: an unsupported type of adapter.
            CorruptCheckpointError: invalid values.
            NotACheckpointError: the file does not exist.
        """
        file = folder / ADAPTER_CONFIG
        found = read_json_object(file, _MAX_CONFIG_BYTES, "adapter's config", folder=folder)
        if "fine_tune_type" in found or "lora_parameters" in found:
            return cls._of_mlx(file, found)
        kind = found.get("peft_type")
        if not isinstance(kind, str) or kind.upper() != "LORA":
            raise _unread(file, "This type of adapter is not supported", "LORA", shown(kind))
        for key in _UNREAD:
            if found.get(key):
                raise _unread(
                    file, f"The adapter's {key} is not supported", f"an adapter without {key}", f"{key} is set"
                )
        start = found.get("init_lora_weights", True)
        if not isinstance(start, bool | None) and start not in _PLAIN_STARTS:
            problem = "Adapters whose initialisation also changes the base model are not supported"
            raise _unread(file, problem, "true, gaussian, eva or orthogonal", shown(start))
        base = found.get("base_model_name_or_path")
        return cls(
            file=file,
            base=base if isinstance(base, str) else "",
            alpha=_number(file, "lora_alpha", found.get("lora_alpha", 8)),
            alphas=_alphas(file, found.get("alpha_pattern") or {}),
            stabilised=_switch(file, "use_rslora", found.get("use_rslora")),
            turned=_switch(file, "fan_in_fan_out", found.get("fan_in_fan_out")),
            tokens=_tokens(file, found.get("trainable_token_indices") or {}),
        )

    @classmethod
    def _of_mlx(cls, file: Path, found: Mapping[str, object]) -> _Config:
        kind, given = found.get("fine_tune_type", "lora"), found.get("lora_parameters") or {}
        if kind not in _MLX_KINDS:
            raise _unread(file, "This type of adapter is not supported", ", ".join(_MLX_KINDS), shown(kind))
        if not isinstance(given, dict):
            raise _unusable(file, "lora_parameters", "an object", given)
        base, scale = found.get("model"), _number(file, "scale", given.get("scale", _MLX_SCALE))
        return cls(file, base if isinstance(base, str) else "", 1.0, {}, False, False, {}, scale)

    def change(self, target: str, pieces: Mapping[str, Tensor]) -> Change:
        """The change to the weight that the adapter calls `target`."""
        module = target.removesuffix(".weight")
        alpha = next((alpha for end, alpha in self.alphas.items() if _ends(module, end)), self.alpha)
        tokens = next((ids for end, ids in self.tokens.items() if _ends(module, end)), ())
        tokens = tokens if TOKENS in pieces else ()
        return Change(pieces, alpha, self.stabilised, self.turned, tokens, self.scale)


def _alphas(file: Path, patterns: object) -> dict[str, float]:
    if not isinstance(patterns, dict):
        raise _unusable(file, "alpha_pattern", "an object", patterns)
    for pattern in patterns:
        if not _PLAIN_PATTERN.fullmatch(pattern):
            problem = (
                "The adapter's alpha_pattern contains a pattern other than a module's name, which is not supported"
            )
            raise _unread(file, problem, "the end of a module's name", printable(pattern, 80))
    # "^" anchors a pattern at the beginning of the name, as "." in front of it would require a whole word.
    return {
        pattern.removesuffix("$").replace("\\", ""): _number(file, "alpha_pattern", alpha)
        for pattern, alpha in patterns.items()
    }


def _tokens(file: Path, stated: object) -> dict[str, tuple[int, ...]]:
    named = {"embed_tokens": stated} if isinstance(stated, list) else stated
    if not isinstance(named, dict):
        raise _unusable(file, "trainable_token_indices", "token ids", stated)
    for ids in named.values():
        if not isinstance(ids, list) or not all(type(id) is int and id >= 0 for id in ids) or len(set(ids)) < len(ids):
            raise _unusable(file, "trainable_token_indices", "distinct token ids", ids)
    return {module: tuple(ids) for module, ids in named.items()}


def _ends(module: str, end: str) -> bool:
    """Whether a module's name is `end` or ends in it after a dot; with "^" in front, whether it equals the rest."""
    return module == end.removeprefix("^") or (not end.startswith("^") and module.endswith("." + end))


def _number(file: Path, key: str, value: object) -> float:
    # Exact for integers of any length, for which float() fails; false for NaN.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e9:
        raise _unusable(file, key, "a number between -1e9 and 1e9", value)
    return float(value)


def _switch(file: Path, key: str, value: object) -> bool:
    if not isinstance(value, bool | None):
        raise _unusable(file, key, "true or false", value)
    return bool(value)


def _unusable(file: Path, key: str, expected: str, value: object) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"The value of {key} in the adapter's config cannot be used", file=file, expected=expected, found=shown(value)
    )


def _unread(file: Path, problem: str, expected: str, found: str) -> UnsupportedCheckpointError:
    return UnsupportedCheckpointError(problem, file=file, expected=expected, found=found, advice=MERGE)
