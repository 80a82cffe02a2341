"""The tensors of one checkpoint that read, write or normalise the residual stream, through all layers.

`irwm.families.recognise` finds the embedding, the head, layer 0's q and k and the conventions, as for every checkpoint;
`structure_of` adds the tensors of all layers, from names and shapes, without reading weights. Every floating tensor is
accounted for: a tensor with an unknown role could read the stream too, and a transform that missed it would break the
model without any error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from irwm.attacks.equivalence.state import State
from irwm.errors import CorruptCheckpointError, NotApplicableError
from irwm.families import recognise
from irwm.families.building import shape_mismatch
from irwm.families.configvalues import Config, shown
from irwm.families.family import Anatomy, Family, anatomy_of, dissected, family_of
from irwm.families.schema import Layout, Norm, TensorRef


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix (out, in) with its bias (out,), each possibly some rows of a fused tensor; bias None for none."""

    weight: TensorRef
    bias: TensorRef | None

    @property
    def refs(self) -> tuple[TensorRef, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: attention q, k, v (heads * head_dim rows each, kv_heads for k and v), o, and the MLP."""

    q: Linear
    k: Linear
    v: Linear
    o: Linear
    gate: Linear | None
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class StreamNorm:
    """A norm of the stream: its gain (d,), bias (d,) or None, and the weights (out, d) that read its output."""

    gain: str
    bias: str | None
    readers: tuple[TensorRef, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """A checkpoint's anatomy, made by `structure_of`. All strings are tensor names; a tensor that may be stored
    transposed is a `TensorRef`.

    Attributes:
        family, anatomy: its entry in irwm/families/data.
        norm: how the norms of the stream compute; of layer 0 or the embedding, and the same for all of them.
        model_type: as in the config.
        vocab_size, hidden_size: s and d, the embedding's stored shape.
        heads, kv_heads, head_dim: query heads, key heads, entries per head.
        rotary_dim: leading entries of each head that are rotated by position; entry i pairs with i + rotary_dim / 2.
        eps_key: the config key of the norms' eps.
        embedding: W_e, (s, d).
        tables: the embedding and the tables that are added to it, each (n, d).
        head: the output head (s, d) if it is a separate tensor, else None.
        head_name: the head's name, also where it is not stored.
        tied: the model has a head and uses W_e for it, since the files hold no other.
        config_ties: the config ties them, or leaves this out and ties them by default.
        head_biases: vectors (s,).
        layers: from the first to the last.
        norms: of the stream, in the order they run.
        post_norms: gains (d,) of norms on a layer's outputs before they are added to the stream.
        final_readers: weights (out, d) besides the head that read the stream's end.
    """

    family: Family
    anatomy: Anatomy
    norm: Norm
    model_type: str
    vocab_size: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    eps_key: str
    embedding: str
    tables: tuple[str, ...]
    head: str | None
    head_name: str
    tied: bool
    config_ties: bool
    head_biases: tuple[str, ...]
    layers: tuple[Layer, ...]
    norms: tuple[StreamNorm, ...]
    post_norms: tuple[str, ...]
    final_readers: tuple[TensorRef, ...]

    @property
    def post_norm_stream(self) -> bool:
        """Whether norms are on the stream itself, as in BERT, and not in front of its readers."""
        return self.family.input_norm is None

    @property
    def embedding_scaled(self) -> bool:
        """Whether the model multiplies the embedding by sqrt(hidden size)."""
        return self.family.embedding_scale == "sqrt(hidden_size)"

    @property
    def head_norms(self) -> bool:
        """Whether every single query and key head is normalised (Qwen 3)."""
        return self.family.q_norm is not None

    @property
    def readers(self) -> tuple[TensorRef, ...]:
        """Weights (out, d) that read the stream, each once."""
        return tuple(dict.fromkeys([*(r for norm in self.norms for r in norm.readers), *self.final_readers]))

    @property
    def writers(self) -> tuple[TensorRef, ...]:
        """Weights (d, in) whose output is added to the stream, before post-norms where the family has them."""
        return tuple(linear.weight for layer in self.layers for linear in (layer.o, layer.down))

    @property
    def writer_biases(self) -> tuple[str, ...]:
        """Vectors (d,) added with the writers' outputs."""
        return tuple(linear.bias.name for layer in self.layers for linear in (layer.o, layer.down) if linear.bias)

    @property
    def norm_vectors(self) -> tuple[str, ...]:
        """Gains and biases (d,) of all norms of the stream and of the outputs added to it."""
        own = (name for norm in self.norms for name in (norm.gain, norm.bias) if name is not None)
        return (*own, *self.post_norms)


def structure_of(state: State) -> Structure:
    """The anatomy of a model.

    Raises:
        NotApplicableError: the family is not known here, or there are tensors whose role is not known.
        UnknownFamilyError, CorruptCheckpointError: a tensor is missing, or a shape contradicts the config.
    """
    model_type = state.config.get("model_type")
    family, anatomy = family_of(model_type), anatomy_of(model_type)
    if family is None or anatomy is None or not isinstance(model_type, str):
        raise NotApplicableError(
            "the transforms do not support this model family",
            expected=f"one of these types: {', '.join(dissected())}",
            found="none" if model_type is None else shown(model_type)[:80],
            advice="Renaming tensors and changing the number format work on any model",
        )
    layout = recognise(state.config, {name: tuple(tensor.shape) for name, tensor in state.tensors.items()})
    return _Surveyor(state, layout, family, anatomy, model_type).structure()


class _Surveyor:
    """Collects one structure and keeps account of the tensors it has placed."""

    def __init__(self, state: State, layout: Layout, family: Family, anatomy: Anatomy, model_type: str) -> None:
        self.tensors = state.tensors
        self.layout = layout
        self.family = family
        self.model_type = model_type
        self.plan = anatomy
        norm, role = layout.input_norm or layout.embedding_norm, family.input_norm or family.embedding_norm
        if family.projections is None or layout.q is None or norm is None or role is None:
            raise TypeError(f"{family.name}: an anatomy needs q and k, and norms")
        if not isinstance(role.eps, str):
            raise TypeError(f"{family.name}: an anatomy needs norms whose eps the config states")
        self.norm, self.eps_key, self.spec = norm, role.eps, family.projections
        self.qkv = [family.module(name) for name in (self.spec.q, self.spec.k, self.spec.v or self.spec.q)]
        self.mlp = [name for name in (anatomy.gate, anatomy.up) if name is not None]
        self.config = Config(state.config, state.config, family.model_types[model_type], family.spellings)
        self.placed: set[str] = set()
        self.prefix = layout.q.name.removesuffix(self.spec.q)

    def structure(self) -> Structure:
        plan, family, layout = self.plan, self.family, self.layout
        vocab_size, hidden_size, head_dim = layout.vocab_size, layout.hidden_size, layout.head_dim
        # Not under its head's name, where some savers store it: it could not be separated from the head.
        embedding = self._matrix(self.prefix + family.embedding[0], vocab_size, hidden_size)
        head, head_name, tied = self._head()
        stems = self._stems()
        q_rows, kv_rows = layout.heads * head_dim, layout.kv_heads * head_dim
        layers = tuple(self._layer(stem, q_rows, kv_rows, hidden_size) for stem in stems)
        tables = [table.name for table in (layout.position, layout.token_type) if table is not None]
        found = Structure(
            family=family,
            anatomy=plan,
            norm=self.norm,
            model_type=self.model_type,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            heads=layout.heads,
            kv_heads=layout.kv_heads,
            head_dim=head_dim,
            rotary_dim=self._rotary_dim(head_dim),
            eps_key=self.eps_key,
            embedding=embedding,
            tables=(embedding, *(self._matrix(table, None, hidden_size) for table in tables)),
            head=head,
            head_name=head_name,
            tied=tied,
            config_ties=layout.tied,
            head_biases=tuple(self._present(plan.head_biases, (vocab_size,))),
            layers=layers,
            norms=self._norms(stems, head, hidden_size),
            post_norms=tuple(self._vector(f"{s}.{n}.weight", hidden_size) for s in stems for n in plan.post_norms),
            final_readers=tuple(map(TensorRef, self._present([f"{r}.weight" for r in plan.final_readers], None))),
        )
        for stem in stems:
            for norm in (family.q_norm, family.k_norm):
                if norm is not None:
                    self._vector(f"{stem}.{family.module(norm.weight[0])}.weight", head_dim)
        self._account()
        return found

    def _stems(self) -> list[str]:
        path = self.prefix + self.family.layer.removesuffix("0.")
        pattern = re.compile(re.escape(path) + r"(\d+)\.")
        numbers = {int(m[1]) for m in map(pattern.match, self.tensors) if m}
        stated = self.config.count(self.family.layer_count)
        expected = stated if stated is not None else len(numbers)
        if not numbers or numbers != set(range(expected)):
            raise CorruptCheckpointError(
                "the layers in the files do not match those in the config",
                expected=f"layers 0 to {expected - 1}",
                found=f"{len(numbers)} layers",
                advice="Check that no shard is missing",
            )
        return [f"{path}{i}" for i in sorted(numbers)]

    def _rotary_dim(self, head_dim: int) -> int:
        if self.plan.rotary == "none":
            return 0
        rope = self.config.values.get("rope_parameters") or self.config.values.get("rope_scaling")
        factor = rope.get("partial_rotary_factor") if isinstance(rope, dict) else None
        factor = self.config.values.get("partial_rotary_factor") if factor is None else factor
        if self.plan.rotary == "full" or factor is None:
            return head_dim
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 1:
            raise CorruptCheckpointError(
                "the config's partial_rotary_factor cannot be used",
                file="config.json",
                expected="a number above 0 and at most 1",
                found=shown(factor),
            )
        return int(head_dim * factor)

    def _head(self) -> tuple[str | None, str, bool]:
        """The stored head if any, the head's name, and whether the model uses the embedding instead."""
        family, layout, behind = self.family, self.layout, self.plan.head_behind
        shape = layout.vocab_size, layout.hidden_size
        if layout.head is not None:
            return self._matrix(layout.head.name, *shape), layout.head.name, False
        name = self.prefix.removesuffix(family.prefixes[0].body) + family.head[0]
        # A bare BERT, without the layers in front of its head, outputs the stream and has no head to tie.
        has_head = behind is None or bool(self._ending(f"{behind}.weight"))
        if has_head and not layout.tied:
            raise CorruptCheckpointError(
                "the config specifies a separate output head, but the files contain none",
                tensor=name,
                expected=str(shape),
                found="no such tensor",
                advice="Check that no shard is missing",
            )
        return None, name, has_head

    def _layer(self, stem: str, q_rows: int, kv_rows: int, hidden_size: int) -> Layer:
        plan = self.plan
        q, k, v = self._blocks([f"{stem}.{name}" for name in self.qkv], [q_rows, kv_rows, kv_rows], hidden_size)
        down = f"{stem}.{plan.down}"
        width = self.tensors[self._matrix(f"{down}.weight", None, None)].shape[0 if self.spec.transposed else 1]
        names = [f"{stem}.{name}" for name in self.mlp]
        mlp = self._blocks(names, [width] * len(names), hidden_size)
        return Layer(
            q=q,
            k=k,
            v=v,
            o=self._linear(f"{stem}.{self.family.module(self.spec.o)}", hidden_size, q_rows),
            gate=mlp[0] if plan.gate is not None else None,
            up=mlp[-1],
            down=self._linear(down, hidden_size, width),
        )

    def _blocks(self, names: list[str], rows: list[int], columns: int) -> list[Linear]:
        """One linear per name, as slices of one tensor where the names are the same."""
        if len(set(names)) == len(names):
            return [self._linear(name, count, columns) for name, count in zip(names, rows, strict=True)]
        whole = self._linear(names[0], sum(rows), columns)
        starts = [sum(rows[:i]) for i in range(len(rows))]
        spans = [(start, start + count) for start, count in zip(starts, rows, strict=True)]
        weight, bias = whole.weight, whole.bias
        return [Linear(replace(weight, rows=s), replace(bias, rows=s) if bias else None) for s in spans]

    def _norms(self, stems: list[str], head: str | None, d: int) -> tuple[StreamNorm, ...]:
        norms = list(self.plan.norms.items())
        outer = f"{self.prefix}{self.plan.outer_norm}"

        def weights(stem: str, readers: str) -> tuple[TensorRef, ...]:
            modules = self.qkv if readers == "attention" else self.mlp
            return tuple(self._ref(f"{stem}.{module}.weight") for module in dict.fromkeys(modules))

        if self.family.input_norm is not None:
            inner = [self._norm(f"{s}.{norm}", weights(s, readers), d) for s in stems for norm, readers in norms]
            return (*inner, self._norm(outer, (TensorRef(head),) if head is not None else (), d))
        # A post-norm layer's last norm is read by the next layer.
        (middle, middle_readers), (last, next_readers) = norms
        found = [self._norm(outer, weights(stems[0], next_readers), d)]
        for i, stem in enumerate(stems):
            after = weights(stems[i + 1], next_readers) if i + 1 < len(stems) else ()
            found.append(self._norm(f"{stem}.{middle}", weights(stem, middle_readers), d))
            found.append(self._norm(f"{stem}.{last}", after, d))
        return tuple(found)

    def _norm(self, module: str, readers: tuple[TensorRef, ...], d: int) -> StreamNorm:
        # The oldest BERT files, converted from TensorFlow, use gamma and beta.
        gain, bias = ("gamma", "beta") if f"{module}.gamma" in self.tensors else ("weight", "bias")
        has_bias = self.norm.kind == "layer"
        return StreamNorm(
            self._vector(f"{module}.{gain}", d), self._vector(f"{module}.{bias}", d) if has_bias else None, readers
        )

    def _linear(self, module: str, rows: int, columns: int) -> Linear:
        weight = self._ref(f"{module}.weight")
        self._matrix(weight.name, *((columns, rows) if weight.transposed else (rows, columns)))
        has_bias = f"{module}.bias" in self.tensors
        return Linear(weight, TensorRef(self._vector(f"{module}.bias", rows)) if has_bias else None)

    def _ref(self, name: str) -> TensorRef:
        """A matrix of a layer; a family that stores q and k transposed stores all of them so."""
        return TensorRef(name, transposed=self.spec.transposed)

    def _matrix(self, name: str, rows: int | None, columns: int | None) -> str:
        shape = self._shape(name)
        wanted = (rows, columns)
        if len(shape) != 2 or any(w not in (None, n) for w, n in zip(wanted, shape, strict=True)):
            raise _mismatch(name, str(wanted).replace("None", "any"), shape)
        return name

    def _vector(self, name: str, size: int) -> str:
        if self._shape(name) != (size,):
            raise _mismatch(name, str((size,)), self._shape(name))
        return name

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self.tensors:
            raise _mismatch(name, f"a tensor of the {self.family.name} family", None)
        self.placed.add(name)
        return tuple(self.tensors[name].shape)

    def _present(self, endings: Iterable[str], shape: tuple[int, ...] | None) -> list[str]:
        names = [name for name in map(self._ending, endings) if name]
        for name in names:
            found = self._shape(name)
            if shape is not None and found != shape:
                raise _mismatch(name, str(shape), found)
        return names

    def _ending(self, ending: str) -> str:
        """The one tensor whose name is `ending` or ends in it after a dot; "" if there is none."""
        names = [name for name in self.tensors if name == ending or name.endswith("." + ending)]
        if len(names) < 2:
            return names[0] if names else ""
        raise NotApplicableError(
            "the tensor names do not identify the model",
            tensor=ending,
            expected="one tensor whose name has this ending",
            found=f"{len(names)} such tensors",
        )

    def _account(self) -> None:
        """Raises for floating tensors that have no place in the structure."""
        unknown = [
            name
            for name, tensor in self.tensors.items()
            if name not in self.placed and tensor.is_floating_point() and not name.endswith(self.plan.inert)
        ]
        if unknown:
            raise NotApplicableError(
                f"the model contains tensors whose role is unknown ({len(unknown)})",
                tensor=unknown[0],
                expected=f"only tensors of the {self.family.name} family",
                advice="Merge adapters into the model and remove extra heads",
            )


def _mismatch(name: str, expected: str, found: tuple[int, ...] | None) -> CorruptCheckpointError:
    problem = "a tensor is missing" if found is None else "a tensor's shape contradicts the config"
    return shape_mismatch(problem, name, expected, found)
