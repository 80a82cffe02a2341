"""The requests of all use cases: frozen dataclasses that are stored as plain JSON.

They are apart from the use cases so that a page or a command that only asks for work need not import what does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import irwm
from irwm.errors import IrwmError
from irwm.evidence.detection import INVARIANTS
from irwm.scheme.statistic import STATISTICS
from ui.services.recipients import Recipient

if TYPE_CHECKING:
    from irwm.report.schema import SeededWay

# Whether the cost of a mark is measured: never, of models that are small enough, or always.
NEVER, SMALL, ALWAYS = "no", "small", "yes"
# Limits of a watch: suspects in one pass; bytes from a server, and seconds, for one suspect.
MOST_IN_A_PASS, BYTES_OF_ONE, SECONDS_OF_ONE = 1000, 4 << 30, 600


class RequestError(IrwmError):
    """A stored request lacks a value or has an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The base of all requests.

    Attributes:
        device: "auto", "cpu" or "cuda".
    """

    device: str = "auto"

    def to_json(self) -> dict[str, object]:
        """Plain JSON, from which `from_json` makes an equal request."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The request.

        Raises:
            RequestError: a value is missing or unknown, as in a request of another version.
        """
        given: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
        try:
            return cls(**cls._parts(given))
        except (TypeError, KeyError) as error:
            raise RequestError(
                "this request cannot be read", found=str(error), advice="Submit the request again"
            ) from error

    @classmethod
    def _parts(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values, with those that are not plain made from their JSON."""
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed(Request):
    """A request whose results are filed in a case.

    Attributes:
        case_id: "" for the case with the title, or else a new one.
        case_title: "" names a new case after what is examined.
        note: of the run and of a new case.
        examiner: "" for the last one in the case, or else the user of this computer.
        seen_utc: since when the suspect is known to exist, ISO 8601 with its zone; "" if not known.
    """

    case_id: str = ""
    case_title: str = ""
    note: str = ""
    examiner: str = ""
    seen_utc: str = ""

    @property
    def about(self) -> str:
        """The path that a new case without a title is named after; "" for none."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectRequest(Request):
    """Mark a model for one owner or recipient, or for many recipients.

    Attributes:
        model: path of the original.
        out: path of the release; of many, path of the folder that their copies go into, made if it is missing.
        recipients: of one copy, exactly one, without a name if it is the owner's own.
        many: whether each recipient's copy gets a folder in `out`.
        utility: whether to measure the cost of the mark, see `ui.services.certifying`.
        also: names of other files of the model's folder to add to a copy, see `irwm.insert`.
        sign_key, secret_file: the key that signs each copy, see `irwm.attestation.open_signing_key`; "" for none.
        base_model: the original's name for the model card, see `irwm.insert`; "" for none.
    """

    model: str
    out: str
    parameters: irwm.Parameters
    owner: str
    recipients: tuple[Recipient, ...]
    many: bool = False
    utility: str = NEVER
    also: tuple[str, ...] = ()
    sign_key: str = ""
    secret_file: str = ""
    base_model: str = ""

    @classmethod
    def _parts(cls, values: dict[str, Any]) -> dict[str, Any]:
        people = tuple(Recipient(**person) for person in values["recipients"])
        return {**values, "recipients": people, "parameters": irwm.Parameters.from_dict(values["parameters"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamineRequest(Filed):
    """Try keys of an original on one suspect or many.

    Attributes:
        original: path of the unmarked original.
        keys: identifiers in the vault; None for all keys of this original that match the words `matching`.
        noisy: whether only keys with noise are tried.
        seed, statistic, invariant: of an additional reading, on which the verdict does not depend.
        decoys: number of wrong keys to rank on a suspect; None for the usual number.
        scheduler: address of a Dask cluster; "" for none.
    """

    original: str
    keys: tuple[str, ...] | None = None
    matching: str = ""
    noisy: bool = False
    seed: int = 0
    statistic: str = STATISTICS[0]
    invariant: str = INVARIANTS[0]
    decoys: int | None = None
    scheduler: str = ""

    @property
    def way(self) -> SeededWay:
        """Statistic, invariant and seed of the additional reading."""
        return cast("SeededWay", {"statistic": self.statistic, "invariant": self.invariant, "seed": self.seed})


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparingRequest(ExamineRequest):
    """Try the keys of several originals.

    Attributes:
        original: as of the base; "" for `originals`.
        originals: paths.
    """

    originals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigateRequest(ComparingRequest):
    """Examine one suspect.

    Attributes:
        suspect: path.
        answers: whether the suspect must be a file of recorded answers.
        fits: whether the original may be fitted to generated text in which it traces nobody as it is.
    """

    suspect: str
    answers: bool = False
    fits: bool = True

    @property
    def about(self) -> str:
        return self.suspect


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(ExamineRequest):
    """Examine every checkpoint in a folder.

    Attributes:
        folder: path.
        resume: the id of an earlier sweep whose unchanged suspects are not examined again; "" for none.
    """

    folder: str
    resume: str = ""

    @property
    def about(self) -> str:
        return self.folder


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest(ComparingRequest):
    """Screen the models of several sources that were not screened before, and file nothing in a case.

    Attributes:
        originals: paths; () for all originals that the vault has at the time of a pass.
        sources: paths of folders, and addresses as `irwm.checkpoint.remote.hosted` takes them.
        most: number of suspects in one pass.
        most_bytes, seconds: bytes that are read of one suspect on a server, and time that it may take.
        every: hours from the end of a pass to the next one; 0 for one pass.
    """

    sources: tuple[str, ...]
    most: int = MOST_IN_A_PASS
    most_bytes: int = BYTES_OF_ONE
    seconds: int = SECONDS_OF_ONE
    every: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentRequest(Request):
    """Map which of several models were made from which.

    Attributes:
        models: paths and addresses; of a folder with several models, all of them are taken.
        originals: those of them, or further ones, that were made from none of the others.
    """

    models: tuple[str, ...]
    originals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialOf:
    """An attack of the catalogue at one of its strengths."""

    attack: str
    value: float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRequest(Filed):
    """Attack a release, or trial marks on a model.

    Attributes:
        original: path of the unmarked model.
        release, key: path of the release, and its key's identifier in the vault; both "" for a rehearsal.
        parameters: for a rehearsal, the settings of a trial mark by mode ("single", "many").
        text: path of the text to measure on; "" for the bundled one.
        resume: the id of an earlier lab whose rows are reused; "" for none.
    """

    original: str
    release: str = ""
    key: str = ""
    parameters: Mapping[str, irwm.Parameters] = field(default_factory=dict, hash=False)
    trials: tuple[TrialOf, ...]
    text: str = ""
    tokens: int
    seed: int = 0
    resume: str = ""

    @property
    def about(self) -> str:
        return self.release or self.original

    @classmethod
    def _parts(cls, values: dict[str, Any]) -> dict[str, Any]:
        trials = tuple(TrialOf(**each) for each in values["trials"])
        modes = {mode: irwm.Parameters.from_dict(each) for mode, each in values.get("parameters", {}).items()}
        return {**values, "trials": trials, "parameters": modes}


@dataclass(frozen=True, slots=True)
class OurClaim:
    """What we show: paths of our original and release, and our key's identifier in the vault."""

    original: str
    release: str
    key: str


