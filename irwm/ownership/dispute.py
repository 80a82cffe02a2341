"""Two claims on one model (the paper's "Multiple Claims of Ownership"): every key tested on every model.

Claimants provide the original that they claim to have trained, the key made for it, and the copy that they released. An
attacker can provide the same: a second mark on our release (M12), or an altered copy of our release as "original" with
a mark on it (Mo', M1'). But then *our* mark is in the attacker's "original", and the attacker's mark is not in ours.
This module makes the tests; `rules` decides between the claimants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from irwm.checkpoint import Checkpoint
from irwm.errors import CancelledError, CorruptCheckpointError, KeyMismatchError, ParameterError, printable
from irwm.evidence.detection import detect
from irwm.evidence.finding import FOUND, NOT_FOUND, Evidence, Finding, Reading
from irwm.evidence.lineage import DERIVED, NOT_DERIVED
from irwm.keys.key import Key
from irwm.ownership.key_search import Standing, standing
from irwm.ownership.rules import Ruling, Tested, rule, winner_of
from irwm.scheme.row_pool import row_pool

ORIGINAL, RELEASE, EXHIBIT = "original", "release", "exhibit"
MOST_CLAIMS = 20
# The attributes of a reading, a fingerprint and a finding that the record of a test holds.
_OF_READING = ("count", "present", "log10_p", "log10_p_count")
_OF_FINGERPRINT = ("place", "tensors_read", "z", "rows")
_OF_FINDING = ("place", "tensors_read", "forms", "places")
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """The material of one claimant.

    Attributes:
        claimant: a name, different for every claim.
        original: the unmarked model that is the original according to the claimant.
        key: the key made for it.
        released: the claimant's own marked copy, if there is one.
        committed_utc: when an independent authority dated the key's commitment (`read_response`, trusted), ISO 8601
            with its zone; None without a date.
    """

    claimant: str
    original: Checkpoint
    key: Key
    released: Checkpoint | None = None
    committed_utc: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """One claimant's key on one model.

    Attributes:
        claimant: the owner of the key.
        model: the model's name, "original of …", "release of …" or the exhibit's.
        kind: "original", "release" or "exhibit".
        brought_by: the claimant whose original or release it is; "" for an exhibit that is not a claimant's own model.
        finding: the finding, corrected for all comparisons of the dispute; None if the key was refused.
        refused: why the key does not fit its claimant's original, or why that is not a valid original; "" if it fits.
    """

    __test__ = False  # pytest must not collect it

    claimant: str
    model: str
    kind: str
    brought_by: str
    finding: Finding | None
    refused: str = ""

    @property
    def found(self) -> bool:
        return self.finding is not None and self.finding.verdict == FOUND

    @property
    def absent(self) -> bool:
        """Whether the mark is known not to be there; an inconclusive test is neither found nor absent."""
        return self.finding is not None and self.finding.verdict == NOT_FOUND

    @property
    def related(self) -> bool:
        """Whether the model and the original of the key's claimant descend from each other or from one base."""
        return self.finding is not None and self.finding.lineage.status == DERIVED

    @property
    def unrelated(self) -> bool:
        """Whether the two are known not to descend from each other; also false if that is unknown."""
        return self.finding is not None and self.finding.lineage.status == NOT_DERIVED

    @property
    def log10_risk(self) -> float:
        """log10 of the corrected odds of the stronger form of evidence without the mark; 0 without a finding."""
        return 0.0 if self.finding is None else self.finding.log10_risk

    def standing(self, committed_utc: str | None, seen_utc: str | None) -> Standing:
        """The value of this test against a claimant who searched for the key."""
        return standing(self.log10_risk, committed_utc, seen_utc)

    def to_dict(self) -> dict[str, object]:
        finding = self.finding
        return {
            "claimant": self.claimant,
            "model": self.model,
            "kind": self.kind,
            "brought_by": self.brought_by,
            "verdict": finding.verdict if finding else "refused",
            "reason": finding.reason if finding else self.refused,
            # Each is None if the key was refused.
            **{name: getattr(finding, name) if finding else None for name in (*_OF_READING, *_OF_FINDING)},
            "elsewhere": _elsewhere(finding) if finding else None,
            "fingerprint": _fields(finding.fingerprint, _OF_FINGERPRINT) if finding and finding.fingerprint else None,
            "log10_risk": self.log10_risk,
            "lineage": finding.lineage.status if finding else None,
        }


def _elsewhere(finding: Finding) -> dict[str, object] | None:
    """The mark in the other place, in short."""
    if finding.elsewhere is None:
        return None
    return _fields(finding.elsewhere, _OF_READING) | {"tensors_read": finding.tensors_read_elsewhere}


def _fields(read: Reading | Evidence, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(read, name) for name in names}


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome of a dispute.

    Attributes:
        tests: every key on every model, by claimant and model.
        comparisons: how many tests each finding is corrected for.
        rulings: one for every two claimants.
        remarks: a sentence for each claim that fails independently of the other claims.
        winner: the claimant who won every ruling against another, or None.
        sentence: the outcome in plain words.
    """

    tests: tuple[Test, ...]
    comparisons: int
    rulings: tuple[Ruling, ...]
    remarks: tuple[str, ...]
    winner: str | None
    sentence: str

    def test(self, claimant: str, model: str) -> Test:
        """The test of a claimant's key on a model, by their names."""
        return next(each for each in self.tests if (each.claimant, each.model) == (claimant, model))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "tests": [each.to_dict() for each in self.tests],
            "comparisons": self.comparisons,
            "rulings": [each.to_dict() for each in self.rulings],
            "remarks": list(self.remarks),
            "winner": self.winner,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    name: str
    kind: str
    brought_by: str
    checkpoint: Checkpoint


