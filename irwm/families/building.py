"""Makes a `Layout` from a family, a config and the tensors' shapes; reads no weights.

The shapes must agree with the config: a head count that does not fit the matrices would give a wrong invariant without
any later error, so every tensor of the layout is checked here.

A file may hold more than one model: an old and a new spelling of the same one, two models, or a decoy that is meant to
be read instead. transformers loads one of them without mentioning the others. So every path that fits is tried,
likeliest first, and all other tensors with the embedding's name are listed as alternatives, since a name proves
little. Alignment reads them too, since it recognises the embedding by its content; a model with alternatives is not
marked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from irwm.errors import CheckpointError, CorruptCheckpointError, UnknownFamilyError, printable
from irwm.families.configvalues import Config, shown
from irwm.families.family import Family, NormRole, Prefix, Projections, Table
from irwm.families.schema import Layout, Norm, Shapes, TensorRef

# A role's reference from its tensor's name: see `_Builder._parts`.
Part = Callable[..., TensorRef]
# The dtypes in which the rounding of Gemma's normaliser differs from float32.
_HALF_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# The largest vocabularies have about a million entries. Rows cost an attacker nothing: a file may be sparse.
MOST_ROWS = 1 << 22
# Maximum rows of q or k for each entry of a layer's width; T5's largest model has 16.
WIDEST_HEADS = 32
_SHOWN = 3
# Prefixes of the language model's names in a multimodal model's files, as families spell them.
_WRAPPER = "language_model."


def build(family: Family, config: Config, shapes: Shapes, notes: Iterable[str]) -> Layout:
    """The layout of a checkpoint of a known family.

    If the files hold several models, the one that the config implies is used; the others' embeddings are alternatives.

    Args:
        notes: the first of the layout's notes.

    Raises:
        UnknownFamilyError: layer 0's q and k or the embedding are not in the files.
        CorruptCheckpointError: a config value cannot be used, a tensor is missing, or a shape contradicts the config.
    """
    switches = {k: config.condition(k, v) for variant in family.variants for k, v in variant.when.items()}
    family = family.under(switches)
    prefixes = _fitting(family, shapes, nested=config.nested)
    if not prefixes:
        prefixes = [_by_head(family, shapes)]
    layouts: list[Layout] = []
    problems: list[CheckpointError] = []
    for prefix in prefixes:
        try:
            layouts.append(_Builder(family, config, shapes, list(notes), prefix).layout())
        except (CorruptCheckpointError, UnknownFamilyError) as error:
            problems.append(error)
    if not layouts:
        raise problems[0]
    return _with_alternatives(layouts[0], layouts[1:], family, shapes)


def _by_head(family: Family, shapes: Shapes) -> Prefix:
    """The prefix of a family without q and k whose tied embedding may be stored under the head's name."""
    if family.projections is None:
        prefix = next((prefix for prefix in family.prefixes if _first(prefix.head, family.head, shapes)), None)
        if prefix is None:
            raise _no_embedding(family, shapes)
        return prefix
    raise UnknownFamilyError(
        f"layer 0's q and k are not in the files of this {family.name} model; {tried((family,))}",
        found=present(shapes),
        advice="If the model is an adapter, merge it into its base model. If it is quantised, save it in a supported "
        "format. If a shard is missing, download it",
    )


def tried(families: Iterable[Family]) -> str:
    """The tensor names and prefixes that were tried, for a message."""
    families = tuple(families)
    names = dict.fromkeys(name for f in families for name in (*f.embedding, *layer0(f)))
    prefixes = dict.fromkeys(p.body or '""' for f in families for p in f.prefixes)
    return f"tensor names tried: {', '.join(names)}, with the prefixes {', '.join(prefixes)}"


def present(shapes: Shapes) -> str:
    """The names of some tensors in the files, for a message: layer 0's attention if any, which identifies quantised
    files and adapters."""
    layer = [name for name in shapes if ".0." in name and "att" in name.lower()]
    some = (layer or list(shapes))[:4]
    return (
        f"{len(shapes)} tensor{'' if len(shapes) == 1 else 's'}, including {', '.join(some)}" if some else "no tensors"
    )


def layer0(family: Family) -> tuple[str, ...]:
    """The names of layer 0's q and k after the prefix; () in a family without them."""
    return (family.projections.q, family.projections.k) if family.projections is not None else ()