@dataclass(frozen=True, slots=True)
class TheirClaim:
    """What the other side shows.

    Attributes:
        name: theirs.
        original, release, key_file: paths.
        stamp: a folder with their commitment and its timestamp; "" for none.
    """

    name: str
    original: str
    release: str
    key_file: str
    stamp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeRequest(Filed):
    """Resolve a dispute between us and one other claimant.

    Attributes:
        exhibit: path of a model in dispute; "" for none.
        roots: path of a .pem of the authorities that the user trusts to date their claim; "" for none.
    """

    ours: OurClaim
    theirs: TheirClaim
    exhibit: str = ""
    roots: str = ""

    @property
    def about(self) -> str:
        return self.exhibit or self.theirs.release

    @classmethod
    def _parts(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "ours": OurClaim(**values["ours"]), "theirs": TheirClaim(**values["theirs"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRequest(Filed):
    """Hash an item and file it.

    Attributes:
        name: "" for the path's own.
    """

    path: str
    name: str = ""
    received_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest(Request):
    """Check a report and run its examination again. All but the report may be missing ("").

    Attributes:
        report: path of one of its files, or of their folder.
        identity: the expected public key.
        roots: trusted certificates, PEM.
        suspect, original, models, audit_log: paths; `models` is a folder of models.
        keys: path of a key's file or of a folder of them.
        seen: since when the suspect is known to exist, ISO 8601.
    """

    report: str
    identity: str = ""
    roots: str = ""
    suspect: str = ""
    original: str = ""
    models: str = ""
    keys: str = ""
    audit_log: str = ""
    seen: str = ""


def _plain(value: Any) -> Any:
    if isinstance(value, irwm.Parameters):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
