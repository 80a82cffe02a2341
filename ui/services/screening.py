"""Screens one suspect of thousands: which originals it resembles, and whose marks it carries.

The embeddings are compared by their sketches, which takes milliseconds. Keys are tried only on a suspect that resembles
an original, as Investigate tries them but without the controls of a report. Every verdict is corrected for the keys of
all originals.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import irwm
from irwm.checkpoint.mlps import MLPs
from irwm.checkpoint.remote.mirror import bytes_read
from irwm.checkpoint.remote.opening import server_of
from irwm.errors import IrwmError, printable, shown_path
from irwm.evidence.detection import NO_NEURONS
from irwm.evidence.devices import on_device
from irwm.evidence.likeness import FEW_ROWS, MOST_ROWS, Reference, difference, sketch
from ui.services.examining import Examined, Examiner
from ui.services.originals import Candidate, compare
from ui.services.outcomes import INCONCLUSIVE, NOT_FOUND, error_parts
from ui.services.request import WatchRequest
from ui.services.results import NO_MATCH, Screened
from ui.services.work import Reports

# An original with this likeness, and with half that of the best one, is examined. Models that were trained apart on the
# same text have up to 0.3; descendants have 0.25 and more.
LEAST_LIKENESS, SHARE_OF_BEST = 0.12, 0.5
# The original whose rows differ least in length is examined if the difference is at most this.
MOST_DIFFERENCE = 0.5
# Bytes that are read for the sketch of a suspect on a server also if the budget is smaller.
_BYTES_OF_A_SKETCH = 128 << 20
# Numbers of an original that are read for its sketch.
_MOST_NUMBERS = 2**25
NOTHING_ALIKE = "Its embedding resembles that of no original, so no key was tried. This does not clear the suspect"
NOT_PAIRED = (
    "It was not compared with these originals, since too few of its tokens are theirs or its rows are empty: {}. "
    "Investigate it"
)
NOT_EXAMINED = "It resembles the original {}, whose keys could not be tried: {}"
NEURONS_NOT_AFFORDED = "Its MLP layers exceed the budget of this watch: investigate it, or raise the budget."
NOT_AFFORDED = "It resembles the original {}, whose keys were not tried: {}. Investigate it"


class OverBudgetError(IrwmError):
    """A suspect needs more bytes or more time than the watch may spend on it."""


class OutOfTimeError(OverBudgetError):
    """A suspect needs more time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Likely:
    """An original and how much a suspect resembles it."""

    candidate: Candidate
    likeness: float
    difference: float


class Screen:
    """Screens one suspect after the other.

    Args:
        found: the originals and their keys.
        folder: for temporary files.
        draw: chooses the sampled rows of suspects. An attacker who knows them can replace just these.
    """

    def __init__(
        self, found: Sequence[Candidate], request: WatchRequest, device: str, folder: Path, draw: bytes
    ) -> None:
        self._request, self._device, self._draw = request, device, draw
        self._references: list[tuple[Candidate, Reference]] = []
        self._examiners: dict[int, Examiner] = {}
        for candidate in found:
            reference = Reference(candidate.original, device, _most_rows(candidate.original))
            self._references.append((candidate, reference))
            self._examiners[id(candidate)] = Examiner(candidate.original, candidate.keys, request, None, folder)

    @property
    def seconds(self) -> float:
        """That one suspect may take."""
        return self._request.seconds

    def screened(self, path: Path) -> tuple[Screened, dict[str, str | None] | None]:
        """The result for one suspect; and the parts of an error if it resembles an original, and the request does not
        allow what an examination needs.

        Raises:
            OverBudgetError: a sketch needs more than the request allows.
            IrwmError, OSError: it cannot be opened or examined.
        """
        began, before = time.monotonic(), bytes_read(path)
        limited = _Limited(path, began + self._request.seconds, before, self._request.most_bytes)
        suspect = irwm.open_checkpoint(path)
        if _is_read_by_rows(suspect):
            self._require_affordable(suspect, FEW_ROWS, max(self._request.most_bytes, _BYTES_OF_A_SKETCH))
        else:
            self._require_affordable(suspect)
        most = FEW_ROWS if server_of(suspect.path) else _most_rows(suspect)
        own = sketch(suspect, self._device, most, self._draw)
        compared = [
            _Likely(candidate, original.likeness(own), difference(own, original.sketch))
            for candidate, original in self._references
        ]
        likely = _likely(compared)
        best = max(compared, key=lambda each: -math.inf if math.isnan(each.likeness) else each.likeness)
        unpaired = [each.candidate for each in compared if math.isnan(each.likeness) and each not in likely]
        result: Screened = {
            "part": "", "word": NO_MATCH, "whose": [], "reason": NOTHING_ALIKE,
            "original": shown_path(best.candidate.original.path),
            "likeness": None if math.isnan(best.likeness) else best.likeness, "lineage": "", "log10_risk": None,
            "bytes": 0, "seconds": 0.0,
        }  # fmt: skip
        error = None
        if likely:
            try:
                self._require_affordable(suspect)
                result |= self._examined(suspect, likely, limited)
            except OverBudgetError as over:
                error = error_parts(over)
                alike = max(likely, key=lambda each: each.likeness)
                reason = NOT_AFFORDED.format(_names([alike.candidate]), over.problem)
                result |= {
                    "word": INCONCLUSIVE,
                    "reason": reason,
                    "original": shown_path(alike.candidate.original.path),
                }
        if unpaired and result["word"] in (NO_MATCH, NOT_FOUND):
            result |= {"word": INCONCLUSIVE, "reason": NOT_PAIRED.format(_names(unpaired))}
        result |= {"bytes": bytes_read(path) - before, "seconds": round(time.monotonic() - began, 3)}
        return result, error

    def _examined(self, suspect: irwm.Checkpoint, likely: Sequence[_Likely], work: Reports) -> Screened:
        """The strongest finding with the keys of the likely originals."""
        read = partial(self._read, suspect, work)
        compared = compare([each.candidate for each in likely], (), read)
        found = compared.read[0]
        examined = found.examined
        word, reason = examined.said
        if NO_NEURONS in examined.findings[examined.best].warnings and not self._affords_neurons(suspect):
            reason = f"{reason} {NEURONS_NOT_AFFORDED}"
        if word == NOT_FOUND and compared.open:
            failed = compared.open[0]
            word, reason = INCONCLUSIVE, NOT_EXAMINED.format(printable(failed["name"], 80), failed["reason"])
        alike = next(each.likeness for each in likely if each.candidate is found.candidate)
        return {
            "part": "", "word": word, "whose": examined.people, "reason": reason,
            "original": shown_path(found.candidate.original.path), "likeness": None if math.isnan(alike) else alike,
            "lineage": examined.findings[examined.best].lineage.status, "log10_risk": examined.log10_risk,
            "bytes": 0, "seconds": 0.0,
        }  # fmt: skip

    def _read(self, suspect: irwm.Checkpoint, work: Reports, candidate: Candidate) -> Examined:
        examiner = self._examiners[id(candidate)]
        neurons = self._affords_neurons(suspect)
        return on_device(partial(_without_controls, examiner, suspect, work, neurons), self._device, work.log)[0]

    def _affords_neurons(self, suspect: irwm.Checkpoint) -> bool:
        """Whether the first matrices of a suspect's MLPs, which are read together, are within the budget."""
        body = suspect.body
        return not server_of(body.path) or MLPs(body).bytes_of_gates <= self._request.most_bytes

    def _require_affordable(self, suspect: irwm.Checkpoint, rows: int | None = None, most: int | None = None) -> None:
        """Rejects a suspect on a server if so many rows of its embedding, or all, are larger than the budget."""
        entry, most = suspect.tensors[suspect.layout.embedding.name], most or self._request.most_bytes
        size = entry.nbytes if rows is None else min(1.0, rows / entry.shape[0]) * entry.nbytes
        if server_of(suspect.path) and size > most:
            raise OverBudgetError(
                "its embedding is larger than the budget of this watch",
                file=suspect.path,
                expected=f"at most {most} bytes",
                found=f"{size:.0f} bytes",
                advice="Investigate it, or raise the budget",
            )


