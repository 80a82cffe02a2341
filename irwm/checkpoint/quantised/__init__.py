"""Assembles weights that are stored as codes and scales, by the names that quantisation tools use.

    parts          checks of a weight's pieces, and the arithmetic that several schemes share
    settings       the config's settings for quantisation
    gptq, awq      codes of 2 to 8 bits in words along the input, of 4 bits along the output
    compressed     compressed-tensors' packed whole numbers
    grids          F8 and int8 codes with one scale, or a scale per row or block: FP8, compressed-tensors
    microscaled    NVFP4, MXFP4, MXFP8
    bitsandbytes   8 bits by rows; NF4 and FP4 by blocks
    mlx            MLX's groups with scale and offset
    torchao        gives torchao's pieces the names that other tools use
    siblings       other tensors under a weight's name

A quantised weight is found by its pieces' names, number formats and shapes, since the config may be missing or wrong;
the config is used only for values that the shapes do not show. Weights are computed only when they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from irwm.checkpoint.quantised import awq, bitsandbytes, compressed, gptq, grids, microscaled, mlx
from irwm.checkpoint.quantised.parts import Answer, Parts
from irwm.checkpoint.quantised.settings import Settings, settings_of
from irwm.checkpoint.quantised.siblings import HARMLESS, unknown_piece, unread, with_factors
from irwm.checkpoint.quantised.torchao import plainly_named
from irwm.checkpoint.tensors import PackedTensor, Tensor, TensorEntry, parameters_of
from irwm.errors import CheckpointError, CorruptCheckpointError, UnsupportedCheckpointError, printable
from irwm.families.configvalues import ConfigJson
from irwm.families.family import family_of
from irwm.families.identification import language_sections

# In this order: the first scheme that knows its pieces is used.
_SCHEMES: tuple[Callable[[str, Parts, Settings], Answer], ...] = (
    gptq.weight,
    awq.weight,
    compressed.weight,
    microscaled.weight,
    microscaled.mlx_weight,
    mlx.weight,
    bitsandbytes.rows,
    grids.weight,
)
# Pieces that only quantised weights have, including unknown schemes.
_TELLING = frozenset({"qweight", "weight_packed", "SCB", "W_q", "trellis", "_data"})
_STATE_STEM = ".quant_state"
# Prefix for the name of a weight made of codes, if there is also a plain weight of that name. The end of the name
# stays, so that the embedding is found among those that may be the model's.
PREFIX = "quantised."


@dataclass(frozen=True, slots=True)
class Assembled:
    """The result of `assembled`.

    Attributes:
        tensors: with every quantised weight under its plain name instead of its pieces.
        notes: sentences for the user.
        refused: by plain name, why a weight was left in pieces although its scheme is known.
    """

    tensors: Mapping[str, Tensor]
    notes: tuple[str, ...]
    refused: Mapping[str, CheckpointError]


def assembled(tensors: Mapping[str, Tensor], config: ConfigJson) -> Assembled:
    """The same tensors with every quantised weight assembled.

    Pieces of an unknown kind stay as they are, and so do pieces that contradict each other: a valid model is read even
    with a few of them. If a plain weight and codes have the same name, both are kept, and the weight made of the codes
    gets the prefix `PREFIX`.

    Args:
        tensors: as the files hold them.
        config: config.json's content; {} without one.

    Raises:
        CheckpointChangedError: a file changed after its header was read.
    """
    folder = next((tensor.file.parent for tensor in tensors.values()), Path())
    settings = settings_of(config, folder / "config.json")
    tensors = plainly_named(tensors)
    stems = _stems(tensors)
    result, found, crosswise = dict(tensors), _Found(), _crosswise(config)
    for name, parts, scheme in _schemes(tensors, stems, settings):
        try:
            answer = scheme()
            if isinstance(answer, PackedTensor):
                answer = with_factors(answer, parts, settings)
        except (CorruptCheckpointError, UnsupportedCheckpointError) as error:
            found.refused[name] = error
            continue
        if not isinstance(answer, PackedTensor):
            telling = sorted(_TELLING & parts.keys())
            if answer is not None or telling:
                found.unread[answer or f"pieces of an unknown kind ({telling[0]})"] += 1
            continue
        unknown, whole = unknown_piece(answer, parts, _deeper(name, stems)), answer
        if unknown is not None:
            found.unusual.append((name, unknown.name))
            answer = unread(answer, unknown)
        refusing = answer is not whole
        pieces = {part.name for part in answer.parts}
        kind, answer = answer.dtype, _turned(answer) if name.endswith(crosswise) else answer
        taken = any(result.get(piece) is not tensors[piece] for piece in pieces)
        if name in tensors and name not in pieces:
            found.unread[f"{kind}, next to other tensors for the same weight"] += 1
            if not taken and PREFIX + name not in tensors:
                result[PREFIX + name] = replace(answer, name=PREFIX + name)
        elif taken:
            found.unread[f"{kind}, next to other tensors for the same weight"] += 1
        else:
            if not refusing:
                found.known[kind] += 1
            for piece in pieces:
                del result[piece]
            result[name] = answer
    return Assembled(result, tuple(found.notes(settings)), found.refused)


def _stems(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, TensorEntry]]:
    """The stored tensors by the common prefix of their names, and within it by the last word."""
    stems: dict[str, dict[str, TensorEntry]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, TensorEntry):
            stem, _, part = name.rpartition(".")
            stems.setdefault(stem, {})[part] = tensor
    return stems


def _schemes(
    tensors: Mapping[str, Tensor], stems: Mapping[str, Parts], settings: Settings
) -> Iterator[tuple[str, Parts, Callable[[], Answer]]]:
    """For each common prefix: the plain weight's name, the pieces, and a function that recognises them."""
    unusual: dict[str, Parts] = {}
    for stem, parts in stems.items():
        weight = stem.removesuffix(_STATE_STEM)
        codes = tensors.get(weight)
        if weight != stem and isinstance(codes, TensorEntry):  # the pieces of bitsandbytes' blocks are two names deep
            module = weight.rpartition(".")[0]
            if module not in unusual:
                unusual[module] = _not_codes(module, stems)
            pieces = {"": codes, **stems.get(weight, {}), **parts}
            # The scheme gets only the weight's own pieces; other tensors under its name are checked afterwards.
            yield weight, {**unusual[module], **pieces}, partial(bitsandbytes.blocks, weight, pieces, settings)
            continue
        weight = f"{stem}.weight" if stem else "weight"
        yield weight, parts, partial(_first_answer, weight, parts, settings)


