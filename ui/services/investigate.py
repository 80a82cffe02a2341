"""Investigate: every chosen key on one suspect, a report for the strongest, signed and filed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import irwm
from irwm.answers import Fits
from irwm.answers.suspect import GeneratingSuspect, holds_generated, open_generated
from irwm.errors import shown_path
from irwm.evidence.devices import on_device
from irwm.report import schema
from irwm.report.answer import word_of
from irwm.report.document import from_json, to_json
from irwm.report.write import for_outsiders, signed_files
from storage.vault import Vault
from ui.services.device import device_of
from ui.services.examining import Examined, Examiner, Keys, Suspect, examine_generated
from ui.services.filing import CaseFiling, case_lines, earliest_timestamp, examiner_of, known_since, report_name
from ui.services.originals import Candidate, Compared, candidates, compare
from ui.services.outcomes import INCONCLUSIVE, NOT_FOUND
from ui.services.request import InvestigateRequest
from ui.services.results import Investigated
from ui.services.stored_results import FIRST
from ui.services.work import Work

# Readings of the keys that the report is not about, only for the page.
OTHERS = "other-keys.json"


def run(request: InvestigateRequest, vault: Vault, work: Work) -> Investigated:
    """Trace the recipients of an original in one suspect, and look for the marks of the most likely ones.

    Without an original in the request, the keys of all originals of the vault are tried first. The report is about the
    original with the strongest finding.

    Returns:
        A row per key, most likely first; with very many keys only the first ones.
    """
    started = time.monotonic()
    device = device_of(request.device)
    work.progress(0, 0, "Opening the suspect and the original")
    compared: Compared | None = None
    if request.original:
        original = irwm.open_checkpoint(request.original)
        candidate = Candidate(original, Keys.chosen(vault, request, original, work))
    else:
        found, left_out = candidates(request, vault, work)
        compared = compare(found, left_out, lambda each: _Look(each, request, work).read(device))
        candidate = compared.best
    look = _Look(candidate, request, work)
    described = partial(
        look.document,
        case=case_lines(request, examiner_of(vault, request.case_id, request.examiner)),
        stamp_of=partial(earliest_timestamp, vault),
        seen_of=known_since(vault, request.case_id, request.seen_utc),
    )
    keys = candidate.keys

    def first(found: Examined) -> None:
        work.files.write(FIRST, to_json(described(found, extra={}, hashed=False)))

    examined, device = look.examined(device, first)
    extra = {"Device": device, "Seconds": f"{time.monotonic() - started:.1f}"}
    document = described(examined, extra=extra | (compared.extra if compared else {}))
    # Filed only after all steps that can fail because of the models.
    filing = CaseFiling.begin(vault, request)
    filing.items(document)
    work.progress(0, 0, "Writing and signing the report")
    signer = filing.signer()
    stem = report_name(document)
    files = signed_files(document, signer, stem, language=work.language)
    files |= for_outsiders(document, signer, stem, work.language)
    for name, content in files.items():
        work.files.write(name, content)
    work.files.write(OTHERS, to_json({"keys": examined.others()}))
    document = from_json(files[f"{stem}.json"])
    word = word_of(document)
    if word == NOT_FOUND and compared is not None and compared.open:
        word = INCONCLUSIVE
    run_id = filing.run(document, files, request.suspect, word, request.note)
    return {
        "rows": examined.rows(),
        "keys_tried": keys.tried,
        "keys_held": keys.held,
        "read": len(examined.findings),
        "damaged": [name.id for name in keys.damaged],
        "verdict": document["verdict"]["word"],
        "word": word,
        "html": f"{stem}.html",
        "json": f"{stem}.json",
        "others": OTHERS,
        "original": shown_path(candidate.original.path),
        "originals": compared.rows if compared else [],
        "case_id": filing.case_id,
        "run_id": run_id,
    }


@dataclass(frozen=True, eq=False)
class _Look:
    """The suspect of a request against one original."""

    candidate: Candidate
    request: InvestigateRequest
    work: Work

    @cached_property
    def suspect(self) -> Suspect:
        original = self.candidate.original
        if holds_generated(self.request.suspect):
            return open_generated(self.request.suspect, original)
        return irwm.open_suspect(self.request.suspect, original, self.request.answers)

    def read(self, device: str) -> Examined:
        """The findings for all keys, without the controls of a report."""
        return self._on(device, None, controls=False)[0]

    def examined(self, device: str, first: Callable[[Examined], None]) -> tuple[Examined, str]:
        """The findings and the controls, and the device that was used at last.

        Args:
            first: called with the findings before the controls are run.
        """
        return self._on(device, first, controls=True)

    def document(self, examined: Examined, **said: Any) -> schema.Report:
        return examined.document(self.suspect, self.candidate.original, work=self.work, **said)

    def _on(self, device: str, first: Callable[[Examined], None] | None, *, controls: bool) -> tuple[Examined, str]:
        suspect, keys, request, work = self.suspect, self.candidate.keys, self.request, self.work
        if isinstance(suspect, GeneratingSuspect):
            by_tokens = partial(examine_generated, suspect, keys, work=work, fits=Fits() if request.fits else None)
            return on_device(lambda place: by_tokens(place), device, work.log)
        with work.executor(keys.places, request.scheduler) as executor:
            examiner = Examiner(self.candidate.original, keys, request, executor, work.folder)
            examine = partial(examiner.examine, suspect, work=work, first=first, controls=controls)
            return on_device(lambda place: examine(place), device, work.log)
