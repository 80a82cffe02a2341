"""The files of time-stamps from an authority: distinguished by their endings and read together.

Each commitment has its own request and response: a report carries both, and `irwm verify` and `openssl ts` check them
without this program. One response over a list of commitments would need a new format, with a proof for each key.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from irwm import Key
from irwm.errors import IrwmError
from irwm.ownership import Commitment, Timestamp, read_response
from irwm.ownership.timestamp import dated_digest, request
from storage.vault import Vault

COMMITMENT, REQUEST, RESPONSE, ROOTS = ".json", ".tsq", ".tsr", ".pem"
ENDINGS = {COMMITMENT: "the commitment", REQUEST: "the request", RESPONSE: "the response", ROOTS: "root certificates"}
# The largest of them, a bundle of all public roots, has a few hundred kilobytes.
MOST_BYTES = 4 << 20


class StampFilesError(IrwmError):
    """The given files are not those of one time-stamp."""


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
            ending = file.suffix.lower()
            if ending not in ENDINGS:
                expected = ", ".join(f"{end} ({what})" for end, what in ENDINGS.items())
                raise StampFilesError("this file is not part of a time-stamp", file=file.name, expected=expected)
            if ending in parts and ending != ROOTS:
                raise StampFilesError(f"two files with {ending} were given", advice="Give the parts of one time-stamp")
            try:
                if file.stat().st_size > MOST_BYTES:
                    raise StampFilesError("this file is too large for a part of a time-stamp", file=file.name)
                parts[ending] = parts.get(ending, b"") + file.read_bytes() + (b"\n" if ending == ROOTS else b"")
            except OSError as error:
                raise StampFilesError("this file cannot be read", file=file.name, found=error.strerror) from error
        return cls(*(parts.get(ending) for ending in ENDINGS))

    @classmethod
    def of_each(cls, files: Iterable[Path]) -> dict[str, StampFiles]:
        """The parts of each time-stamp among these files, by the name of its response; all of them get all roots.

        A request belongs to the response with the same name before its ending, or to the only response.

        Raises:
            StampFilesError: as `of`, or there is no response.
        """
        given = list(files)
        answers = [file for file in given if file.suffix.lower() == RESPONSE]
        if len(answers) < 2:
            return {answers[0].name if answers else "": cls.of(given)}
        rest = [file for file in given if file.suffix.lower() != RESPONSE]
        roots = [file for file in rest if file.suffix.lower() == ROOTS]
        named = {answer.name: [file for file in rest if file.stem == answer.stem] for answer in answers}
        if strays := set(rest).difference(roots, *named.values()):
            raise StampFilesError(
                "this file belongs to none of the responses",
                file=min(strays).name,
                advice="Give it the name of its response, or remove it",
            )
        return {answer.name: cls.of([answer, *{*named[answer.name], *roots}]) for answer in answers}

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
            raise StampFilesError("the time-stamp response is missing", expected=f"a file that ends in {RESPONSE}")
        return self.response


def commitments(vault: Vault, ids: Iterable[str]) -> Iterator[tuple[str, Commitment]]:
    """The public documents of keys in the vault, with their ids; the same bytes each time. Damaged keys are skipped.

    Raises:
        VaultLockedError, StorageError
    """
    records = {record.id: record for record in vault.key_records(ids)}
    for id, body in vault.keys_bytes(records, damaged=[]):
        yield id, Commitment.of(Key.from_bytes(body), family=records[id].family, made_utc=records[id].created)


def requests_of(vault: Vault, ids: Iterable[str]) -> bytes:
    """A ZIP with the commitment and the time-stamp request of each key."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for _, commitment in commitments(vault, ids):
            archive.writestr(f"{stem(commitment)}{COMMITMENT}", commitment.to_bytes())
            archive.writestr(f"{stem(commitment)}{REQUEST}", own_request(commitment.digest))
    return packed.getvalue()


def stem(commitment: Commitment) -> str:
    """The name of a key's files before their endings."""
    return f"commitment-{commitment.commitment[:16]}"


def file_stamps(
    vault: Vault, given: Mapping[str, StampFiles], first: Iterable[str] = ()
) -> tuple[list[Timestamp], dict[str, IrwmError]]:
    """Files each time-stamp with the key whose commitment it dates.

    Args:
        given: the files of each time-stamp, by the name of its response.
        first: ids of keys to try before the vault's others.

    Returns:
        The filed time-stamps, and the errors of the others by the name of their response.
    """
    digests: dict[str, str] = {}
    filed: list[Timestamp] = []
    refused: dict[str, IrwmError] = {}
    for name, files in given.items():
        try:
            digests[name] = files.digest
        except IrwmError as error:
            refused[name] = error
    known = _with_digests(vault, set(digests.values()), [*first, *vault.key_ids()])
    for name, digest in digests.items():
        try:
            if digest not in known:
                raise StampFilesError(
                    "this response dates no key of this vault",
                    file=name,
                    found=f"SHA-256 {digest}",
                    advice="Give the response to a request that this vault made",
                )
            id, commitment = known[digest]
            asked, answered, stamp = given[name].read(commitment)
            vault.add_timestamp(
                id, commitment.to_bytes(), asked, answered, stamp.time_utc, stamp.authority, stamp.trusted
            )
            filed.append(stamp)
        except IrwmError as error:
            refused[name] = error
    return filed, refused


def _with_digests(vault: Vault, wanted: set[str], ids: Iterable[str]) -> dict[str, tuple[str, Commitment]]:
    found: dict[str, tuple[str, Commitment]] = {}
    for id, commitment in commitments(vault, dict.fromkeys(ids)):
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
