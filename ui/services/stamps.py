"""The files of timestamps from an authority: distinguished by their endings and read together.

Each commitment has its own request and response: a report carries both, and `irwm verify` and `openssl ts` check them
without this program. One response over a list of commitments would need a new format, with a proof for each key.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from irwm import Key
from irwm.errors import IrwmError
from irwm.ownership import Commitment, Timestamp, read_response
from irwm.ownership.timestamp import dated_digest, request, root_certificates
from irwm.report.numbers import counted
from storage.records import RecordName, TimestampRecord
from storage.schema import KEYS
from storage.vault import Vault

COMMITMENT, REQUEST, RESPONSE, ROOTS = ".json", ".tsq", ".tsr", ".pem"
ENDINGS = {COMMITMENT: "the commitment", REQUEST: "the request", RESPONSE: "the response", ROOTS: "root certificates"}
CERTIFICATES = (ROOTS, ".crt", ".cer")
# The largest of them, a bundle of all public roots, has a few hundred kilobytes.
MOST_BYTES = 4 << 20


class StampFilesError(IrwmError):
    """The given files are not those of one timestamp."""


@dataclass(frozen=True, slots=True)
class StampFiles:
    """The given files by part; None for a missing part."""

    commitment: bytes | None = None
    request: bytes | None = None
    response: bytes | None = None
    roots: bytes | None = None

    @classmethod
    def of(cls, files: Iterable[Path]) -> StampFiles:
        """The parts among these files.

        Raises:
            StampFilesError: a file is of another kind, too large or unreadable, or two are of one kind.
        """
        parts: dict[str, bytes] = {}
        for file in files:
            part = _part(file)
            if part in parts and part != ROOTS:
                raise StampFilesError(
                    f"more than one file was provided for {part}", advice="Provide the files of a single timestamp"
                )
            parts[part] = parts.get(part, b"") + _content(file) + (b"\n" if part == ROOTS else b"")
        return cls(*(parts.get(part) for part in ENDINGS))

    @property
    def digest(self) -> str:
        """The digest of the commitment that the response dates.

        Raises:
            StampFilesError: there is no response.
            TimestampError: it cannot be read.
        """
        return dated_digest(self._answered())

    def read(self, commitment: Commitment) -> tuple[bytes, bytes, Timestamp]:
        """Request, response and their proof about a commitment; without a request file, our own request is used.

        Raises:
            StampFilesError: there is no response.
            TimestampError: see `irwm.ownership.read_response`.
        """
        answered = self._answered()
        asked = self.request if self.request is not None else own_request(commitment.digest)
        return asked, answered, read_response(asked, answered, commitment.digest, self.roots)

    def _answered(self) -> bytes:
        if self.response is None:
            raise _without_response()
        return self.response


@dataclass(frozen=True, slots=True)
class ManyStampFiles:
    """The given files of many timestamps.

    Attributes:
        stamps: the files of each timestamp, with the name of its response; several responses can have one name.
        refused: the files that cannot be used, by name, each with the reason.
        strays: how many requests and commitments belong to none of the responses.
    """

    stamps: tuple[tuple[str, StampFiles], ...] = ()
    refused: tuple[tuple[str, IrwmError], ...] = ()
    strays: int = 0

    @classmethod
    def of(cls, files: Iterable[Path]) -> ManyStampFiles:
        """The parts of each timestamp among these files; all of them get all root certificates.

        A request or a commitment belongs to the responses that date the same digest, under any name.

        Raises:
            StampFilesError: there is no response, or a file of root certificates cannot be used. Without it, the
                timestamps would be filed as unchecked.
        """
        parts: dict[str, list[tuple[Path, bytes]]] = {part: [] for part in ENDINGS}
        refused: list[tuple[str, IrwmError]] = []
        for file in files:
            try:
                part = _part(file)
                parts[part].append((file, _certificates(file) if part == ROOTS else _content(file)))
            except IrwmError as error:
                if file.suffix.lower() in CERTIFICATES:
                    raise
                refused.append((file.name, error))
        if not parts[RESPONSE] and not refused:
            raise _without_response()
        roots = b"".join(content for _, content in parts[ROOTS]) or None
        documents = {hashlib.sha256(content).hexdigest(): content for _, content in parts[COMMITMENT]}
        digests: set[str] = set()
        stamps: list[tuple[str, StampFiles]] = []
        for file, response in parts[RESPONSE]:
            try:
                digest = dated_digest(response)
            except IrwmError as error:
                refused.append((file.name, error))
                continue
            digests.add(digest)
            # `read_response` checks the request; of several over one digest, the one with the response's name is taken.
            own = sorted(
                (each.stem != file.stem, content) for each, content in parts[REQUEST] if _asks(content, digest)
            )
            stamps.append((file.name, StampFiles(documents.get(digest), own[0][1] if own else None, response, roots)))
        strays = sum(not any(_asks(content, digest) for digest in digests) for _, content in parts[REQUEST])
        strays += sum(hashlib.sha256(content).hexdigest() not in digests for _, content in parts[COMMITMENT])
        return cls(tuple(stamps), tuple(refused), strays)


def _part(file: Path) -> str:
    ending = file.suffix.lower()
    if ending in CERTIFICATES:
        return ROOTS
    if ending not in ENDINGS:
        expected = ", ".join(f"{end} ({what})" for end, what in ENDINGS.items())
        raise StampFilesError("this file is not part of a timestamp", file=file.name, expected=expected)
    return ending


def _content(file: Path) -> bytes:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise StampFilesError("this file is too large to be part of a timestamp", file=file.name)
        return file.read_bytes()
    except OSError as error:
        raise StampFilesError("this file cannot be read", file=file.name, found=error.strerror) from error


def _certificates(file: Path) -> bytes:
    """The root certificates in this file, as PEM."""
    try:
        return root_certificates(_content(file))
    except IrwmError as error:
        raise StampFilesError(
            "this root-certificate file cannot be used, so no timestamp was filed",
            file=file.name,
            expected="one or more PEM certificates, or one DER certificate",
            found=error.found or error.problem,
            advice="Provide the root certificate that the authority publishes, or provide the responses without "
            "this file",
        ) from error


def _asks(request: bytes, digest: str) -> bool:
    return bytes.fromhex(digest) in request


def _without_response() -> StampFilesError:
    return StampFilesError("the timestamp response is missing", expected=f"a file whose name ends in {RESPONSE}")


def commitments(
    vault: Vault, ids: Iterable[str], damaged: list[RecordName] | None = None
) -> Iterator[tuple[str, Commitment]]:
    """The public documents of keys in the vault, with their ids; the same bytes each time.

    Args:
        damaged: if given, the damaged ones among these keys are added to it; they are skipped.

    Raises:
        VaultLockedError, StorageError
    """
    lost = [] if damaged is None else damaged
    found = vault.key_records(ids)
    lost.extend(found.damaged)
    records = {record.id: record for record in found}
    for id, body in vault.keys_bytes(records, damaged=lost):
        yield id, Commitment.of(Key.from_bytes(body), family=records[id].family, made_utc=records[id].created)


@dataclass(frozen=True, slots=True)
class Requests:
    """Timestamp requests of many keys.

    Attributes:
        archive: a ZIP with the commitment and the request of each key.
        written: how many keys it has.
        damaged: how many keys are left out because they are damaged.
    """

    archive: bytes
    written: int
    damaged: int


def requests_of(vault: Vault, text: str = "") -> Requests:
    """The requests of all keys that a search finds and that no authority has dated yet.

    A damaged key may be one that the search would find, so each one without a timestamp counts as left out.
    """
    dated = {stamp.key_id for stamp in vault.timestamps()}
    lost: list[RecordName] = []
    packed, written = io.BytesIO(), 0
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for _, commitment in commitments(vault, [id for id in vault.key_ids(text) if id not in dated], lost):
            archive.writestr(f"{stem(commitment)}{COMMITMENT}", commitment.to_bytes())
            archive.writestr(f"{stem(commitment)}{REQUEST}", own_request(commitment.digest))
            written += 1
    return Requests(packed.getvalue(), written, len(_damaged(vault, lost) - dated))


def _damaged(vault: Vault, found: Iterable[RecordName]) -> set[str]:
    """The ids of damaged keys: those whose bytes were found to be damaged, and those that no search finds."""
    return {name.id for name in (*found, *vault.find_keys(limit=1).damaged) if name.table == KEYS}


def stem(commitment: Commitment) -> str:
    """The name of a key's files before their endings."""
    return f"commitment-{commitment.commitment[:16]}"