def _first(prefix: str, names: tuple[str, ...], shapes: Shapes) -> str | None:
    """The first of the names that exists."""
    return next((prefix + name for name in names if prefix + name in shapes), None)


def _fitting(family: Family, shapes: Shapes, *, nested: bool) -> list[Prefix]:
    """The prefixes under which layer 0's q and k are found, or the embedding for a family without them, likeliest
    first.

    [] if several fit and no family lists them: choosing one would be a guess.

    Args:
        nested: the config describes a multimodal model, so its language model is under a wrapper's name.
    """
    known = [prefix for prefix in family.prefixes if _fits(family, prefix.body, shapes)]
    strange = [_strange(family, body, shapes) for body in _bodies(family, shapes)]
    # A vision tower's layer 0 may look like a language model's; it has no token embedding.
    strange = [prefix for prefix in strange if _first(prefix.body, family.embedding, shapes)] or strange
    if not known:
        return strange if len(strange) == 1 else []
    inner = [prefix for prefix in known if nested and _WRAPPER in prefix.body]
    outer = [prefix for prefix in known if prefix not in inner]
    return [*inner, *strange, *outer] if nested else [*outer, *strange]


def _fits(family: Family, body: str, shapes: Shapes) -> bool:
    names = layer0(family)
    return all(body + name in shapes for name in names) if names else bool(_first(body, family.embedding, shapes))


def _bodies(family: Family, shapes: Shapes) -> list[str]:
    """Other paths that fit, since any wrapper may precede the family's own prefix."""
    anchors = layer0(family)[:1] or family.embedding
    bodies = {n.removesuffix(anchor) for anchor in anchors for n in shapes if n.endswith("." + anchor)}
    bodies -= {prefix.body for prefix in family.prefixes}
    return sorted(body for body in bodies if _fits(family, body, shapes))


def _strange(family: Family, body: str, shapes: Shapes) -> Prefix:
    """The prefix with this body: a wrapper before the family's own, whose head may be one level further out."""
    inner = max((p for p in family.prefixes if body.endswith(p.body)), key=lambda p: len(p.body), default=None)
    outer = body.removesuffix(inner.body) + inner.head if inner is not None else body
    return Prefix(body, outer if _first(outer, family.head, shapes) else body)


def _copies(name: str, body: str, family: Family, shapes: Shapes) -> tuple[TensorRef, ...]:
    """The tensors of the embedding's shape that the model behind `body` may use instead of it.

    They have another of its names, or are in an extra layer: DeepSeek's layer for multi-token prediction has its own
    copy.
    """
    others = [body + other for other in family.embedding]
    layers = body + family.layer.split("0.")[0]
    others += [n for n in shapes if n.startswith(layers) and n.endswith(tuple("." + e for e in family.embedding))]
    return tuple(TensorRef(other) for other in others if other != name and shapes.get(other) == shapes[name])


