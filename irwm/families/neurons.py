"""The tensors of each layer's MLP: one row that reads the residual stream, and one that writes it, for every neuron.

A neuron of a plain MLP computes act(w x), and one of a gated MLP act(g x) (u x); the MLP adds their products with the
columns of its last matrix to the stream. Families spell these matrices differently, and so do experts, but the names
below are used for nothing else, so no family needs its own list.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from irwm.families.family import families
from irwm.families.schema import Layout, Shapes, TensorRef

# For the matrix of g or w: those of u and of the output. Where none of u is named, it is in the same tensor, or the MLP
# is a plain one; the size of the output tells.
_ROLES: dict[str, tuple[tuple[str, ...], str]] = {
    "gate_proj": (("up_proj",), "down_proj"),
    "gate_up_proj": ((), "down_proj"),
    "up_proj": ((), "down_proj"),
    "w1": (("w3", "v1"), "w2"),
    "fc1": ((), "fc2"),
    "c_fc": ((), "c_proj"),
    "fc_in": ((), "fc_out"),
    "dense_h_to_4h": ((), "dense_4h_to_h"),
    "Wi": ((), "Wo"),
    "lin1": ((), "lin2"),
    "wi": ((), "wo"),
    "wi_0": (("wi_1",), "wo"),
    "input_linear": ((), "output_linear"),
    "intermediate.dense": ((), "output.dense"),
    "ffn_gate": (("ffn_up",), "ffn_down"),
    "ffn_up": ((), "ffn_down"),
}
# A matrix of u alone is no plain MLP.
_GATED = {"up_proj": "gate_proj", "ffn_up": "ffn_gate"}
_NAME = re.compile(
    r"(?P<path>.*?\.|)(?P<layer>\d{1,4})\.(?P<parent>(?:[\w.]+\.)?)(?P<role>" + "|".join(map(re.escape, _ROLES)) + r")"
    r"(?P<end>\.weight|)"
)
# The norm whose output the MLP reads: the first that a layer has. In a layer with a norm after the MLP and none before
# it, the MLP reads the stream itself.
_NORMS = (
    "pre_feedforward_layernorm", "feedforward_layernorm", "ffn_norm", "mlp_norm", "ln_2", "norm_2",
    "norm_attn_norm.norm_2", "ln_mlp", "final_layer_norm", "layer.1.layer_norm", "post_attention_layernorm",
    "input_layernorm", "ln_1", "norm_1", "attn_norm",
)  # fmt: skip
# The same in families with norms on the stream itself (`Layout.input_norm` is None).
_POST_NORMS = ("attention.output.LayerNorm", "sa_layer_norm", "self_attn_layer_norm")
_NORM_BEFORE, _NORM_AFTER = "pre_feedforward_layernorm", "post_feedforward_layernorm"
_GGUF = "blk."
# gpt-oss, whose experts alone have biases, stores the rows of gate and up in turns.
_INTERLEAVED = "_bias"


@dataclass(frozen=True, slots=True)
class Neurons:
    """The neurons of one layer, or of one expert of it.

    Attributes:
        layer: the number of the layer.
        count: n, the number of neurons.
        gate: the rows whose activation is taken, (n, width).
        up: the rows that it is multiplied by, (n, width); None in a plain MLP.
        down: the output, (width, n).
        gain: (width,), of the norm whose output gate and up read; None without one.
        offset: added to the stored gain.
        expert: where one tensor holds the matrices of all experts, the number of this one; else None. Then gate and up
            are rows of the tensor's second or third dimension, and gate, up and down may be stored as (n, width) or
            (width, n).
    """

    layer: int
    count: int
    gate: TensorRef
    up: TensorRef | None
    down: TensorRef
    gain: TensorRef | None
    offset: float
    expert: int | None = None


def neurons(layout: Layout, shapes: Shapes, own: Iterable[str] | None = None) -> tuple[Neurons, ...]:
    """The neurons of a checkpoint, layer by layer and expert by expert.

    Args:
        layout: of the checkpoint.
        shapes: of its tensors, as stored.
        own: the names to look among; by default all.

    Returns:
        () if no tensor has a known name and the width of the stream.
    """
    width = layout.hidden_size if layout.embedding_projection is None else shapes[layout.embedding_projection.name][0]
    found = [match for name in (shapes if own is None else own) if (match := _NAME.fullmatch(name))]
    found = [match for match in found if width in shapes[match[0]][-2:]]
    path = _path(layout, (match["path"] for match in found))
    made = [each for match in found if match["path"] == path for each in _of(match, layout, shapes, width)]
    return tuple(sorted(made, key=_order))


def _order(each: Neurons) -> tuple[int, list[int], str, int]:
    """By layers, and by experts, whose number is in the name or the place in a tensor of all."""
    name = each.gate.name
    return each.layer, [int(digits) for digits in re.findall(r"\d+", name)], name, each.expert or 0


def _path(layout: Layout, paths: Iterable[str]) -> str | None:
    """The path of the layers that belong to the embedding: that of layer 0's q, or else the one with most matrices."""
    counts = Counter(paths)
    inside = [path for path in counts if layout.q is not None and layout.q.name.startswith(path) and path]
    return max(inside, key=len) if inside else max(counts, key=lambda path: counts[path], default=None)


