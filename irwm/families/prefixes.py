"""Where in a checkpoint's names the language model stands: every path that fits, the likeliest first.

A file may hold more than one: an old and a new spelling of the same model, two models side by side, or a decoy that
someone put there to be read instead. transformers loads one of them and says nothing of the others.
"""

from __future__ import annotations

from irwm.families.family import Family, Prefix
from irwm.families.schema import Shapes

# What a multimodal model's files put in front of its language model's names, in the spellings that families list.
_WRAPPER = "language_model."


def layer0(family: Family) -> tuple[str, ...]:
    """The names of layer 0's q and k after the prefix; () in a family without them."""
    return (family.projections.q, family.projections.k) if family.projections is not None else ()


def first(prefix: str, names: tuple[str, ...], shapes: Shapes) -> str | None:
    """The first of the names that is there."""
    return next((prefix + name for name in names if prefix + name in shapes), None)


def fitting(family: Family, shapes: Shapes, *, nested: bool) -> list[Prefix]:
    """The prefixes behind which layer 0's q and k stand, or where a family has none the embedding, likeliest first.

    None where the only ones that fit are several that no family lists: which of them is meant would be a guess.

    Args:
        nested: the config describes a multimodal model, so that its language model stands behind a wrapper's name.
    """
    known = [prefix for prefix in family.prefixes if _fits(family, prefix.body, shapes)]
    strange = [_strange(family, body, shapes) for body in _bodies(family, shapes)]
    # A vision tower's layer 0 may look like a language model's; it has no token embedding.
    strange = [prefix for prefix in strange if first(prefix.body, family.embedding, shapes)] or strange
    if not known:
        return strange if len(strange) == 1 else []
    inner = [prefix for prefix in known if nested and _WRAPPER in prefix.body]
    outer = [prefix for prefix in known if prefix not in inner]
    return [*inner, *strange, *outer] if nested else [*outer, *strange]


def by_head(family: Family, shapes: Shapes) -> Prefix | None:
    """The prefix behind which an output head stands, for files that store a tied embedding under the head's name."""
    return next((prefix for prefix in family.prefixes if first(prefix.head, family.head, shapes)), None)


def _fits(family: Family, body: str, shapes: Shapes) -> bool:
    names = layer0(family)
    return all(body + name in shapes for name in names) if names else bool(first(body, family.embedding, shapes))


def _bodies(family: Family, shapes: Shapes) -> list[str]:
    """Paths that are none of the family's own and fit all the same, since any wrapper may stand in front."""
    anchors = layer0(family)[:1] or family.embedding
    bodies = {n.removesuffix(anchor) for anchor in anchors for n in shapes if n.endswith("." + anchor)}
    bodies -= {prefix.body for prefix in family.prefixes}
    return sorted(body for body in bodies if _fits(family, body, shapes))


def _strange(family: Family, body: str, shapes: Shapes) -> Prefix:
    """The prefix with this body: the wrapper in front of the family's own, whose head may stand further out."""
    inner = max((p for p in family.prefixes if body.endswith(p.body)), key=lambda p: len(p.body), default=None)
    outer = body.removesuffix(inner.body) + inner.head if inner is not None else body
    return Prefix(body, outer if first(outer, family.head, shapes) else body)
