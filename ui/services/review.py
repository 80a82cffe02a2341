"""A review: a second examiner's opinion about a verified report, signed and filed in a case."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from irwm.report import schema
from irwm.report.checks import Verification
from irwm.report.items import installed_versions
from irwm.report.review import NAME, review_document, review_html, reviewed
from storage.vault import Vault
from ui.file_names import plain_name
from ui.services.filing import REVIEWED_REPORT, CaseFiling
from ui.services.request import Filed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest(Filed):
    """A review of one report.

    Attributes:
        reviewer: the second examiner's name.
        extent, conclusion: as of `irwm.report.review.review_document`.
        remarks: the reasons; "" for none.
    """

    reviewer: str
    extent: str
    conclusion: str
    remarks: str = ""


def file_review(
    request: ReviewRequest, json_name: str, data: bytes, verification: Verification, vault: Vault, language: str
) -> tuple[CaseFiling, dict[str, bytes]]:
    """Signs a review and files it.

    Args:
        json_name: name of the report's JSON file.
        data: its bytes.
        verification: of the same report.
        language: of the page.

    Returns:
        Where it was filed, and its files by name.

    Raises:
        IrwmError: the report cannot be reviewed, or a statement contradicts the checks.
    """
    about = reviewed(json_name, data)
    if not request.case_title:
        request = _in_its_case(request, about, vault)
    document = review_document(
        about,
        verification,
        reviewer=request.reviewer,
        extent=request.extent,
        conclusion=request.conclusion,
        remarks=request.remarks,
        case={"Case": request.case_title},
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        tool_versions=installed_versions(),
    )
    filing = CaseFiling.begin(vault, request)
    # Before it is signed, so that the log's head in the signature covers it.
    filing.received(about["json"], {about["json"]: (len(data), about["sha256"])}, note=REVIEWED_REPORT)
    mark = hashlib.sha256(f"{about['sha256']}{document['reviewer']}{document['created_utc']}".encode()).hexdigest()[:6]
    name = plain_name(NAME, about["json"].removesuffix(".json"), mark=mark)
    document, files = filing.signed(document, name, review_html, language)
    filing.run(document, files, about["json"], document["conclusion"], f"Review by {document['reviewer']}")
    return filing, files


def _in_its_case(request: ReviewRequest, about: schema.Reviewed, vault: Vault) -> ReviewRequest:
    """The request for the case in which the report was filed, or a new one. The title in a report is its sender's, so
    it chooses no case."""
    for case in vault.cases():
        digests = {file.sha256 for run in vault.runs_of(case.id) for file in run.files.values()}
        if about["sha256"] in digests:
            return replace(request, case_id=case.id, case_title=case.title)
    return replace(request, case_title=f"Review of {about['json']}, {about['sha256'][:8]}")