def _most_rows(model: irwm.Checkpoint) -> int:
    """Rows of a sketch of a model on disk."""
    return max(FEW_ROWS, min(MOST_ROWS, _MOST_NUMBERS // model.hidden_size))


def _is_read_by_rows(suspect: irwm.Checkpoint) -> bool:
    """Whether some rows of its embedding can be read without the others."""
    entry = suspect.tensors[suspect.layout.embedding.name]
    return not suspect.layout.embedding.transposed and getattr(entry, "by_rows", True)


@contextmanager
def deadline(until: float) -> Iterator[None]:
    """Ends the block with an error at a time of the monotonic clock, also while it waits for a server. Only in the main
    thread of a process on a system with timers.

    Raises:
        OutOfTimeError
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(*_: object) -> None:
        raise _too_long("before it was examined")

    before = signal.signal(signal.SIGALRM, end)
    other = signal.setitimer(signal.ITIMER_REAL, max(0.001, until - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *other)


def _too_long(where: str) -> OutOfTimeError:
    return OutOfTimeError(
        "this suspect takes longer than the budget of this watch",
        found=where,
        advice="Investigate it, or raise the budget",
    )


def _without_controls(
    examiner: Examiner, suspect: irwm.Checkpoint, work: Reports, neurons: bool, device: str
) -> Examined:
    return examiner.examine(suspect, device, work, controls=False, neurons=neurons)


def _names(found: Sequence[Candidate]) -> str:
    return ", ".join(printable(each.original.path.name, 80) for each in found)


def _likely(compared: Sequence[_Likely]) -> list[_Likely]:
    """The originals to examine: those that the suspect resembles, else the one whose rows differ least in length."""
    best = max((each.likeness for each in compared if not math.isnan(each.likeness)), default=-1.0)
    if best >= LEAST_LIKENESS:
        return [each for each in compared if each.likeness >= max(LEAST_LIKENESS, SHARE_OF_BEST * best)]
    nearest = min(compared, key=lambda each: each.difference)
    return [nearest] if nearest.difference <= MOST_DIFFERENCE else []


@dataclass(frozen=True, slots=True)
class _Limited:
    """Reports that go nowhere, of work on a path that ends at a time of the monotonic clock, or when more than so many
    bytes were read from its server, besides those `before`."""

    path: Path
    until: float
    before: int
    most_bytes: int

    def progress(self, done: int, total: int, what: str) -> None:
        if time.monotonic() > self.until:
            raise _too_long(what)
        if (read := bytes_read(self.path) - self.before) > self.most_bytes:
            raise OverBudgetError(
                "this suspect needs more bytes than the budget of this watch",
                file=self.path,
                expected=f"at most {self.most_bytes} bytes",
                found=f"{read} bytes so far",
                advice="Investigate it, or raise the budget",
            )

    def log(self, line: str) -> None:
        pass