def _of(match: re.Match[str], layout: Layout, shapes: Shapes, width: int) -> Iterator[Neurons]:
    path, layer, parent, role, end = match.group("path", "layer", "parent", "role", "end")
    start = f"{path}{layer}."
    gated = _GATED.get(role)
    if gated is not None and f"{start}{parent}{gated}{end}" in shapes:
        return
    up_roles, down_role = _ROLES[role]
    stem = start + parent
    *experts, height, across = shapes[match[0]]
    # Conv1D stores (in, out). A square matrix is taken as q is.
    transposed = across != width or (height == width and layout.q is not None and layout.q.transposed)
    count = across if transposed else height
    down = f"{stem}{down_role}{end}"
    stored = sorted(shapes.get(down, ()))
    fused = stored == sorted((*experts, width, count // 2))
    if not fused and stored != sorted((*experts, width, count)):
        return
    gate, up = TensorRef(match[0], None, transposed), None
    if fused:
        both = [(0, count // 2), (count // 2, count)]
        every = None
        if experts and f"{stem}{role}{_INTERLEAVED}" in shapes:
            both, every = [(0, 1), (1, 2)], 2
        gate, up = (TensorRef(match[0], rows, transposed, every) for rows in both)
    else:
        names = [f"{stem}{each}{end}" for each in up_roles]
        up = next((TensorRef(each, None, transposed) for each in names if shapes.get(each) == shapes[match[0]]), None)
    down_transposed = shapes[down][-2] != width or (shapes[down][-1] == width and transposed)
    norm = layout.input_norm or layout.embedding_norm
    gain = _gain(start, shapes, width, layout)
    offset = norm.offset if norm is not None and gain is not None and not path.endswith(_GGUF) else 0.0
    neurons_here = count // 2 if fused else count
    one = Neurons(int(layer), neurons_here, gate, up, TensorRef(down, None, down_transposed), gain, offset)
    yield from (replace(one, expert=number) for number in range(experts[0])) if experts else (one,)


def _gain(start: str, shapes: Shapes, width: int, layout: Layout) -> TensorRef | None:
    known = _known_norm(layout.family)
    if known is not None and shapes.get(f"{start}{known}.weight") == (width,):
        return TensorRef(f"{start}{known}.weight")
    names = (*_POST_NORMS, *_NORMS) if layout.input_norm is None else _NORMS
    here = [norm for norm in names if shapes.get(f"{start}{norm}.weight") == (width,)]
    if f"{start}{_NORM_AFTER}.weight" in shapes and _NORM_BEFORE not in here:
        return None
    return TensorRef(f"{start}{here[0]}.weight") if here else None


def _known_norm(family: str) -> str | None:
    """The norm that the MLPs of this family read, if it is known. A tensor that the family does not have, with the name
    of another family's norm, changes nothing."""
    anatomy = next((each.anatomy for each in families() if each.name == family), None)
    return None if anatomy is None else next((name for name, reads in anatomy.norms.items() if reads == "mlp"), None)
