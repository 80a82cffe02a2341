"""Insertion (Algorithms 2 and 5): solves the marked rows, writes them in the checkpoint's dtype, publishes, verifies.

For a single owner only the marked rows change, with noise all rows (Algorithm 4): those of the embedding and, if the
output head is a separate matrix, those of the head.
Every other byte of the release is the original's, copied and hashed in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.checkpoint.platform import return_memory
from irwm.errors import MarginError
from irwm.evidence.detection import detect_marks, reading_of
from irwm.evidence.examination import Examination
from irwm.evidence.finding import FOUND, Finding, Reading
from irwm.evidence.fingerprint import sampled_log10_p
from irwm.evidence.parallel import in_order
from irwm.evidence.verdict import FOUND_LOG10_RISK, log10_risk
from irwm.keys.check_original import check_original, placed
from irwm.keys.key import Choices, Key
from irwm.keys.neurons import FingerprintKey
from irwm.release.cloning import ClonedFrom
from irwm.release.front_matter import rewrites_of
from irwm.release.neurons import NoisyNeurons, neurons_of
from irwm.release.patches import NoisyRows, Patches, row_patches, together
from irwm.release.publish import Published, Sign, publish
from irwm.release.unmarked import ChangedRows, RowSearch, holders, require_no_unmarked_copy, searched_for
from irwm.scheme import statistic as stat
from irwm.scheme.basis import Basis
from irwm.scheme.condition import permute_rows
from irwm.scheme.constraint_solution import marked_values
from irwm.scheme.invariant import Layer0
from irwm.scheme.parameters import EMBEDDING, FEWEST_PERMUTATIONS, HEAD
from irwm.scheme.permutations import NullOrders
from irwm.tracing import RISK, trace_each

Progress = Callable[[int, int, str], None]

# Share of the positions that must count right after insertion. An exact mark counts at nearly all of them; with fewer,
# the dtype or the scale has used up the margin that robustness needs.
LEAST_SHARE = 0.9
# Number of halvings after which the constant of a marked row is as exact as a float.
MOST_STEPS = 60


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Release(Published):
    """A published, marked copy.

    Attributes:
        changed_rows: (l,) ids of the embedding rows that differ from the original, L_W; with noise, all rows that
            differ, ascending.
        head_rows: the same for the output head; (0,) if it is not marked.
        layers: the layers in whose neurons the fingerprint is; () if in none.
        verification: the finding of a detection on the written embedding.
    """

    changed_rows: NDArray[np.int64]
    head_rows: NDArray[np.int64]
    layers: tuple[int, ...]
    verification: Finding


def insert(
    model: Checkpoint,
    key: Key,
    out_dir: str | Path,
    progress: Progress | None = None,
    device: str = "cpu",
    cancelled: Callable[[], bool] | None = None,
    shared: Mapping[str, ClonedFrom] | None = None,
    also: Collection[str] = (),
    sign: Sign | None = None,
    base_model: str = "",
    layer0: Layer0 | None = None,
) -> Release:
    """Writes a marked copy of `model` to the new folder `out_dir`.

    Args:
        model: the original that `key` was generated from.
        key: the key.
        out_dir: must not exist; is created complete and verified, or not at all.
        progress: called with bytes done, bytes in total and the current step.
        device: where the invariant is computed.
        cancelled: called regularly; true stops the work with CancelledError.
        shared: `Release.shared` of an earlier copy of the same original; files that are the same are cloned from there,
            and the noise is read back from a sample of rows. Without it, all rows are read back.
        also: names of further files of the model's folder that are copied. Without it only weights, settings, tokenizer
            and texts such as README and LICENSE are copied (`Release.left_out` lists the others).
        sign: signs the release, as `irwm.attestation.model_signer` returns it.
        base_model: the name of the original, which is added to the release's model card; "" for none. A base model that
            the card already names is kept.
        layer0: the model's layer 0, if the caller makes many copies of one model.

    Raises:
        ParameterError: the model has no card to add `base_model` to, or `layer0` is another model's.
        UnsupportedCheckpointError: a checkpoint that can be examined but not marked.
        KeyMismatchError: the key belongs to another original.
        MarginError: the mark would not be provable in this dtype; no file was written.
        UnmarkedCopyError: the release would hold a marked matrix's original values in another tensor or file.
        PublishError: the folder exists, the disk is full, ...; no release was published.
        SigningKeyError, ...: as `sign` raises them; no release was published.
    """
    rewrites = rewrites_of(model, base_model, also)
    model.require_markable()  # the key may have been made with the same model in another format
    check_original(key, model)
    layer0 = Layer0.of(model, device, layer0)
    marks, neurons = _marks(model, key, layer0, device), neurons_of(model, key)
    found: list[Finding] = []

    def verify(folder: Path) -> None:
        if progress:
            progress(0, 1, "Verifying the written mark")
        # All rows of the first copy are read back, and a sample of those of the further ones.
        found.extend(_all_verified(marks, folder, model, layer0, device, whole=not shared))
        if neurons is not None:
            neurons.verify(folder, whole=not shared)

    patches, search = _patches_and_search(list(marks.values()), neurons)
    with _closing(marks.values()):
        published = publish(
            model,
            out_dir,
            patches,
            progress=progress,
            verify=verify,
            cancelled=cancelled,
            shared=shared,
            search=search,
            also=also,
            sign=sign,
            rewrites=rewrites,
        )
    return Release(
        **{each.name: getattr(published, each.name) for each in fields(published)},
        changed_rows=marks[EMBEDDING].changed_rows,
        head_rows=marks[HEAD].changed_rows if HEAD in marks else np.empty(0, dtype=np.int64),
        layers=() if neurons is None else neurons.layers,
        verification=found[0],
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    """The content to write in one place.

    Attributes:
        model: the original, or its output head.
        key: the key of this place.
        tokens: (l,) L_W.
        rows: (l, d) the marked rows, in the tensor's dtype.
        noisy: all rows, if the key has noise.
    """

    model: Checkpoint
    key: Key
    tokens: NDArray[np.int64]
    rows: torch.Tensor
    noisy: NoisyRows | None

    def holders(self, places: Sequence[Checkpoint]) -> list[str]:
        return holders(self.model, self.tokens if self.noisy is None else None, places)

    def patches(self, names: Sequence[str]) -> Patches:
        if self.noisy is not None:
            return self.noisy.patches(names)
        return row_patches(self.model, self.tokens, self.rows, names)

    @property
    def changes(self) -> ChangedRows:
        return ChangedRows(self.model, self.tokens, self.rows, self.noisy is not None)

    @property
    def changed_rows(self) -> NDArray[np.int64]:
        return self.tokens if self.noisy is None else self.noisy.changed_rows


def _patches_and_search(marks: Sequence[_Mark], neurons: NoisyNeurons | None) -> tuple[Patches, RowSearch]:
    """The bytes to write, and the search for rows that no file may then contain.

    Raises:
        UnmarkedCopyError: another tensor holds the original values of a marked matrix.
    """
    places = [mark.model for mark in marks]
    if neurons is not None:
        places += neurons.views
    of_marks = [mark.holders(places) for mark in marks]
    of_neurons = [] if neurons is None else neurons.holders(places)
    changed = {name for names in (*of_marks, *of_neurons) for name in names}
    for matrix in places:
        require_no_unmarked_copy(matrix, changed)
    patches = [mark.patches(names) for mark, names in zip(marks, of_marks, strict=True)]
    changes = [mark.changes for mark in marks]
    if neurons is not None:
        patches.append(neurons.patches(of_neurons))
        changes += neurons.changes
    return together(patches), searched_for(changes)


def _marks(model: Checkpoint, key: Key, layer0: Layer0, device: str) -> dict[str, _Mark]:
    """The content to write, by place."""
    parts = placed(key, model)
    made = in_order(lambda place: _mark(*parts[place], layer0), list(parts), device, fewest=2)
    return dict(zip(parts, made, strict=True))


@contextmanager
def _closing(marks: Iterable[_Mark]) -> Iterator[None]:
    """Ends the threads that compute noisy rows ahead."""
    with ExitStack() as stack:
        for noisy in (mark.noisy for mark in marks if mark.noisy is not None):
            stack.enter_context(closing(noisy))
        yield


def _mark(model: Checkpoint, key: Key, layer0: Layer0) -> _Mark:
    """The content to write in one place, for the original, or its output head, and the key of this place."""
    choices = key.choices()
    rows = marked_rows(model, key, choices, layer0)
    noise = key.noise(model, choices)
    noisy = NoisyRows(model, noise, choices.marked_rows, rows) if noise.coordinates else None
    return _Mark(model, key, choices.marked_rows, rows, noisy)


def _all_verified(
    marks: Mapping[str, _Mark], folder: Path, model: Checkpoint, layer0: Layer0, device: str, *, whole: bool
) -> list[Finding]:
    """The findings of a detection on the written content, by place; arguments and errors as for `_verified`."""
    if whole:  # one matrix after the other, each with all cores and with memory of its own
        return [_verified_alone(marks[place], place, folder, model, layer0, device) for place in marks]
    with closing(open_checkpoint(folder)) as written:
        examination = Examination(written, model, device, layer0)
        examined = {place: examination.at(place) for place in marks}

        def verified(place: str) -> Finding:
            return _verified(marks[place], examined[place], folder, whole=False)

        return list(in_order(verified, list(marks), device, fewest=2))  # samples of two matrices, with one core each


def _verified_alone(mark: _Mark, place: str, folder: Path, model: Checkpoint, layer0: Layer0, device: str) -> Finding:
    return_memory()
    with closing(open_checkpoint(folder)) as written:
        return _verified(mark, Examination(written, model, device, layer0).at(place), folder, whole=True)


def _verified(mark: _Mark, examination: Examination, folder: Path, *, whole: bool) -> Finding:
    """The finding of a detection on the written content in one place.

    Args:
        whole: read the noise back from all rows, and not only from as many as show it.

    Raises:
        MarginError: it differs from the intended content, or mark or noise are not found.
    """
    written = examination.suspect
    tensor = written.layout.embedding.name
    if not torch.equal(written.embedding(mark.tokens), mark.rows.float()):
        raise MarginError(
            "the marked rows that were read back differ from the rows that were written", file=folder, tensor=tensor
        )
    (finding,) = detect_marks(examination, [mark.key])
    if finding.verdict != FOUND:
        raise MarginError("the written mark was not found", file=folder, tensor=tensor, found=finding.reason)
    if mark.noisy is not None and not _identifies(mark.key, examination, whole=whole):
        raise MarginError(
            "the written noise does not identify its recipient",
            file=folder,
            tensor=tensor,
            advice="Use more noise coordinates, or a model with more rows",
        )
    return finding


def _identifies(key: Key, examination: Examination, *, whole: bool) -> bool:
    """Whether the written noise identifies its recipient. Faint noise may need all rows."""
    part = FingerprintKey(key.parameters, key.derivation)
    if not whole and sampled_log10_p(examination.aligned[0], part) <= math.log10(RISK):
        return True
    return trace_each(examination, [key], decoys=0, place=EMBEDDING).traces[0].named


def marked_rows(model: Checkpoint, key: Key, choices: Choices, layer0: Layer0 | None = None) -> torch.Tensor:
    """(l, d) marked rows, rounded to the embedding's dtype (Algorithm 2, lines 15 to 24; Algorithm 5).

    Args:
        layer0: that of `model.body`, if it was read before.

    Raises:
        MarginError: after rounding, overflow or scaling, too little of the mark is left to prove it later.
    """
    if key.parameters.permutations < FEWEST_PERMUTATIONS:
        raise MarginError(
            "with so few permutations, the mark could never be proven",
            expected=f"at least {FEWEST_PERMUTATIONS}",
            found=str(key.parameters.permutations),
            advice="Generate the key with more permutations",
        )
    noise = key.noise(model, choices)
    tokens = choices.query_tokens, choices.reference_tokens
    a_m = Layer0.of(model.body, known=layer0).invariant(*tokens, noise.added(model)).cpu().numpy()
    permuted = permute_rows(a_m, choices.constraint_permutations)
    values = _solved(model, key, choices, noise.basis, permuted)
    rounded = torch.from_numpy(values).to(getattr(torch, model.dtype))
    reading = _margin(noise.basis.into(rounded.double().numpy(), choices.marked_rows), permuted, choices, key)
    least = max(key.parameters.required_positions, math.ceil(LEAST_SHARE * key.parameters.positions))
    if reading.count < least or log10_risk(reading) > FOUND_LOG10_RISK:
        raise MarginError(
            f"the mark does not survive storage as {model.dtype}",
            file=model.path,
            tensor=model.layout.embedding.name,
            expected=f"at least {least} positions with a rank below {key.parameters.rank_threshold:g}, and a risk "
            "below 1e-6",
            found=f"{reading.count} positions and a log10 risk of {log10_risk(reading):.1f}",
            advice="Choose a smaller scale (or auto), more positions, or another dtype",
        )
    return rounded


def _solved(
    model: Checkpoint, key: Key, choices: Choices, basis: Basis, permuted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(l, d) marked rows before rounding, in the model's own coordinates.

    For a model that ignores a constant per row, detection subtracts the median difference of a row from its original. A
    mark in a secret basis shifts that median a little itself, and the shift would be lost. So the constant is chosen
    such that the median is zero, at no cost to the model.
    """
    tokens = choices.marked_rows
    rows = model.embedding(tokens).double().numpy()

    def marked(plain: NDArray[np.float64]) -> NDArray[np.float64]:
        solved = marked_values(basis.into(plain, tokens), permuted, choices.row_permutations, key.scale)
        return basis.out_of(solved, tokens)

    values = marked(rows)
    if not model.drops_row_constants:
        return values
    unit = marked(np.ones_like(rows))  # the mark is linear in the row
    return values + _without_median(values - rows, unit) * unit


def _without_median(change: NDArray[np.float64], unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """(l, 1) constants c with which the median of change + c unit (l, d) is zero in each row, by halving.

    The median is continuous in c. As most entries of `unit` are positive, it is below zero for very small c and above
    it for very large c.
    """
    low, high = (np.full((len(change), 1), side * np.abs(change).max()) for side in (-1.0, 1.0))
    for _ in range(MOST_STEPS):
        middle = (low + high) / 2
        above = np.median(change + middle * unit, axis=1, keepdims=True) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found: NDArray[np.float64] = (low + high) / 2
    return found


def _margin(rows: NDArray[np.float64], permuted: NDArray[np.float64], choices: Choices, key: Key) -> Reading:
    """The reading that a verdict would get from the rounded rows (l, d), in the basis, before any file is written."""
    shuffled = stat.normalised(np.take_along_axis(rows, choices.row_permutations, axis=1))
    weights = stat.joint_map(permuted, key.scale)
    count = key.parameters.permutations  # the key's own number: every later detection with it must find the mark
    null = stat.null_lengths(weights, shuffled, NullOrders.of(0, count, *rows.shape))
    return reading_of("joint", "original", stat.lengths(weights, shuffled), null, key.parameters)
