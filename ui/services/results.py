"""The results of use cases, as plain JSON: the job list stores them, and pages and programs read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, final

from irwm.report import schema
from irwm.report.sandbox import VerificationJson
from storage.records import Changes, MarkedBefore, Receipt

if TYPE_CHECKING:
    from irwm.inference.certificate import CertificateJson


@final
class Released(Receipt):
    """The result of Protect for one copy: its receipt."""

    key_id: str
    utility: CertificateJson | None


class Example(Changes):
    """What all copies of one request have in common."""

    left_out: list[str]
    signature: str
    bytes: int


class ReceiptLine(TypedDict):
    """A receipt in short form; the values from `folder` on are null for a copy that was not written."""

    recipient: str
    note: str
    state: str
    folder: str | None
    key_fingerprint: str | None
    verdict: str | None
    positions: int | None
    of: int | None
    log10_p: float | None
    log10_risk: float | None
    release_fingerprint: str | None
    why: str


@final
class ReleasedMany(MarkedBefore):
    """The result of Protect for many copies, with the first receipts."""

    many: Literal[True]
    model: str
    model_fingerprint: str
    vocab_size: int
    owner: str
    path: str
    parameters: Mapping[str, object]
    recipients: int
    written: int
    skipped: int
    failed: int
    bytes: int
    bytes_cloned: int
    example: Example | None
    rows: list[ReceiptLine]
    csv: str
    irwm: str
    utility: CertificateJson | None


class KeyRow(TypedDict):
    """A key that was tried on a suspect; the values from `z` on only of a key with noise."""

    key_id: str
    owner: str
    recipient: str
    commitment: str
    positions: int
    verdict: str
    reason: str
    count: int
    present: int
    log10_p: float
    log10_risk: float
    lineage: str
    named: bool
    z: NotRequired[float | None]
    trace_log10_p: NotRequired[float]
    trace_log10_risk: NotRequired[float]
    share: NotRequired[float | None]
    rows: NotRequired[int]


# The result for a suspect that resembles no original.
NO_MATCH = "no match"


class ReportFiles(TypedDict):
    """The files of a report, and where it is filed."""

    html: str
    json: str
    case_id: str
    run_id: str


class OriginalRow(TypedDict):
    """An original of the vault that was compared with a suspect.

    `p` is the chance that an unrelated model agrees as closely with any of the originals; None if not known. `keys` is
    the number of its keys that were tried. If it is 0, `verdict` is "" and `reason` says why. `whose` names the people
    that a finding points to.
    """

    path: str
    name: str
    lineage: str
    similarity: float | None
    p: float | None
    keys: int
    verdict: str
    whose: list[str]
    reason: str


class Investigated(ReportFiles):
    """The result of Investigate; `originals` is empty if the officer chose one."""

    rows: list[KeyRow]
    keys_tried: int
    keys_held: int  # of this original, in the vault
    read: int  # by the rank rule
    damaged: list[str]
    verdict: str
    word: str  # that lists show for the verdict
    others: str  # name of the file with the readings of the other keys
    original: NotRequired[str]  # missing in results of earlier versions, as `originals`
    originals: NotRequired[list[OriginalRow]]


class Screened(TypedDict):
    """The screening of one suspect: `word` is a verdict, or "no match" if it resembles no original; `reason` says why.

    `original` is the one that it resembles most, with that `likeness` (None if their tokens cannot be paired).
    `log10_risk` is None if no key was tried. `part` is the checkpoint among several in one repository or folder; "" for
    the only one. `bytes` were read from a server. Those of a suspect with a mark, or from an original, are kept in the
    folder or file `kept`; "" for others.
    """

    part: str
    word: str
    whose: list[str]
    reason: str
    original: str
    likeness: float | None
    lineage: str
    log10_risk: float | None
    bytes: int
    seconds: float
    kept: NotRequired[str]  # missing in results of earlier versions


class WatchRow(TypedDict):
    """A suspect of a watch: `result`, or the `error` of as many `tries`.

    `version` changes with the suspect; `compared` with the originals, and `keys` with the keys, that it was read with.
    """

    source: str
    name: str
    address: str
    version: str
    utc: str
    compared: str
    keys: str
    tries: int
    result: Screened | None
    error: Mapping[str, str | None] | None


class SourceRow(TypedDict):
    """A source of a watch: how many suspects it lists, how many of them this pass left for the next, and its error."""

    source: str
    listed: int
    left: int
    error: Mapping[str, str | None] | None


class Watched(TypedDict):
    """The result of one pass of a watch.

    `rows` has its findings, at most `ui.services.watch.MOST_FINDINGS`; the file `file` has all results. `counts` maps
    the words of this pass to numbers of suspects. `known` and `failed` are the numbers of models that were screened so
    far, and of those whose latest version could not be. `originals_left_out` names originals of which keys were not
    tried.
    """

    sources: list[SourceRow]
    counts: dict[str, int]
    known: int
    failed: int
    keys: int
    originals: int
    originals_left_out: list[str]
    rows: list[WatchRow]
    file: str


class Unread(TypedDict):
    """A model that is not on a map, and why."""

    name: str
    error: Mapping[str, str | None]


class Mapped(TypedDict):
    """A map of descent, `irwm.Descent` as plain JSON; `originals` has the places of those that were given as such."""

    names: list[str]
    addresses: list[str]
    families: list[list[int]]
    branches: list[dict[str, Any]]
    originals: list[int]
    unread: list[Unread]


class Overview(schema.Sweep):
    """The result of a sweep: the overview, with the names of its files."""

    html: str
    json: str


class Added(TypedDict):
    """The result of hashing an item; it is not added if the same files are filed already."""

    name: str
    files: int
    bytes: int
    added: bool


class Verified(VerificationJson):
    """The result of Verify."""

    ok: bool
    exit_code: int


class Reported(ReportFiles):
    """The result of a dispute or a lab, in one word; of a lab, also in a sentence."""

    outcome: str
    said: NotRequired[str]
