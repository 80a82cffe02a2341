"""A dispute: tests every claimant's key on every model, then signs and files the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import irwm
from irwm.checkpoint import Checkpoint
from irwm.errors import IrwmError, path_from, shown_path
from irwm.ownership import Commitment
from irwm.ownership.dispute import Claim, resolve
from irwm.report import schema
from irwm.report.dispute import NAME, claim_section, dispute_document, dispute_html, word
from irwm.report.items import ItemDescription, installed_versions
from irwm.report.reader_inputs import opened_key
from irwm.report.stamps import StampedCommitment
from storage.vault import Vault
from ui.services.device import device_of
from ui.services.examining import described, hashes, time_stamp
from ui.services.filing import CaseFiling, case_lines, earliest_timestamp, examiner_of
from ui.services.request import DisputeRequest, OurClaim, TheirClaim
from ui.services.results import Reported
from ui.services.stamps import StampFiles
from ui.services.work import Work

# Seed of the permutations of every test; anyone who knows it computes the same numbers.
SEED = 0


class DisputeError(IrwmError):
    """The files of a claimant do not belong together."""


def run(request: DisputeRequest, vault: Vault, work: Work) -> Reported:
    """Test both keys on all models, and file the outcome.

    Raises:
        DisputeError: their commitment is of another key.
        IrwmError: a model, a key or a timestamp cannot be read.
    """
    device = device_of(request.device)
    work.progress(0, 0, "Reading keys and models")
    ours, theirs = _ours(vault, request.ours), _theirs(request.theirs, request.roots)
    exhibit = irwm.open_checkpoint(request.exhibit) if request.exhibit else None
    named = [] if exhibit is None else [(f"model in dispute, {shown_path(exhibit.path.name)}", exhibit)]
    outcome = resolve([ours[0], theirs[0]], named, device, SEED, work.progress, work.cancelled)
    original = ours[0].original
    claims = [_described(*ours, work, original, ours=True), _described(*theirs, work, original, ours=False)]
    exhibits = [(name, _item(model, work, original)) for name, model in named]
    lines = case_lines(request, examiner_of(vault, request.case_id, request.examiner))
    known = next((case.title for case in vault.cases() if case.id == request.case_id), "")
    document = dispute_document(
        outcome,
        claims=claims,
        exhibits=exhibits,
        case=lines | ({"Case": known} if known else {}),
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        tool_versions=installed_versions(),
        seed=SEED,
    )
    filing = CaseFiling.begin(vault, request)
    for role, item in _items(document["claims"], document["exhibits"]):
        filing.item(item, note=role)
    document, files = filing.signed(document, NAME, dispute_html, work.language)
    for name, content in files.items():
        work.files.write(name, content)
    suspect = exhibits[0][1].name if exhibits else claims[1]["original"]["name"]
    run_id = filing.run(document, files, suspect, word(document), f"Dispute with {theirs[0].claimant}")
    return {
        "outcome": word(document),
        "html": f"{NAME}.html",
        "json": f"{NAME}.json",
        "case_id": filing.case_id,
        "run_id": run_id,
    }


def _ours(vault: Vault, shown: OurClaim) -> tuple[Claim, schema.TimeStamp | None]:
    """Our claim, and its timestamp."""
    key = irwm.Key.from_bytes(vault.key_bytes(shown.key))
    stamp = earliest_timestamp(vault, shown.key)
    claim = Claim(
        claimant=key.owner or "We",
        original=irwm.open_checkpoint(shown.original),
        key=key,
        released=irwm.open_checkpoint(shown.release),
        committed_utc=stamp.time_utc if stamp else None,
    )
    return claim, time_stamp(stamp)


def _theirs(shown: TheirClaim, roots: str) -> tuple[Claim, schema.TimeStamp | None]:
    """The other claim, and its timestamp, proven by our roots alone."""
    key = opened_key(path_from(shown.key_file))
    committed, given = None, None
    if shown.stamp:
        files = StampFiles.of(sorted(path_from(shown.stamp).iterdir()))
        if files.commitment is None:
            raise DisputeError(
                "their commitment is missing", advice="Add the timestamped .json file next to the response"
            )
        commitment = Commitment.from_bytes(files.commitment)
        if not commitment.opens(key):
            raise DisputeError(
                "their commitment does not belong to the key that they opened",
                expected=f"key {key.commitment}",
                found=f"key {commitment.commitment}",
                advice="Ask them for the commitment to this key",
            )
        # Anyone can run their own authority, set its clock back and include its root. So a root among their files
        # proves nothing.
        trusted = StampFiles.of([path_from(roots)]).roots if roots else None
        sent, answer, stamp = replace(files, roots=trusted).read(commitment)
        committed = stamp.time_utc if stamp.trusted else None
        given = StampedCommitment(commitment.to_bytes(), sent, answer).section()
    claim = Claim(
        claimant=shown.name,
        original=irwm.open_checkpoint(shown.original),
        key=key,
        released=irwm.open_checkpoint(shown.release),
        committed_utc=committed,
    )
    return claim, given


def _described(
    claim: Claim, stamp: schema.TimeStamp | None, work: Work, original: Checkpoint, *, ours: bool
) -> schema.Claim:
    released = None if claim.released is None else _item(claim.released, work, original)
    return claim_section(claim, _item(claim.original, work, original), released, stamp, ours=ours)


def _item(model: Checkpoint, work: Work, original: Checkpoint) -> ItemDescription:
    """An item of either side; `original` is ours, and the size of their items is compared with it before hashing."""
    return described(model, hashes(model, work, original))


def _items(claims: Sequence[schema.Claim], exhibits: Sequence[schema.Exhibit]) -> list[tuple[str, schema.Item]]:
    """Every model that was examined, with its role in the dispute."""
    found = [(f"Original of {claim['claimant']}", claim["original"]) for claim in claims]
    found += [(f"Release of {claim['claimant']}", claim["release"]) for claim in claims if claim["release"] is not None]
    return found + [("In dispute", exhibit["item"]) for exhibit in exhibits]
