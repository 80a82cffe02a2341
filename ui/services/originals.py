"""All originals of the vault on one suspect, when the officer chose none.

Every key of every original is tried, also if the lineage excludes it: a suspect could be built so that its lineage
excludes the original of a mark that it carries. Every verdict is corrected for all of these keys.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import irwm
from irwm.errors import CancelledError, IrwmError, path_from, shown_path
from irwm.report.structure import plain
from storage.records import OriginalRecord
from storage.vault import Vault
from ui.services.examining import Examined, Keys
from ui.services.request import ComparingRequest
from ui.services.results import OriginalRow
from ui.services.work import Work

GONE = "It is no longer where a release was made from it."
NOT_ASKED = "It was added after this request, or it may not be read here."
REPLACED = "Another model is now where a release was made from it."
OTHER_LAYERS = "Some of its keys were made for another model with the same embedding, which is not here."


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """An original whose keys are tried."""

    original: irwm.Checkpoint
    keys: Keys


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A candidate whose keys were tried."""

    candidate: Candidate
    examined: Examined


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """All originals of the vault on one suspect.

    Attributes:
        best: the candidate to report: the strongest finding, else one that is inconclusive.
        read: the candidates whose keys were tried, the strongest first.
        open: rows of the originals of which keys were not tried.
    """

    best: Candidate
    read: tuple[Read, ...]
    open: tuple[OriginalRow, ...]

    @property
    def rows(self) -> list[OriginalRow]:
        """A row for each original, the strongest first."""
        return [*(_row(each, len(self.read)) for each in self.read), *self.open]

    @property
    def extra(self) -> dict[str, str]:
        """The sentences about the others in the report of the best candidate, by label."""
        best, *others = self.read
        found = [f"{row['name']} ({', '.join(row['whose'])})" for row in self.rows[1:] if row["verdict"] == "found"]
        p = _p(best, len(self.read))
        said = {"Originals whose keys were tried": str(len(self.read))}
        if found:
            said |= {"Also found, marks of other originals": "; ".join(found)}
        if self.open:
            said |= {"Originals of which keys were not tried": "; ".join(row["name"] for row in self.open)}
        if others and p is not None:
            said |= {"Chance that an unrelated model agrees as closely with any of the originals": f"{p:.2g}"}
        return said


def candidates(
    request: ComparingRequest, vault: Vault, work: Work
) -> tuple[tuple[Candidate, ...], tuple[OriginalRow, ...]]:
    """The originals whose keys can be tried, and a row for each original of which keys are left out.

    Raises:
        IrwmError: no key of any original is left.
    """
    asked = {path_from(path) for path in request.originals}
    found: list[Candidate] = []
    rows: list[OriginalRow] = []
    for record in vault.originals():
        wanted = set(vault.key_ids(request.matching, model_fingerprint=record.fingerprint))
        if not wanted:
            continue
        own, unusable, reason = _of_record(record, request, vault, work, asked)
        found += own
        left = wanted - unusable - {id for each in own for id in each.keys.ids}
        if left:
            rows.append(_left_out(record, reason if not own else OTHER_LAYERS))
    if not found:
        raise IrwmError(
            "no key of any original of the vault can be tried",
            found=rows[0]["reason"] if rows else None,
            advice="Choose the original that the suspect may come from",
        )
    total = sum(len(each.keys.keys) for each in found)
    return tuple(_corrected(each, total) for each in found), tuple(rows)


def _corrected(candidate: Candidate, total: int) -> Candidate:
    """The candidate with the correction for the keys of all candidates."""
    keys = candidate.keys
    elsewhere = total - len(keys.keys)
    return replace(candidate, keys=replace(keys, elsewhere=elsewhere, held=keys.held + elsewhere))


def _of_record(
    record: OriginalRecord, request: ComparingRequest, vault: Vault, work: Work, asked: set[Path]
) -> tuple[list[Candidate], set[str], str]:
    """The candidates among the paths of one record, each with keys that no other has; the keys that are of the wrong
    kind or damaged; and why there is no candidate."""
    found: list[Candidate] = []
    taken: set[str] = set()
    unusable: set[str] = set()
    reason = GONE
    for path in map(path_from, record.paths):
        if path not in asked:
            reason = NOT_ASKED if os.path.exists(path) else reason
            continue
        if not os.path.exists(path):
            continue
        try:
            original = irwm.open_checkpoint(path)
            if original.fingerprint != record.fingerprint:
                reason = REPLACED
                continue
            keys, _ = Keys.fitting(vault, request, original, work)
        except CancelledError:
            raise
        except IrwmError as error:
            reason = str(error)
            continue
        ids = set(keys.ids)
        unusable = set(vault.key_ids(request.matching, model_fingerprint=record.fingerprint)) - ids - set(keys.misfits)
        if ids - taken:
            taken |= ids
            found.append(Candidate(original, keys))
    return found, unusable, reason


def compare(
    found: Sequence[Candidate],
    rows: Sequence[OriginalRow],
    read: Callable[[Candidate], Examined],
) -> Compared:
    """Try the keys of every candidate.

    Args:
        found, rows: from `candidates`.
        read: tries the keys of one of them.

    Raises:
        IrwmError: the suspect cannot be examined with any of them.
    """
    done: list[Read] = []
    left = list(rows)
    problem: IrwmError | None = None
    for candidate in found:
        try:
            done.append(Read(candidate, read(candidate)))
        except CancelledError:
            raise
        except IrwmError as error:
            problem = error
            path = candidate.original.path
            left.append(_empty(shown_path(path), path.name, str(error)))
    if not done:
        assert problem is not None
        raise problem
    done.sort(key=lambda each: each.examined.strength)
    return Compared(done[0].candidate, tuple(done), tuple(left))


def _row(read: Read, originals: int) -> OriginalRow:
    path, examined = read.candidate.original.path, read.examined
    verdict, reason = examined.said
    lineage = examined.findings[examined.best].lineage
    row: OriginalRow = plain({
        "path": shown_path(path), "name": path.name, "lineage": lineage.status, "similarity": lineage.similarity,
        "p": _p(read, originals), "keys": len(examined.keys.keys), "verdict": verdict, "whose": examined.people,
        "reason": reason,
    })  # fmt: skip
    return row


def _p(read: Read, originals: int) -> float | None:
    """The p of the lineage, corrected for the number of originals; None if it is not known."""
    p = read.examined.findings[read.examined.best].lineage.p
    return None if math.isnan(p) else min(1.0, p * originals)


def _left_out(record: OriginalRecord, reason: str) -> OriginalRow:
    return _empty("", record.name, reason)


def _empty(path: str, name: str, reason: str) -> OriginalRow:
    return {
        "path": path, "name": name, "lineage": "", "similarity": None, "p": None, "keys": 0, "verdict": "", "whose": [],
        "reason": reason,
    }  # fmt: skip