def _with_alternatives(layout: Layout, elsewhere: Sequence[Layout], family: Family, shapes: Shapes) -> Layout:
    """The layout with every other tensor that has the embedding's name and may belong to this model.

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
        f"Other tensors in the files that may be the embedding ({len(others)}): {said}. "
        f"{printable(layout.embedding.name, 80)} was used as the embedding; an investigation also reads the others."
    )
    return replace(
        layout,
        alternatives=tuple(map(TensorRef, others)),
        elsewhere=tuple(each for each in elsewhere if each.embedding.name in others),
        notes=(*layout.notes, note),
    )


def _could_be(layout: Layout, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] == layout.hidden_size and 1 <= shape[0] <= MOST_ROWS


class _Builder:
    """Builds the layout of the model with one prefix."""

    def __init__(self, family: Family, config: Config, shapes: Shapes, notes: list[str], prefix: Prefix) -> None:
        self.family = family
        self.config = config
        self.shapes = shapes
        self.notes = notes
        self.prefix = prefix
        if prefix not in family.prefixes:
            notes.append(f"The tensor names have the unusual prefix {shown(prefix.body)[:80]}.")

    def layout(self) -> Layout:
        family = self.family
        name, head_name, tied = self._embedding()
        vocab_size, hidden_size = self.shapes[name]
        width = self._width(name, vocab_size, hidden_size)
        if family.projections is None:
            self.notes.append(
                f"{family.embedding_only}, so the mark uses similarities between token embeddings instead of"
                " layer 0's attention scores."
            )
        # Steps before the projection have the embedding's width.
        first = hidden_size if family.embedding_projection_bias is not None else width
        layout = Layout(
            family=family.name,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            embedding=TensorRef(name),
            head=self._head(head_name, tied, (vocab_size, hidden_size)),
            tied=tied,
            position=self._position(family.position, first),
            token_type=self._table(family.token_type, first),
            embedding_norm=self._norm(family.embedding_norm, first),
            input_norm=self._norm(family.input_norm, width),
            embedding_scale=self._embedding_scale(hidden_size),
            notes=tuple(self.notes),
            embedding_projection=self._widening(family.embedding_projection, hidden_size, (width, hidden_size)),
            embedding_projection_bias=self._widening(family.embedding_projection_bias, hidden_size, (width,)),
            clip=self.config.factor(family.clip) if family.clip is not None else None,
            scores="embedding" if family.projections is None else "attention",
            copies=_copies(name, self.prefix.body, family, self.shapes),
        )
        return layout if family.projections is None else self._with_projections(layout, family.projections, width)

    def _with_projections(self, layout: Layout, spec: Projections, width: int) -> Layout:
        heads, kv_heads, head_dim = head_counts(self.family, spec, self.config, width)
        part = self._parts(spec, heads, kv_heads, head_dim, width)
        q, k, q_bias, k_bias = self._projections(spec, part)
        v, o = self._output(spec, part)
        return replace(
            layout,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            q=q,
            k=k,
            q_bias=q_bias,
            k_bias=k_bias,
            v=v,
            o=o,
            q_norm=self._norm(self.family.q_norm, head_dim, heads),
            k_norm=self._norm(self.family.k_norm, head_dim, kv_heads),
            notes=tuple(self.notes),
        )

    def _embedding(self) -> tuple[str, str | None, bool]:
        """The names of the embedding and of the stored head, and whether they are tied."""
        # The encoder's own embedding before a shared one: if both are stored and differ, layer 0 reads the encoder's
        # own.
        stack = self.family.layer.split(".")[0] + "."
        names = tuple(sorted(self.family.embedding, key=lambda name: not name.startswith(stack)))
        name = _first(self.prefix.body, names, self.shapes)
        head_name = _first(self.prefix.head, self.family.head, self.shapes)
        stated = self.config.tie(head_stored=head_name is not None)
        # If the key is missing, the model type's default applies. A default of "untied" is wrong if no head is stored:
        # then the head can only be the embedding.
        if self.family.decoder_head:
            stated = False
        tied = stated if stated is not None else self.config.switch("tie_word_embeddings") or head_name is None
        if name is None:
            if not tied or head_name is None:
                raise _no_embedding(self.family, self.shapes)
            # Some savers store shared memory once, under either name; transformers loads both.
            self.notes.append(f"The embedding is stored under the name of the output head, {head_name}.")
            name, head_name = head_name, None
        shape = self.shapes[name]
        if len(shape) != 2 or min(shape) < 1:
            raise shape_mismatch("the embedding is not a matrix", name, "(vocabulary, hidden size)", shape)
        if shape[0] > MOST_ROWS:
            raise shape_mismatch("the embedding has implausibly many rows", name, f"at most {MOST_ROWS}", shape)
        return name, head_name, tied

    def _head(self, name: str | None, tied: bool, shape: tuple[int, int]) -> TensorRef | None:
        if name is None:
            if not tied:
                self.notes.append(
                    "The config says that the output head is not tied to the embedding, but the files contain no "
                    "output head."
                )
            return None
        if tied:
            self.notes.append(
                "The config ties the output head to the embedding, but the files contain both. The transformers "
                "library ties them only if their values are equal."
            )
        if self.family.decoder_head and self.shapes[name] != shape:
            self.notes.append(
                "The decoder's embedding, which is also the output head, has another shape, so it is not marked."
            )
            return None
        if lacking := self.family.headless_rows:
            self._ref(name, (shape[0] - lacking, shape[1]))
            self.notes.append(f"The output head lacks the last {lacking} rows of the embedding and is not marked.")
            return None
        return self._ref(name, shape)

    def _width(self, embedding: str, vocab_size: int, hidden_size: int) -> int:
        """Entries per token in layer 0, hidden_size unless a projection widens the embedding."""
        family, config = self.family, self.config
        key, width = family.hidden_size, config.count(family.hidden_size)
        expected = width
        if family.embedding_width is not None and config.count(family.embedding_width) is not None:
            key, expected = family.embedding_width, config.count(family.embedding_width)
        if expected is not None and expected != hidden_size:
            raise shape_mismatch(
                f"the embedding's width does not match the config's {key}",
                embedding,
                f"(vocabulary, {expected})",
                (vocab_size, hidden_size),
            )
        stated = config.count("vocab_size")
        if stated is not None and stated + family.headless_rows != vocab_size:
            self.notes.append(
                f"According to the config, the vocabulary has {stated} tokens, but the embedding has {vocab_size} rows."
            )
        return hidden_size if width is None else width

    def _widening(self, name: str | None, hidden_size: int, shape: tuple[int, ...]) -> TensorRef | None:
        """The embedding's projection or its bias, whose first size is the layers' width."""
        return None if name is None or hidden_size == shape[0] else self._ref(self.prefix.body + name, shape)

    def _embedding_scale(self, hidden_size: int) -> float:
        """The factor on the embedding. Gemma computes sqrt(hidden size) in float32 and rounds it to the weights' dtype
        before multiplying, so a bfloat16 model of width 3072 uses 55.5 and not 55.4256."""
        if self.family.embedding_scale == "one":
            return 1.0
        if self.family.embedding_scale != "sqrt(hidden_size)":
            factor = self.config.factor(self.family.embedding_scale)
            return 1.0 if factor is None else factor
        root = torch.tensor(math.sqrt(hidden_size), dtype=torch.float32)
        name = (self.config.dtype() or "").removeprefix("torch.")
        return float(root.to(_HALF_DTYPES.get(name, torch.float32)))

    def _parts(self, spec: Projections, heads: int, kv_heads: int, head_dim: int, width: int) -> Part:
        rows = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        groups = kv_heads if spec.groups == "kv_heads" else spec.groups
        block = sum(rows[part] // groups for part in spec.fused)

        def part(name: str, role: str, *, matrix: bool = True) -> TensorRef:
            """The rows of `role` in the tensor, which contains only this role or is fused."""
            total = groups * block if spec.fused else rows[role]
            shape = (total, width)[: 2 if matrix else 1]
            transposed = spec.transposed and matrix
            ref = replace(
                self._ref(self.prefix.body + name, shape[::-1] if transposed else shape), transposed=transposed
            )
            if not spec.fused:
                return ref
            before = spec.fused[: spec.fused.index(role)]
            start = sum(rows[other] // groups for other in before)
            span = (start, start + rows[role] // groups)
            return replace(ref, rows=span, every=block if groups > 1 else None)

        return part

    def _projections(
        self, spec: Projections, part: Part
    ) -> tuple[TensorRef, TensorRef, TensorRef | None, TensorRef | None]:
        q, k = part(spec.q, "q"), part(spec.k, "k")
        if spec.q_bias is None or spec.k_bias is None:
            return q, k, None, None
        if spec.bias_key is not None and not self.config.switch(spec.bias_key):
            if {self.prefix.body + spec.q_bias, self.prefix.body + spec.k_bias} & self.shapes.keys():
                self.notes.append(
                    f"The files contain biases for q and k, but the config's {spec.bias_key} disables them. They "
                    "are not used."
                )
            return q, k, None, None
        return q, k, part(spec.q_bias, "q", matrix=False), part(spec.k_bias, "k", matrix=False)

    def _output(self, spec: Projections, part: Part) -> tuple[TensorRef | None, TensorRef | None]:
        """v and o, None where the files hold none that fits: A does not need them, and values may be narrower."""
        o = TensorRef(self.prefix.body + spec.o, transposed=spec.transposed)
        v = part(spec.q, "v") if spec.fused else TensorRef(self.prefix.body + (spec.v or ""))
        fits = {len(self.shapes.get(ref.name, ())) for ref in (v, o)} == {2}
        return (v, o) if fits else (None, None)

    def _position(self, table: Table | None, width: int) -> TensorRef | None:
        if table is None:
            return None
        skipped = table.skipped + (self.config.index(table.skipped_key) if table.skipped_key is not None else 0)
        ref = self._table(table.name, width, skipped + 1)
        return replace(ref, rows=(skipped, self.shapes[ref.name][0])) if ref is not None and skipped else ref

    def _table(self, name: str | None, width: int, least: int = 1) -> TensorRef | None:
        if name is None:
            return None
        name = self.prefix.body + name
        shape = self.shapes.get(name)
        if shape is None or len(shape) != 2 or shape[0] < least or shape[1] != width:
            raise shape_mismatch("an embedding table has the wrong shape", name, f"(at least {least}, {width})", shape)
        return TensorRef(name)

    def _norm(self, role: NormRole | None, size: int, heads: int = 1) -> Norm | None:
        """The norm of a role; of a norm on q or k, `size` is a head's size and `heads` the number of heads."""
        if role is None:
            return None
        shape = (heads * size,) if role.over == "projection" else (size,)
        return Norm(
            kind=role.kind,
            weight=self._gain(role, shape, heads),
            bias=self._one_of(role.bias, shape) if role.bias else None,
            eps=self.config.eps(role.eps) if isinstance(role.eps, str) else role.eps,
            offset=role.offset,
            over=role.over,
        )

    def _gain(self, role: NormRole, shape: tuple[int, ...], heads: int) -> TensorRef | tuple[TensorRef, ...] | None:
        if not role.weight:
            return None
        if role.gain == "a tensor per head":
            name = self.prefix.body + role.weight[0]
            return tuple(self._ref(name.replace("{head}", str(head)), shape) for head in range(heads))
        return self._one_of(role.weight, (heads, *shape) if role.gain == "per head" else shape)

    def _one_of(self, names: tuple[str, ...], shape: tuple[int, ...]) -> TensorRef:
        return self._ref(_first(self.prefix.body, names, self.shapes) or self.prefix.body + names[0], shape)

    def _ref(self, name: str, expected: tuple[int, ...]) -> TensorRef:
        """A tensor that must be present in exactly this shape."""
        found = self.shapes.get(name)
        if found is None:
            raise shape_mismatch("a tensor is missing", name, str(expected), None)
        if tuple(found) != tuple(expected):
            raise shape_mismatch("a tensor's shape contradicts the config", name, str(expected), found)
        return TensorRef(name)


