"""The files of a time-stamp from an authority: distinguished by their endings and read together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import IrwmError
from irwm.ownership import Commitment, Timestamp, read_response
from irwm.ownership.timestamp import request

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

    def read(self, commitment: Commitment) -> tuple[bytes, bytes, Timestamp]:
        """Request, response and their proof about a commitment; without a request file, our own request is used.

        Raises:
            StampFilesError: there is no response.
            TimestampError: see `irwm.ownership.read_response`.
        """
        if self.response is None:
            raise StampFilesError("the time-stamp response is missing", expected=f"a file that ends in {RESPONSE}")
        asked = self.request if self.request is not None else own_request(commitment.digest)
        return asked, self.response, read_response(asked, self.response, commitment.digest, self.roots)


def own_request(digest: str) -> bytes:
    """The app's request over a digest: the same bytes each time, so that only the response needs to be kept.

    The nonce is derived from the digest: an older answer to the same request would prove an earlier time.
    """
    return request(digest, nonce=int(digest[:16], 16))
