"""Which of the vault's originals a suspect descends from, when the officer chose none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import irwm
from irwm.errors import IrwmError, path_from, shown_path
from irwm.report.structure import plain
from storage.vault import Vault
from ui.services.examining import Examined, Keys
from ui.services.known_originals import KnownOriginals
from ui.services.request import InvestigateRequest
from ui.services.results import OriginalRow
from ui.services.work import Work

# Originals whose keys are tried: those that the suspect descends from, or else the likeliest of the undecided.
MOST_DERIVED, MOST_UNDECIDED = 4, 2


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """An original whose keys are tried."""

    original: irwm.Checkpoint
    keys: Keys


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The originals whose keys are tried, and a row for each original that was compared; none if one was chosen."""

    candidates: tuple[Candidate, ...]
    rows: tuple[OriginalRow, ...] = ()

    def told(self, examined: Sequence[Examined]) -> list[OriginalRow]:
        """The rows, with the results of the candidates."""
        done = {shown_path(each.original.path): found for each, found in zip(self.candidates, examined, strict=True)}
        rows: list[OriginalRow] = []
        for row in self.rows:
            found = done.get(row["path"])
            if found is not None:
                verdict, reason = found.said
                row = {**row, "keys": len(found.keys.keys), "verdict": verdict, "reason": reason}
            rows.append(row)
        return rows


def chosen(request: InvestigateRequest, vault: Vault, device: str, work: Work) -> Chosen:
    """The original of a request with its keys, or those of the vault that the suspect may descend from.

    Raises:
        IrwmError: no original can be compared, or no key is left.
    """
    if request.original:
        original = irwm.open_checkpoint(request.original)
        return Chosen((Candidate(original, Keys.chosen(vault, request, original, work)),))
    asked = {path_from(path) for path in request.originals}
    known = KnownOriginals.of(vault, lambda path: path in asked and path.exists())
    opened: list[irwm.Checkpoint] = []
    rows = [missing_row(name) for name in known.missing]
    for path in known.here:
        try:
            opened.append(irwm.open_checkpoint(path))
        except IrwmError as error:
            rows.append(failed_row(path, error))
    found = irwm.compare_originals(request.suspect, opened, device, work.progress)
    rows = [*map(compared_row, found), *rows]
    likely = [each.original for each in found if each.derived][:MOST_DERIVED]
    if not likely:
        likely = [each.original for each in found if each.lineage and not each.excluded][:MOST_UNDECIDED]
    if not likely:
        likely = [each.original for each in found if each.lineage][:1]
    candidates: list[Candidate] = []
    problem: IrwmError | None = next((each.problem for each in found if each.problem), None)
    for original in likely:
        try:
            candidates.append(Candidate(original, Keys.chosen(vault, request, original, work)))
        except IrwmError as error:
            problem = error
    if not candidates:
        raise problem or IrwmError(
            "none of the vault’s originals can be compared with this suspect",
            found=f"originals in the vault: {len(known.here) + len(known.missing)}, of these here: {len(known.here)}",
            advice="Choose the original that it may come from",
        )
    tried, held = (sum(values) for values in zip(*((len(c.keys.keys), c.keys.held) for c in candidates), strict=True))
    corrected = (
        replace(each, keys=replace(each.keys, elsewhere=tried - len(each.keys.keys), held=held, originals=len(found)))
        for each in candidates
    )
    return Chosen(tuple(corrected), tuple(rows))


def compared_row(found: irwm.Comparison) -> OriginalRow:
    if found.lineage is None:
        return failed_row(found.original.path, found.problem)
    row: OriginalRow = plain({
        "path": shown_path(found.original.path), "name": found.original.path.name, "lineage": found.lineage.status,
        "similarity": found.lineage.similarity, "p": found.p, "keys": 0, "verdict": "", "reason": found.lineage.reason,
    })  # fmt: skip
    return row


def failed_row(path: Path, problem: IrwmError | None) -> OriginalRow:
    return {**missing_row(path.name), "path": shown_path(path), "reason": str(problem or "")}


def missing_row(name: str) -> OriginalRow:
    return {
        "path": "", "name": name, "lineage": "", "similarity": None, "p": None, "keys": 0, "verdict": "",
        "reason": "It is no longer where a release was made from it.",
    }  # fmt: skip
