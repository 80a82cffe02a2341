"""Tensors beside the embedding that bear its name: its copies, and others that may be the one a model uses.

A name proves nothing. What is found here is read by whoever can tell the embedding by its content, and marked by
nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from irwm.errors import printable
from irwm.families.family import Family
from irwm.families.schema import Layout, Shapes, TensorRef

# The largest vocabularies have about a million entries. Rows cost an attacker nothing: a file may be all holes.
MOST_ROWS = 1 << 22
_SHOWN = 3


def copies_of(name: str, body: str, family: Family, shapes: Shapes) -> tuple[TensorRef, ...]:
    """The tensors of the embedding's shape that the model behind `body` may use in its place.

    They have another of its names, or stand in a further layer: DeepSeek's that predicts more than one token has its
    own copy.
    """
    others = [body + other for other in family.embedding]
    layers = body + family.layer.split("0.")[0]
    others += [n for n in shapes if n.startswith(layers) and n.endswith(tuple("." + e for e in family.embedding))]
    return tuple(TensorRef(other) for other in others if other != name and shapes.get(other) == shapes[name])


def with_alternatives(layout: Layout, elsewhere: Sequence[Layout], family: Family, shapes: Shapes) -> Layout:
    """The layout with every other tensor that bears the embedding's name and could be one of this model.

    Args:
        elsewhere: the layouts of other models in the same files.
    """
    taken = {layout.embedding.name, *(copy.name for copy in layout.copies)}
    endings = tuple("." + name for name in family.embedding)
    named = [each.embedding.name for each in elsewhere]
    named += [name for name in shapes if name in family.embedding or name.endswith(endings)]
    others = [name for name in dict.fromkeys(named) if name not in taken and _could_be(layout, shapes[name])]
    if not others:
        return layout
    said = ", ".join(printable(name, 80) for name in others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
    note = (
        f"{len(others)} more of the files' tensors may be the embedding: {said}. "
        f"{printable(layout.embedding.name, 80)} was taken for it; an investigation reads the others as well."
    )
    return replace(
        layout,
        alternatives=tuple(map(TensorRef, others)),
        elsewhere=tuple(each for each in elsewhere if each.embedding.name in others),
        notes=(*layout.notes, note),
    )


def _could_be(layout: Layout, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] == layout.hidden_size and 1 <= shape[0] <= MOST_ROWS
