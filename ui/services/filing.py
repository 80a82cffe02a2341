"""Filing in a case: the received items, the examiner, and the signed report with all its files.

Items are filed before a report is signed, so that the log's head in the signature covers them.
"""

from __future__ import annotations

import getpass
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from irwm.errors import printable
from irwm.report import schema
from irwm.report.document import to_json
from irwm.report.received import ARCHIVE, ENDINGS
from irwm.report.signature_file import ENDING, Signer, announced, sign_report
from irwm.report.translation import in_language
from irwm.report.write import WITHOUT_ROWS
from storage.casebook import LONGEST_TITLE
from storage.job_files import JobFiles
from storage.records import TimestampRecord
from storage.vault import Vault
from ui.file_names import plain_name
from ui.services.request import Filed

# The note of a report that was reviewed, as an item of its case.
REVIEWED_REPORT = "Reviewed report"
_Signed = TypeVar("_Signed", schema.Dispute, schema.Lab, schema.Review)


@dataclass(frozen=True, slots=True)
class CaseFiling:
    """One case that a task files in.

    Attributes:
        vault: unlocked.
        case_id: the case.
        examiner: the examiner's name in items and reports.
        seen_utc: since when the suspect is known to exist, ISO 8601 with its zone; "" if not known.
    """

    vault: Vault
    case_id: str
    examiner: str
    seen_utc: str = ""

    @classmethod
    def begin(cls, vault: Vault, request: Filed, case_id: str = "") -> CaseFiling:
        """The case that a request names by its id or title, or a new one under that title.

        Args:
            case_id: replaces the request's.
        """
        title = request.case_title
        # Looked up here too: another task with the same title may have been ahead of this one in the queue.
        same = (case.id for case in vault.cases() if title and case.title == title)
        known = case_id or request.case_id or next(same, "")
        examiner = examiner_of(vault, known, request.examiner)
        id = known or vault.add_case(title or named_after(request.about), request.note).id
        return cls(vault, id, examiner, request.seen_utc)

    def item(self, described: schema.Item, *, note: str, seen_utc: str = "") -> None:
        """Files an item of a report's document; only once, even if it is examined several times.

        Args:
            described: the document's "items" entry: its name, and its files with sizes and hashes.
        """
        files = {file["name"]: (file["bytes"], file["sha256"]) for file in described["files"] if file["sha256"]}
        self.received(described["name"], files, note=note, seen_utc=seen_utc)

    def received(
        self,
        name: str,
        files: Mapping[str, tuple[int, str]],
        *,
        note: str = "",
        received_from: str = "",
        seen_utc: str = "",
    ) -> bool:
        """Files an item by its files; False if the case already has the same bytes under the same names and note.

        An item that had no date before and has one now is filed again: the date is a new statement.
        """
        for known in self.vault.case_items(self.case_id):
            same = {name: tuple(value) for name, value in known.files.items()} == dict(files)
            if same and (known.name, known.note) == (name, note) and (not seen_utc or known.seen_utc == seen_utc):
                return False
        self.vault.add_item(
            self.case_id,
            name,
            files,
            received_from=received_from,
            note=note,
            added_by=self.examiner,
            seen_utc=seen_utc,
        )
        return True

    def items(self, document: schema.Report) -> None:
        """Files the suspect and the original of a report's document."""
        self.item(document["items"]["original"], note="Original")
        self.item(document["items"]["suspect"], note="Suspect", seen_utc=self.seen_utc)

    def signer(self) -> Signer:
        """The signer, with the current head of the log."""
        identity = self.vault.identity()  # before the head is read: creating an identity adds an entry
        return Signer(
            sign=self.vault.sign,
            identity=identity.first_public_key,
            signed_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            audit_head=self.vault.audit_head,
            audit_count=self.vault.audit_count,
        )

    def signed(
        self, document: _Signed, name: str, page: Callable[[_Signed, str], str], language: str
    ) -> tuple[_Signed, dict[str, bytes]]:
        """The signed document, and its files: numbers, page and the signature over both.

        Args:
            name: of the files, without their endings.
            page: draws the document, given the name of the file with its numbers.
            language: of the page.
        """
        signer = self.signer()
        signed = announced(document, signer)
        numbers = f"{name}.json"
        drawn = in_language(page(signed, numbers), language)
        files = {numbers: to_json(signed), f"{name}.html": drawn.encode("utf-8")}
        signature = sign_report(files, signer)
        return signed, files | {f"{name}{ENDING}": signature}

    def run(self, document: schema.Document, files: Mapping[str, bytes], suspect: str, verdict: str, note: str) -> str:
        """Files the whole document with its report's files, so that the evidence survives the job's folder.

        Returns:
            The run's id.
        """
        return self.vault.add_run(self.case_id, document, suspect, verdict, note=note, files=files).id


