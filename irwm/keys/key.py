"""Keys: every choice of a mark is derived from one 32-byte secret; no choice is free (docs/method.md).

A key file is canonical JSON (docs/key-format.md). `Choices` are the index vectors derived from the secret, the
original's fingerprint, the owner and the recipient. The paper's permutation matrices are never stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.errors import KeyFormatError, ParameterError, holds_controls, printable
from irwm.keys.digests import check_sha256, layer0_digest, rows_digest
from irwm.keys.neurons import FingerprintKey, NeuronsKey, choose
from irwm.scheme.condition import well_conditioned
from irwm.scheme.constraint_solution import natural_scale
from irwm.scheme.derivation import Derivation, binding, canonical
from irwm.scheme.invariant import Layer0
from irwm.scheme.keystream import derive, public_key
from irwm.scheme.noise import Noise, noise_of
from irwm.scheme.parameters import AUTO_SCALE, EMBEDDING, HEAD, NEURONS, Parameters
from irwm.scheme.row_pool import RowPool, check_ranges, row_pool

FORMAT = "irwm-key"
VERSION = 3
SECRET_BYTES = 32
MAX_NAME = 200  # characters of an owner's or recipient's name
MOST_MLPS = 1 << 20  # far more than the experts of any model
MAX_KEY_BYTES = 16 << 20  # far above any real key; limits the size of hostile input
# Fields that a key file stores unchanged.
_PLAIN = (
    *("model_fingerprint", "rows_digest", "layer0_digest", "attempt"),
    *("vocab_size", "hidden_size", "owner", "recipient"),
)
# The fields of a key file for the mark in an output head; the rest is the same as for the embedding.
_OF_HEAD = ("model_fingerprint", "rows_digest", "attempt")


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """A key's decisions, as index vectors.

    Attributes:
        query_tokens: (t,) L_M, tokens of the rows of A.
        reference_tokens: (d,) tokens of the columns of A.
        marked_rows: (l,) L_W, rows that carry the mark.
        row_permutations: (l, d) L_P1.
        constraint_permutations: (t, d) L_P2 of the accepted try.
    """

    query_tokens: NDArray[np.int64]
    reference_tokens: NDArray[np.int64]
    marked_rows: NDArray[np.int64]
    row_permutations: NDArray[np.int64]
    constraint_permutations: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Key:
    """One mark of one model for one owner or recipient.

    If the output head is marked too, `head` is that mark's key, which reads `Checkpoint.output_head` as this one reads
    the checkpoint: with its own choices, try and scale from the same secret, and `Parameters.in_head`.

    Attributes:
        secret: 32 bytes; never shown, logged or written outside the vault.
        parameters: the mark's parameters.
        model_fingerprint: hex SHA-256 of the original's embedding; salt of every derivation.
        rows_digest, layer0_digest: hex SHA-256 of the original's rows that the mark reads, and of everything else that
            the invariant reads, see `irwm.keys.digests`.
        vocab_size, hidden_size: s and d of the original.
        pool: the usable rows at the time the key was made.
        attempt: index of the first try of the constraint permutations with cond(A2) < condition_limit.
        scale: scale_wm as a number, "auto" resolved.
        owner, recipient: names bound into the derivation.
        head: the key of the mark in the output head; None if only the embedding is marked.
        neurons: the part for the fingerprint in the neurons; None if they carry none.
        embedding_fingerprint: for a `head`, the fingerprint of the embedding, to which it is also bound; else "".
    """

    secret: bytes = field(repr=False)
    parameters: Parameters
    model_fingerprint: str
    rows_digest: str
    layer0_digest: str
    vocab_size: int
    hidden_size: int
    pool: RowPool = field(repr=False)
    attempt: int
    scale: float
    owner: str = ""
    recipient: str = ""
    head: Key | None = field(default=None, repr=False)
    neurons: NeuronsKey | None = field(default=None, repr=False)
    embedding_fingerprint: str = ""

    @property
    def marks_head(self) -> bool:
        """Whether its settings include the output head; a model whose head is its embedding has no second mark
        there."""
        return HEAD in self.parameters.places

    def at(self, place: str) -> Key | None:
        """This key for the mark in one of `irwm.scheme.parameters.PLACES`; None if that place has none."""
        return {EMBEDDING: self, HEAD: self.head}.get(place)

    def fingerprint_at(self, place: str) -> FingerprintKey | None:
        """The key of the fingerprint in one of `irwm.scheme.parameters.FINGERPRINT_PLACES`; None if that place has
        neither mark nor fingerprint."""
        if place != NEURONS:
            part = self.at(place)
            return None if part is None else FingerprintKey(part.parameters, part.derivation)
        if self.neurons is None:
            return None
        mlps, width = self.neurons.mlps, self.neurons.width
        bound = binding(self.parameters, self.pool, width, self.layer0_digest, self.model_fingerprint, mlps)
        derivation = Derivation(self.secret, self.neurons.fingerprint, self.owner, self.recipient, bound)
        return FingerprintKey(self.parameters, derivation, mlps)

    @property
    def commitment(self) -> str:
        """Hex SHA-256 over the whole key, its public fingerprint; it reveals no part of the key. A `head` has none."""
        return hashlib.sha256(b"irwm/v3/commitment\0" + self.to_bytes()).hexdigest()

    @property
    def query_tokens(self) -> NDArray[np.int64]:
        return self.choices().query_tokens

    @property
    def marked_rows(self) -> NDArray[np.int64]:
        return self.choices().marked_rows

    @property
    def derivation(self) -> Derivation:
        """Derives every choice of this key."""
        bound = binding(self.parameters, self.pool, self.hidden_size, self.layer0_digest, self.embedding_fingerprint)
        return Derivation(self.secret, self.model_fingerprint, self.owner, self.recipient, bound)

    @property
    def control_seed(self) -> int:
        """The seed of the `decoy_key`s that control an examination with this key. It is as secret as the key: with a
        public seed, an attacker could write a control's mark into the copy, so that the control fails."""
        return int.from_bytes(derive(self.secret, b"irwm", b"irwm/v3/controls")[:15], "little")

    def noise(self, model: Checkpoint, choices: Choices) -> Noise:
        """The noise of this key's copy of the original `model` (Algorithm 4), and the bases of its rows."""
        return noise_of(self.derivation, self.parameters, model, choices.marked_rows)

    def rows_read(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Query tokens (t,), reference tokens (d,) and marked rows (l,): the part of `choices` that is fast to
        derive."""
        p, derivation = self.parameters, self.derivation
        query, reference = derivation.tokens(self.pool, p.constraints, self.hidden_size)
        return query, reference, derivation.marked_rows(self.pool, query, reference, p.positions)

    def choices(self) -> Choices:
        """Derive every index vector of this key."""
        p, derivation = self.parameters, self.derivation
        query, reference, marked = self.rows_read()
        return Choices(
            query_tokens=query,
            reference_tokens=reference,
            marked_rows=marked,
            row_permutations=derivation.row_permutations(p.positions, self.hidden_size),
            constraint_permutations=derivation.constraint_permutations(self.attempt, p.constraints, self.hidden_size),
        )

    def to_bytes(self) -> bytes:
        """Canonical JSON, UTF-8: sorted names, no spaces (docs/key-format.md)."""
        values = {
            "format": FORMAT,
            "version": VERSION,
            "secret": self.secret.hex(),
            "parameters": self.parameters.to_dict(),
            "excluded_rows": [list(pair) for pair in self.pool.excluded],
            "scale": float(self.scale),
        }
        if self.head is not None:
            own = {name: getattr(self.head, name) for name in _OF_HEAD}
            own |= {
                "excluded_rows": [list(pair) for pair in self.head.pool.excluded],
                "scale": float(self.head.scale),
            }
            values["head"] = own
        if self.neurons is not None:
            values["neurons"] = asdict(self.neurons) | {"mlps": list(self.neurons.mlps)}
        return canonical(values | {name: getattr(self, name) for name in _PLAIN})

    @classmethod
    def from_bytes(cls, data: bytes) -> Key:
        """The key that `to_bytes` wrote.

        Raises:
            KeyFormatError: not a key, a newer version, or a field out of its range.
        """
        try:
            return _parse(data)
        except ParameterError as error:
            raise KeyFormatError(
                f"the key's {error.problem}",
                expected=error.expected,
                found=error.found,
                advice="No mark can be read with this setting. Ask the author for a key whose setting is within the "
                "range",
            ) from error
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise KeyFormatError(
                "these bytes are not a watermark key",
                found=type(error).__name__,
                advice="Open the key's record in the vault",
            ) from error


def generate_key(
    model: Checkpoint,
    params: Parameters | None = None,
    secret: bytes | None = None,
    owner: str = "",
    recipient: str = "",
    device: str = "cpu",
    layer0: Layer0 | None = None,
) -> Key:
    """A key for `model` (Algorithm 2, lines 1 to 13, without touching the weights).

    Args:
        model: the original.
        params: the mark's parameters; `Parameters()` by default.
        secret: 32 bytes, drawn from the operating system if None. Recipients of one owner share the secret.
        owner, recipient: names bound into the derivation, at most 200 characters each.
        device: where the invariant is computed.
        layer0: the model's layer 0, if the caller makes many keys of one model.

    Raises:
        ParameterError: the model is too small for the parameters, a name or the secret is malformed, or `layer0` is
            another model's.
        ConditionError: condition_limit was not reached.
        CheckpointError: the model's embedding or layer 0 cannot be used.
    """
    params = params or Parameters()
    params.require_ranges()
    secret = os.urandom(SECRET_BYTES) if secret is None else secret
    _check_secret_and_names(secret, owner, recipient)
    model.require_markable()
    d, t = model.hidden_size, params.constraints
    for what, count in (("constraints", t), ("noise coordinates", params.noise_coordinates)):
        if count >= d:
            raise ParameterError(
                f"too many {what} for the number of coordinates", expected=f"below {d}", found=str(count)
            )
    layer0 = Layer0.of(model, device, layer0)
    key = _key_of(model, params, secret, owner, recipient, layer0)
    head = model.output_head if HEAD in params.places else None
    if head is not None and head.markable:
        key = replace(key, head=_key_of(head, params.in_head, secret, owner, recipient, layer0))
    return replace(key, neurons=choose(model, key.derivation) if NEURONS in params.places else None)


def _key_of(model: Checkpoint, params: Parameters, secret: bytes, owner: str, recipient: str, layer0: Layer0) -> Key:
    """The key of one place: `model` is the checkpoint, or its output head."""
    draft = Key(
        secret=secret,
        parameters=params,
        pool=row_pool(model),
        layer0_digest=layer0_digest(model.body),
        model_fingerprint=model.fingerprint,
        rows_digest="",
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        attempt=0,
        scale=1.0,
        owner=owner,
        recipient=recipient,
        embedding_fingerprint="" if model.whole is None else model.whole.fingerprint,
    )
    choices = draft.choices()
    tokens = choices.query_tokens, choices.reference_tokens
    a_m = layer0.invariant(*tokens, draft.noise(model, choices).added(model)).cpu().numpy()
    attempt, scale = attempt_and_scale(draft, choices, a_m, model)
    digest = rows_digest(model, *tokens, choices.marked_rows)
    return replace(draft, rows_digest=digest, attempt=attempt, scale=scale)


def decoy_key(
    model: Checkpoint,
    params: Parameters,
    number: int,
    seed: int = 0,
    owner: str = "",
    device: str = "cpu",
    layer0: Layer0 | None = None,
) -> Key:
    """A key that was never inserted anywhere, for the controls shown with a verdict.

    Its secret is public and derived from `seed` and `number`, so that anyone can repeat the control. Errors as
    `generate_key`.
    """
    secret = public_key(seed, f"irwm/v3/decoy/{number}")
    return generate_key(model, params, secret, owner, f"decoy {number}", device, layer0)


def attempt_and_scale(key: Key, choices: Choices, a_m: NDArray[np.float64], model: Checkpoint) -> tuple[int, float]:
    """The key's `attempt` and `scale` as they follow from everything else in it, whatever it states for them.

    Args:
        choices: the key's.
        a_m: (t, d) invariant of the original `model` with the key's noise.

    Raises:
        ConditionError: condition_limit was not reached.
    """
    p, derivation, marked = key.parameters, key.derivation, choices.marked_rows

    def draw(attempt: int) -> NDArray[np.int64]:
        if attempt == key.attempt:
            return choices.constraint_permutations
        return derivation.constraint_permutations(attempt, p.constraints, key.hidden_size)

    attempt, permuted = well_conditioned(a_m, draw, p.condition_limit)
    if p.scale != AUTO_SCALE:
        return attempt, float(p.scale)
    # The stored entries become as large as the row's numbers in the basis.
    rows = key.noise(model, choices).basis.into(model.embedding(marked).double().numpy(), marked)
    return attempt, natural_scale(rows, permuted, choices.row_permutations)


def _check_secret_and_names(secret: bytes, owner: str, recipient: str) -> None:
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise ParameterError("the secret is invalid", expected="32 bytes", found=type(secret).__name__)
    for what, name in (("owner", owner), ("recipient", recipient)):
        if not isinstance(name, str) or len(name) > MAX_NAME or (not name.isascii() and not _encodes(name)):
            raise ParameterError(f"the {what}'s name cannot be used", expected=f"text of at most {MAX_NAME} characters")
        if holds_controls(name):
            raise ParameterError(
                f"the {what}'s name contains a line break, an invisible character or a change in writing direction",
                expected="one line of visible text",
                found=printable(name, 80),
                advice="Type the name again instead of pasting it",
            )


def _encodes(name: str) -> bool:
    """Whether a name can be encoded as UTF-8; a lone surrogate cannot."""
    try:
        return bool(name.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _parse(data: bytes) -> Key:
    if len(data) > MAX_KEY_BYTES:
        raise KeyFormatError("the key is too large", expected=f"at most {MAX_KEY_BYTES} bytes", found=str(len(data)))
    values: dict[str, Any] = json.loads(data.decode("utf-8"))
    if values["format"] != FORMAT:
        raise KeyFormatError("these bytes are not a watermark key", found=repr(values["format"])[:40])
    if values["version"] != VERSION:
        raise KeyFormatError(
            "the key has an unsupported version",
            expected=str(VERSION),
            found=repr(values["version"])[:40],
            advice="Use the version of this program that wrote the key, or a newer one",
        )
    size, d = values["vocab_size"], values["hidden_size"]
    key = Key(
        secret=bytes.fromhex(values["secret"]),
        parameters=Parameters.from_dict(values["parameters"]),
        **_of_place(values, size),
        **{name: values[name] for name in _PLAIN if name not in _OF_HEAD},
    )
    if "head" in values:
        if HEAD not in key.parameters.places:
            raise KeyFormatError(
                "the key has a mark in the output head, but its settings do not include the output head"
            )
        of_head = _of_place(values["head"], size) | {"parameters": key.parameters.in_head}
        key = replace(key, head=replace(key, **of_head, embedding_fingerprint=key.model_fingerprint))
    if "neurons" in values:
        key = replace(key, neurons=_of_neurons(values["neurons"], key.parameters))
    _check_secret_and_names(key.secret, key.owner, key.recipient)
    check_sha256("layer0_digest", key.layer0_digest)
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (size, d))
    if not whole or not 0 < size < 2**31 or not key.parameters.constraints < d < 2**24:
        raise KeyFormatError("the key's dimensions are out of range", found=f"{size} × {d}")
    if key.to_bytes() != data:
        raise KeyFormatError("the key is not in canonical form", advice="Open the key's record in the vault")
    return key


def _of_neurons(values: dict[str, Any], params: Parameters) -> NeuronsKey:
    """The part of a key for the neurons, validated."""
    if NEURONS not in params.places:
        raise KeyFormatError("the key has a fingerprint in the neurons, but its settings do not include the neurons")
    part = NeuronsKey(**values | {"mlps": tuple(values["mlps"])})
    check_sha256("neurons.fingerprint", part.fingerprint)
    numbers = (part.width, *part.mlps)
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in numbers)
    if not whole or not params.noise_coordinates < part.width < 2**24:
        raise KeyFormatError("the width of the key's neurons is out of range", found=str(part.width)[:40])
    ascending = all(one < other for one, other in pairwise(part.mlps))
    if not part.mlps or not ascending or not 0 <= part.mlps[0] <= part.mlps[-1] < MOST_MLPS:
        raise KeyFormatError("the numbers of the key's MLPs are out of range", found=str(part.mlps[:8])[:80])
    return part


def _of_place(values: dict[str, Any], size: int) -> dict[str, Any]:
    """A key's fields for one place, validated."""
    excluded, attempt, scale = values["excluded_rows"], values["attempt"], float(values["scale"])
    numbers = (attempt, *(edge for pair in excluded for edge in pair))
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in numbers) or attempt < 0:
        raise KeyFormatError(
            "the key's attempt, or an excluded row, is not a whole number", found=f"attempt {attempt}"[:80]
        )
    if not check_ranges(excluded, size) or not 0.0 < scale < float("inf"):
        raise KeyFormatError("the key's row pool or scale is out of range")
    for name in ("model_fingerprint", "rows_digest"):
        check_sha256(name, values[name])
    pool = RowPool(size, tuple((a, b) for a, b in excluded))
    return {name: values[name] for name in _OF_HEAD} | {"pool": pool, "scale": scale}