def head_counts(family: Family, spec: Projections, config: Config, width: int) -> tuple[int, int, int]:
    """Query heads, key heads, and entries per head.

    Args:
        width: entries per token in the layer.

    Raises:
        CorruptCheckpointError: the config states none, incompatible numbers, or too many.
    """
    heads = config.count(family.heads)
    if heads is None:
        raise CorruptCheckpointError(
            f"the config has no {family.heads}",
            file="config.json",
            advice="Compare config.json with that of the published model",
        )
    stated = config.count(family.kv_heads) if family.kv_heads else None
    kv_heads = spec.kv_heads or stated or heads
    parts = kv_heads if spec.groups == "kv_heads" else spec.groups
    if heads % kv_heads or heads % parts or kv_heads % parts:
        raise CorruptCheckpointError(
            "the numbers of query heads and key heads in the config are incompatible",
            file="config.json",
            expected=f"a number of key heads that divides {heads}"
            + (f", where {parts} divides both numbers" if parts > 1 else ""),
            found=str(kv_heads),
        )
    head_dim = config.count(family.head_dim) if family.head_dim else None
    if head_dim is None:
        if width % heads:
            raise CorruptCheckpointError(
                "the hidden size is not divisible by the number of heads in the config",
                file="config.json",
                expected=f"a number of heads that divides {width}",
                found=str(heads),
            )
        head_dim = width // heads
    if heads * head_dim > WIDEST_HEADS * width:
        raise CorruptCheckpointError(
            "the config specifies more query rows for layer 0 than any model has",
            file="config.json",
            expected=f"at most {WIDEST_HEADS * width} for a width of {width}",
            found=f"{heads} heads with {head_dim} rows each",
            advice="Compare config.json with that of the published model",
        )
    return heads, kv_heads, head_dim


def _no_embedding(family: Family, shapes: Shapes) -> UnknownFamilyError:
    return UnknownFamilyError(
        f"the embedding is not in the files of this {family.name} model; {tried((family,))}",
        found=present(shapes),
        advice="Download the missing shard",
    )


def shape_mismatch(problem: str, name: str, expected: str, found: tuple[int, ...] | None) -> CorruptCheckpointError:
    """The error for a tensor that is missing (`found` is None) or has an unexpected shape."""
    return CorruptCheckpointError(
        problem,
        tensor=name,
        expected=expected,
        found="no such tensor" if found is None else str(tuple(found)),
        advice="Check that config.json belongs to these files and that no shard is missing",
    )