def named_after(path: str) -> str:
    """The name of a case without a title: that of its suspect or its folder of suspects."""
    return printable(Path(path).name, LONGEST_TITLE) if path else "Untitled case"


def known_since(vault: Vault, case_id: str, stated: str) -> Callable[[Mapping[str, str]], str]:
    """Since when a suspect with these weight files (name to SHA-256) is known: the earliest statement.

    The statement on receipt counts too: a later date that is typed afterwards could make a late commitment look early.

    Args:
        case_id: the case; "" for a new one.
        stated: the current statement, ISO 8601 with its zone; "" for none.
    """
    items = vault.case_items(case_id) if case_id else []

    def earliest(hashes: Mapping[str, str]) -> str:
        wanted = set(hashes.values())
        same = [item.seen_utc for item in items if wanted & {file.sha256 for file in item.files.values()}]
        return min(filter(None, (stated, *same)), key=datetime.fromisoformat, default="")

    return earliest


def case_lines(request: Filed, examiner: str) -> dict[str, str]:
    """A report's statements about its case, by label."""
    lines = {
        "Case": request.case_title or "No case title given",
        "Examiner": examiner,
        "Suspect known since": request.seen_utc[:10],
        "Note": request.note,
    }
    return {label: text for label, text in lines.items() if text or label in ("Case", "Note")}


def report_name(document: schema.Report) -> str:
    """The name of a report's files without their endings: that of its suspect, and a mark of this report."""
    about = document["created_utc"], document["items"]["suspect"]["fingerprint"], document["key"]["commitment"]
    mark = hashlib.sha256("".join(about).encode()).hexdigest()[:6]
    return plain_name("report", document["items"]["suspect"]["name"], mark=mark)


def report_names(files: JobFiles, json_name: str) -> list[str]:
    """The names of the existing files of the report with this JSON, and of its archive for outsiders."""
    stem = json_name.removesuffix(".json")
    return [stem + ending for ending in (*ENDINGS, f"{WITHOUT_ROWS}{ARCHIVE}") if stem + ending in files]


def examiner_of(vault: Vault, case_id: str, typed: str = "") -> str:
    """The examiner: the typed name, else the last one in this case, else the user of this computer.

    Args:
        case_id: the case; "" for a new one.
    """
    if typed.strip():
        return typed.strip()
    items = vault.case_items(case_id) if case_id else []
    # A second examiner adds the report that they reviewed.
    before = [item.added_by for item in items if item.added_by and item.note != REVIEWED_REPORT]
    return before[-1] if before else logged_in()


def logged_in() -> str:
    """The operating system's name of the user; "" if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a user's entry
        return ""


def earliest_timestamp(vault: Vault, key_id: str) -> TimestampRecord | None:
    """The earliest time at which an authority with a checked root dated this key's commitment.

    Other timestamps do not count: anyone can run their own authority and set its clock back.
    """
    trusted = [stamp for stamp in vault.timestamps(key_id) if stamp.trusted]
    return min(trusted, key=lambda stamp: stamp.time_utc, default=None)
