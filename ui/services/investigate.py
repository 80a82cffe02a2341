"""Investigate: every chosen key on one suspect, a report for the strongest, signed and filed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

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
from ui.services.examining import Examined, Examiner, Suspect, examine_generated
from ui.services.filing import CaseFiling, case_lines, earliest_timestamp, examiner_of, known_since, report_name
from ui.services.originals import Candidate, chosen
from ui.services.request import InvestigateRequest
from ui.services.results import Investigated
from ui.services.stored_results import FIRST
from ui.services.work import Work

# Readings of the keys that the report is not about, only for the page.
OTHERS = "other-keys.json"


def run(request: InvestigateRequest, vault: Vault, work: Work) -> Investigated:
    """Trace the recipients of an original in one suspect, and look for the marks of the most likely ones.

    Without an original in the request, the suspect is compared with all originals of the vault first.

    Returns:
        A row per key, most likely first; with very many keys only the first ones.
    """
    started = time.monotonic()
    device = device_of(request.device)
    work.progress(0, 0, "Opening the suspect and the original")
    choice = chosen(request, vault, device, work)
    case = case_lines(request, examiner_of(vault, request.case_id, request.examiner))
    looked = [_examined(each, request, vault, device, work, case, len(choice.candidates)) for each in choice.candidates]
    best = min(looked, key=lambda each: each.examined.strength)
    keys, examined = best.candidate.keys, best.examined
    document = best.document(extra={"Device": best.device, "Seconds": f"{time.monotonic() - started:.1f}"})
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
        "original": shown_path(best.candidate.original.path),
        "originals": choice.told([each.examined for each in looked]),
        "case_id": filing.case_id,
        "run_id": run_id,
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Looked:
    """A candidate whose keys were tried; `document` makes its report."""

    candidate: Candidate
    examined: Examined
    device: str
    document: Callable[..., schema.Report]


def _examined(
    candidate: Candidate,
    request: InvestigateRequest,
    vault: Vault,
    device: str,
    work: Work,
    case: Mapping[str, str],
    candidates: int,
) -> _Looked:
    """Try the keys of one original."""
    original, keys = candidate.original, candidate.keys
    suspect: Suspect
    if holds_generated(request.suspect):
        suspect = open_generated(request.suspect, original)
    else:
        suspect = irwm.open_suspect(request.suspect, original, request.answers)
    described = partial(
        Examined.document,
        suspect=suspect,
        original=original,
        case=case,
        work=work,
        stamp_of=partial(earliest_timestamp, vault),
        seen_of=known_since(vault, request.case_id, request.seen_utc),
    )

    def first(found: Examined) -> None:
        work.files.write(FIRST, to_json(described(found, extra={}, hashed=False)))

    if isinstance(suspect, GeneratingSuspect):
        by_tokens = partial(examine_generated, suspect, keys, work=work, fits=Fits() if request.fits else None)
        examined, device = on_device(lambda place: by_tokens(place), device, work.log)
    else:
        with work.executor(keys.places, request.scheduler) as executor:
            examiner = Examiner(original, keys, request, executor, work.folder)
            # With several candidates, the first finding may not be the one that is reported.
            shown = first if candidates == 1 else None
            examine = partial(examiner.examine, suspect, work=work, first=shown)
            examined, device = on_device(lambda place: examine(place), device, work.log)
    return _Looked(candidate, examined, device, partial(described, examined))