def _not_codes(module: str, stems: Mapping[str, Parts]) -> Parts:
    """The first tensor of a module that is neither harmless nor 4-bit codes itself."""
    unusual = (
        (part, entry)
        for part, entry in stems.get(module, {}).items()
        if part not in HARMLESS and f"{entry.name}{_STATE_STEM}" not in stems
    )
    return dict(islice(unusual, 1))


def _first_answer(weight: str, parts: Parts, settings: Settings) -> Answer:
    answers = (scheme(weight, parts, settings) for scheme in _SCHEMES)
    return next((answer for answer in answers if answer is not None), None)


def _deeper(name: str, stems: Mapping[str, Parts]) -> Iterator[TensorEntry]:
    """Tensors below a weight's module, one name level below the weight."""
    module = name.removesuffix("weight")
    for below in ("lora_A", "lora_B", "input_quantizer", "weight_quantizer", "output_quantizer"):
        yield from stems.get(module + below, {}).values()


def _crosswise(config: ConfigJson) -> tuple[str, ...]:
    """Ends of the names of attention matrices that a plain file of this family stores as (in, out)."""
    kinds = [family_of(section.get("model_type")) for section in language_sections(config)]
    return tuple(
        f".{family.module(name)}.weight"
        for family in kinds
        if family is not None and (spec := family.projections) is not None and spec.transposed
        for name in (spec.q, spec.k, spec.o)
    )


def _turned(weight: PackedTensor) -> PackedTensor:
    """The weight as (in, out): quantisation tools store GPT-2's weights like those of linear layers, as (out, in)."""

    def decode(values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return weight.decode(values).T.contiguous()

    return replace(
        weight,
        shape=weight.shape[::-1],
        by_rows=frozenset(),
        decode=decode,
        parameters=parameters_of(turned=True) + weight.parameters,
    )


class _Found:
    """Counts of the found weights, for the notes."""

    def __init__(self) -> None:
        self.known: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.unusual: list[tuple[str, str]] = []
        self.refused: dict[str, CheckpointError] = {}

    def notes(self, settings: Settings) -> Iterator[str]:
        yield from (
            f"{_weights(n)} stored in quantised form ({kind}) and decoded when read."
            for kind, n in sorted(self.known.items())
        )
        for kind, n in sorted(self.unread.items()):
            done = "read as plain numbers" if kind == bitsandbytes.NO_CODES else "not read"
            yield f"{_weights(n)} stored as {kind}. Such weights are {done}."
        for weight, piece in self.unusual[:1]:
            more = f"; other such weights: {len(self.unusual) - 1}" if len(self.unusual) > 1 else ""
            yield (
                f"The quantised weight {printable(weight, 80)} has a part whose meaning is unknown, "
                f"{printable(piece, 80)}{more}. Such weights are not read; an embedding is read without that part."
            )
        for weight, error in list(self.refused.items())[:1]:
            count = len(self.refused)
            yield (
                f"{_weights(count)} stored in parts that contradict each other. Such weights are not read. Problem "
                f"with {printable(weight, 80)}: {error.problem[0].lower()}{error.problem[1:]}."
            )
        if isinstance(settings.get("transform_config"), Mapping):
            yield (
                "The config says that inputs are transformed while the model runs (transform_config). The weights do "
                "not show this, so the values computed from layer 0's q and k may differ from the model's."
            )
        if settings.sections and not (self.known or self.unread or self.unusual or self.refused):
            method = printable(settings.method, 40) or "an unnamed method"
            yield (
                f"The config says that weights are quantised with {method}, but no weight is in a known quantised "
                "format."
            )


def _weights(count: int) -> str:
    return "1 weight is" if count == 1 else f"{count} weights are"