def resolve(
    claims: Sequence[Claim],
    exhibits: Iterable[tuple[str, Checkpoint]] = (),
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Test every claimant's key on every model and decide between the claimants.

    Args:
        claims: two or more; their order does not matter.
        exhibits: models in dispute that are not a claimant's own, each with a name. If a claimant provides the same
            embedding, bit for bit, the exhibit is tested but decides nothing, and a remark states this.
        device, seed: as for `irwm.detect`.
        progress: called with tests done, the total of tests and a description of the current test.
        cancelled: called between tests; true stops the work with CancelledError.

    Raises:
        ParameterError: fewer than two claims or too many, two of one name, or a date without a zone.
        CheckpointError: a model cannot be read.
    """
    claims = sorted(claims, key=lambda claim: claim.claimant)
    brought = list(_brought(claims))
    models = [*brought, *(_Model(name, EXHIBIT, _whose(model, brought), model) for name, model in exhibits)]
    _check(claims, models)
    tests: list[Test] = []
    total = len(claims) * len(models)
    for test in _tests(claims, models, total, device, seed):
        tests.append(test)
        if progress:
            progress(len(tests), total, f"Testing the key of {test.claimant} on the {test.model}")
        if cancelled and cancelled():
            raise CancelledError("the dispute was stopped before a decision was reached")
    return decide(claims, tests)


def decide(claims: Sequence[Claim], tests: Sequence[Test]) -> Outcome:
    """The outcome of the tests of a dispute; if only a date in a claim changes, the tests need not be repeated.

    Raises:
        ParameterError: a date cannot be used.
    """
    claims = sorted(claims, key=lambda claim: claim.claimant)
    _check_dates(claims)
    rulings = tuple(
        rule((one.claimant, one.committed_utc), (other.claimant, other.committed_utc), tests)
        for i, one in enumerate(claims)
        for other in claims[i + 1 :]
    )
    return Outcome(
        tests=tuple(tests),
        comparisons=len(tests),
        rulings=rulings,
        remarks=tuple(remarks([claim.claimant for claim in claims], tests)),
        winner=winner_of([claim.claimant for claim in claims], rulings),
        sentence=" ".join(each.sentence for each in rulings),
    )


def _brought(claims: Sequence[Claim]) -> Iterator[_Model]:
    for claim in claims:
        who = printable(claim.claimant)
        yield _Model(f"original of {who}", ORIGINAL, claim.claimant, claim.original)
        if claim.released is not None:
            yield _Model(f"release of {who}", RELEASE, claim.claimant, claim.released)


def _whose(exhibit: Checkpoint, brought: Sequence[_Model]) -> str:
    """The claimant who provides the same embedding, so that the exhibit shows nothing; "" for none."""
    return next((each.brought_by for each in brought if each.checkpoint.fingerprint == exhibit.fingerprint), "")


def _check(claims: Sequence[Claim], models: Sequence[_Model]) -> None:
    if not 2 <= len(claims) <= MOST_CLAIMS:
        raise ParameterError("wrong number of claimants", expected=f"2 to {MOST_CLAIMS}", found=str(len(claims)))
    for what, names in (("claimants", [c.claimant for c in claims]), ("models", [m.name for m in models])):
        if len(set(names)) != len(names) or not all(name.strip() for name in names):
            raise ParameterError(f"the {what} in a dispute must have distinct names", found=", ".join(names)[:200])
    _check_dates(claims)


def _check_dates(claims: Sequence[Claim]) -> None:
    for claim in claims:
        try:
            standing(0.0, claim.committed_utc)
        except ValueError as error:
            raise ParameterError(
                f"the date of {printable(claim.claimant)}'s claim cannot be used", found=str(error)
            ) from error


def _tests(claims: Sequence[Claim], models: Sequence[_Model], total: int, device: str, seed: int) -> Iterator[Test]:
    for claim in claims:
        refused = _unusable(claim.original)
        # The claimant's own original first: a key that was not made for it is refused before it accuses anyone.
        own_first = sorted(models, key=lambda model: (model.brought_by, model.kind) != (claim.claimant, ORIGINAL))
        for model in own_first:
            finding = None
            if not refused:
                try:
                    # A dispute is about the weights themselves, not about other files next to them.
                    brought = replace(model.checkpoint, given=None)
                    finding = detect(brought, claim.original, claim.key, device=device, seed=seed, keys_tried=total)
                except KeyMismatchError as error:
                    refused = str(error)
            yield Test(claim.claimant, model.name, model.kind, model.brought_by, finding, refused)


def _unusable(original: Checkpoint) -> str:
    """Why no key could have been made for this original; "" if one could."""
    try:
        row_pool(original)
    except CorruptCheckpointError as error:
        return str(error)
    return ""


def remarks(claimants: Sequence[str], tests: Sequence[Tested]) -> Iterator[str]:
    """A sentence for each claim that fails independently of the others; each claimant's original is tested first."""
    for claimant in claimants:
        who = printable(claimant)
        own = [each for each in tests if each.claimant == claimant]
        if own[0].refused:
            yield f"The key of {who} does not fit the original of {who}, so it shows nothing: {own[0].refused}"
        for each in own:
            if each.brought_by != claimant:
                continue
            if each.kind == RELEASE and not each.found and not each.refused:
                if each.absent:
                    yield f"The mark of {who} is not in the release of {who}."
                else:
                    yield f"The mark of {who} cannot be shown to be in the release of {who}."
            if each.kind == EXHIBIT:
                yield (
                    f"The {each.model} is bit-for-bit identical to a model of {who}, so it shows nothing as a model in "
                    "dispute."
                )
            if each.kind == ORIGINAL and each.found:
                yield f"The original of {who} carries {who}'s own mark, so it is not the unmarked original."