@dataclass(frozen=True, slots=True)
class Filed:
    """A timestamp in the vault.

    Attributes:
        name: of the response's file.
        stamp: its record.
        before: whether an earlier file with the same bytes was filed with this key.
    """

    name: str
    stamp: TimestampRecord
    before: bool


@dataclass(frozen=True, slots=True)
class Filing:
    """What happened to files: the filed timestamps, the refused files by name, and how many were passed over."""

    filed: tuple[Filed, ...]
    refused: tuple[tuple[str, IrwmError], ...]
    strays: int


def file_stamps(vault: Vault, given: ManyStampFiles, first: Iterable[str] = ()) -> Filing:
    """Files each timestamp with the key whose commitment it dates.

    The same bytes are filed only once with a key; and once more if only the roots given now lead to their authority.

    Args:
        first: ids of keys to try before the vault's others.
    """
    filed: list[Filed] = []
    refused = list(given.refused)
    lost: list[RecordName] = []
    known = _with_digests(vault, {files.digest for _, files in given.stamps}, [*first, *vault.key_ids()], lost)
    damaged = len(_damaged(vault, lost))
    # Where both are filed, the trusted one counts.
    earlier = {(stamp.key_id, stamp.response): stamp for stamp in sorted(vault.timestamps(), key=lambda s: s.trusted)}
    for name, files in given.stamps:
        try:
            if files.digest not in known:
                raise _no_key(files.digest, damaged)
            id, commitment = known[files.digest]
            before = earlier.get((id, files.response or b""))
            if before and files.request is None:
                files = replace(files, request=before.request)
            asked, answered, stamp = files.read(commitment)
            if before and (before.trusted or not stamp.trusted):
                filed.append(Filed(name, before, before=True))
                continue
            record = vault.add_timestamp(
                id, commitment.to_bytes(), asked, answered, stamp.time_utc, stamp.authority, stamp.trusted
            )
            earlier[id, answered] = record
            filed.append(Filed(name, record, before=False))
        except IrwmError as error:
            refused.append((name, error))
    return Filing(tuple(filed), tuple(refused), given.strays)


def _no_key(digest: str, damaged: int) -> StampFilesError:
    if damaged:
        return StampFilesError(
            "this response is not a timestamp for any readable key in this vault, which contains "
            f"{counted(damaged, 'damaged key')}",
            found=f"SHA-256 {digest}",
            advice="Restore the latest backup, then provide the response again",
        )
    return StampFilesError(
        "this response is not a timestamp for any key in this vault",
        found=f"SHA-256 {digest}",
        advice="Provide the response to a request from this vault",
    )


def _with_digests(
    vault: Vault, wanted: set[str], ids: Iterable[str], damaged: list[RecordName]
) -> dict[str, tuple[str, Commitment]]:
    found: dict[str, tuple[str, Commitment]] = {}
    for id, commitment in commitments(vault, dict.fromkeys(ids), damaged):
        if len(found) == len(wanted):
            break
        if commitment.digest in wanted:
            found[commitment.digest] = id, commitment
    return found


def own_request(digest: str) -> bytes:
    """The app's request over a digest: the same bytes each time, so that only the response needs to be kept.

    The nonce is derived from the digest: an older answer to the same request would prove an earlier time.
    """
    return request(digest, nonce=int(digest[:16], 16))
