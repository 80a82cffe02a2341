"""The rules of a dispute between two claimants, each with its numbers and its sentence.

The rules, in this order:

1. A key that does not fit its own original shows nothing.
2. If a claimant's "original" carries the other's mark, it was made from the other's release.
3. If a claimant's release carries the other's mark, and not the reverse, it was made from the other's release.
4. If one model carries both marks, or the originals are related, the earlier of two timestamped commitments decides.
5. If the originals are known to be unrelated, the mark in the exhibit decides.

Everything else remains undecided, and the ruling states what would decide it. A mark counts only if a search for a key
could not have found it (`key_search.Standing`). No rule depends on the order of the claimants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Protocol

from irwm.errors import printable
from irwm.ownership.key_search import Standing
from irwm.scheme.stated_odds import CAPPED, LEAST_LOG10

UNFIT, ORIGINAL_MARKED, EARLIER = "key does not fit", "original carries the other's mark", "earlier commitment"
RELEASE_MARKED = "release carries the other's mark"
ONLY_ONE, UNDECIDED = "only one mark is shown", "undecided"

# Claimant and timestamped commitment's date.
Party = tuple[str, str | None]


class Tested(Protocol):
    """The attributes of a `dispute.Test`, or of its record in a report, that the rules read."""

    @property
    def claimant(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def brought_by(self) -> str: ...
    @property
    def refused(self) -> str: ...
    @property
    def found(self) -> bool: ...
    @property
    def absent(self) -> bool: ...
    @property
    def related(self) -> bool: ...
    @property
    def unrelated(self) -> bool: ...
    @property
    def log10_risk(self) -> float: ...
    def standing(self, committed_utc: str | None, seen_utc: str | None) -> Standing: ...


@dataclass(frozen=True, slots=True)
class Ruling:
    """The outcome between two claims.

    Attributes:
        claimants: the two names.
        rule: the rule that decided, or "undecided".
        winner: the claimant in whose favour it decided, or None.
        sentence: the result in plain words, with its numbers.
        would_decide: what would decide the case; "" if it is decided.
        margin_bits: bits of evidence for the decision, minus those that a search could have forged; None for a date
            alone.
    """

    claimants: tuple[str, str]
    rule: str
    winner: str | None
    sentence: str
    would_decide: str = ""
    margin_bits: float | None = None

    def to_dict(self) -> dict[str, object]:
        return asdict(self) | {"claimants": list(self.claimants)}


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two claimants, with the tests of their key."""

    name: str
    committed_utc: str | None
    against: str  # the other's name
    tests: tuple[Tested, ...]

    @property
    def who(self) -> str:
        return printable(self.name)

    @property
    def unfit(self) -> bool:
        return any(each.refused for each in self.tests)

    @property
    def in_their_original(self) -> Tested:
        return next(t for t in self.tests if t.kind == "original" and t.brought_by == self.against)

    @property
    def own_release(self) -> Tested | None:
        return next((t for t in self.tests if t.kind == "release" and t.brought_by == self.name), None)

    @property
    def in_their_release(self) -> Tested | None:
        return next((t for t in self.tests if t.kind == "release" and t.brought_by == self.against), None)

    @property
    def exhibits(self) -> tuple[Tested, ...]:
        """The models in dispute, without those that are also a claimant's own."""
        return tuple(each for each in self.tests if each.kind == "exhibit" and not each.brought_by)

    @property
    def time(self) -> datetime | None:
        return None if self.committed_utc is None else datetime.fromisoformat(self.committed_utc)

    def bits(self, test: Tested) -> float:
        """Evidence minus the bits that a search could have gained. Dates do not count: the other's commitment shows
        that the other's model existed by then, but it may have existed, and been searched against, long before."""
        return test.standing(None, None).margin_bits

    def shows(self, test: Tested) -> bool:
        return test.found and self.bits(test) >= 0

    def shown(self) -> set[str]:
        """Models that carry the claimant's mark."""
        return {each.model for each in self.tests if self.shows(each)}


def rule(one: Party, other: Party, tests: Sequence[Tested]) -> Ruling:
    """The ruling between two claimants.

    Args:
        one, other: name and date of each.
        tests: every key on every model.
    """
    a, b = sorted((one, other), key=lambda party: party[0])
    sides = (_side(a, b, tests), _side(b, a, tests))
    for step in (_unfit, _original_marked, _release_marked, _by_date, _only_one):
        ruling = step(*sides)
        if ruling is not None:
            return ruling
    return _undecided(*sides)


def winner_of(claimants: Sequence[str], rulings: Sequence[Ruling]) -> str | None:
    """The claimant who won every ruling against another, or None."""
    for name in claimants:
        if all(each.winner == name for each in rulings if name in each.claimants):
            return name
    return None


def _side(party: Party, other: Party, tests: Sequence[Tested]) -> _Side:
    """One side, without a third claimant's models: only the models of the two decide between them."""
    kept = [t for t in tests if t.claimant == party[0] and t.brought_by in (party[0], other[0], "")]
    kept.sort(key=lambda test: (test.kind, test.model))
    return _Side(*party, other[0], tuple(kept))


def _unfit(a: _Side, b: _Side) -> Ruling | None:
    if not (a.unfit or b.unfit):
        return None
    if a.unfit and b.unfit:
        said = "Neither key fits its claimant's original, so neither shows anything."
        return _open(a, b, said, "keys that fit the claimants' originals")
    bad, good = (a, b) if a.unfit else (b, a)
    said = f"The key of {bad.who} was not made for the original of {bad.who}, so the claim of {bad.who} shows nothing."
    # A mark in an exhibit may be a second one, written over the mark of the claimant whose key could not be tested.
    at_stake = [t for t in good.tests if t.brought_by == bad.name and good.shows(t)]
    if not at_stake:
        shown = [t for t in good.exhibits if good.shows(t)]
        if shown:
            said += f" The {shown[0].model} carries the mark of {good.who}. Whether it also carries the mark of "
            said += f"{bad.who} could not be tested."
        would = (
            f"the original for which the key of {bad.who} was made, or a key that was made for the original of "
            f"{bad.who}"
        )
        return Ruling((a.name, b.name), UNFIT, None, said, _would(would))
    best = min(at_stake, key=lambda t: t.log10_risk)
    said += f" The {best.model} carries the mark of {good.who} ({_odds(best)})."
    return Ruling((a.name, b.name), UNFIT, good.name, said, margin_bits=good.bits(best))


def _original_marked(a: _Side, b: _Side) -> Ruling | None:
    mine, theirs = a.in_their_original, b.in_their_original
    shown = [side for side, test in ((a, mine), (b, theirs)) if side.shows(test)]
    if not shown:
        return None
    if len(shown) == 2:
        said = (
            f"The claimed original of {a.who} carries the mark of {b.who}, and that of {b.who} carries the mark of "
            f"{a.who}. The two claims cannot both be true: one of the originals or one of the keys is not what it is "
            "claimed to be."
        )
        return _open(a, b, said, "originals whose dates are confirmed by third parties")
    (side,) = shown
    test, other = side.in_their_original, b if side is a else a
    back = other.in_their_original
    reverse = "is not in" if back.absent else "is not shown to be in"
    said = (
        f"The claimed original of {other.who} carries the mark of {side.who} ({_odds(test)}), so it was made from a "
        f"copy that {side.who} had marked. The mark of {other.who} {reverse} the original of {side.who}."
    )
    return Ruling((a.name, b.name), ORIGINAL_MARKED, side.name, said, margin_bits=side.bits(test))


def _release_marked(a: _Side, b: _Side) -> Ruling | None:
    """A claimant cannot mark the models of the other side, so a mark on one side only shows who used whose copy."""
    for side, other in ((a, b), (b, a)):
        own, test, back = side.own_release, side.in_their_release, other.in_their_release
        if own is None or test is None or back is None:
            return None
        if side.shows(own) and side.shows(test) and back.absent:
            said = (
                f"The release of {other.who} carries the mark of {side.who} ({_odds(test)}), and the release of "
                f"{side.who} does not carry the mark of {other.who}. Therefore, {other.who} used a copy that "
                f"{side.who} had marked."
            )
            return Ruling((a.name, b.name), RELEASE_MARKED, side.name, said, margin_bits=side.bits(test))
    return None


def _by_date(a: _Side, b: _Side) -> Ruling | None:
    """If one model carries both marks, or the originals are related and no mark contradicts the date."""
    both = sorted(a.shown() & b.shown())
    earlier = _earlier(a, b)
    if earlier is None:
        return None
    later = b if earlier is a else a
    if both:
        where = f"The {both[0]} carries both marks, and neither original carries the other claimant's mark."
    elif _related(a, b) and any(map(earlier.shows, earlier.exhibits)) and not any(t.found for t in later.exhibits):
        where = f"The two originals are related, and the models in dispute show only the mark of {earlier.who}."
    else:
        return None
    said = f"{where} The commitment of {earlier.who} was timestamped first, on {earlier.committed_utc}; that of "
    said += f"{later.who} was timestamped on {later.committed_utc}."
    said += " This dates the mark and the original for which it was made; it does not show who trained the model."
    best = max(earlier.bits(t) for t in earlier.tests if earlier.shows(t))
    return Ruling((a.name, b.name), EARLIER, earlier.name, said, margin_bits=best)


def _only_one(a: _Side, b: _Side) -> Ruling | None:
    if not _unrelated(a, b):
        return None  # the missing mark may have been removed
    for side, other in ((a, b), (b, a)):
        mine = [t for t in side.exhibits if side.shows(t)]
        if mine and all(t.absent or t.unrelated for t in other.exhibits) and not any(t.found for t in other.exhibits):
            best = min(mine, key=lambda t: t.log10_risk)
            said = (
                f"The {best.model} carries the mark of {side.who} ({_odds(best)}) but not that of {other.who}, whose "
                f"original is unrelated to that of {side.who}."
            )
            return Ruling((a.name, b.name), ONLY_ONE, side.name, said, margin_bits=side.bits(best))
    return None


def _undecided(a: _Side, b: _Side) -> Ruling:
    both = sorted(a.shown() & b.shown())
    dates = "a commitment that an authority timestamped before the other claimant's"
    if both:
        said = f"The {both[0]} carries both marks, neither original carries the other claimant's mark, and "
        said += "no date shows which came first." if a.time == b.time else "the dates do not decide the dispute."
        said += f" {_one_date(a, b)}" if (a.time is None) != (b.time is None) else ""
        return _open(a, b, said, dates)
    weak = [(side, t) for side in (a, b) for t in side.tests if t.found and not side.shows(t)]
    if weak:
        side, test = weak[0]
        said = f"The mark of {side.who} is found in the {test.model} ({_odds(test)}), "
        said += "but a key obtained by a later search could show as much."
        return _open(a, b, said, f"a commitment by {side.who} that was timestamped before that model appeared")
    said = f"Neither original carries the other claimant's mark. {_carried(a, b)}"
    if _unrelated(a, b):
        return _open(a, b, said, "a model in dispute that carries one of the marks")
    if not _related(a, b):
        said += " Whether the two originals are related is unknown."
        return _open(a, b, said, "a mark in one of the other claimant's models, or records of the training")
    said += " The originals are related, and no mark shows which of them came first."
    if (a.time is None) != (b.time is None):
        said += f" {_one_date(a, b)}"
    return _open(a, b, said, f"{dates}, or records of the training")


def _carried(a: _Side, b: _Side) -> str:
    sentences = []
    for side, other in ((a, b), (b, a)):
        beyond = sorted(side.shown() - {t.model for t in side.tests if t.brought_by == side.name})
        if beyond:
            sentences.append(
                f"The mark of {side.who} is in the {' and the '.join(beyond)}; that of {other.who} is not."
            )
    return " ".join(sentences) or "Neither mark is in any model other than its claimant's own."


def _related(a: _Side, b: _Side) -> bool:
    return a.in_their_original.related or b.in_their_original.related


def _unrelated(a: _Side, b: _Side) -> bool:
    """Whether the originals are known to be unrelated in both directions of the comparison. Unknown is not sufficient,
    and one direction alone may only show that a claimant damaged the model provided as original."""
    return a.in_their_original.unrelated and b.in_their_original.unrelated


def _earlier(a: _Side, b: _Side) -> _Side | None:
    """The side with the earlier commitment, if both are dated: anyone can have a key stamped today, and a missing date
    shows nothing about when a key was made."""
    if a.time is None or b.time is None or a.time == b.time:
        return None
    return a if a.time < b.time else b


def _one_date(a: _Side, b: _Side) -> str:
    """Why a single date does not decide."""
    dated, other = (b, a) if a.time is None else (a, b)
    return f"Only the commitment of {dated.who} has a date. That does not show that {other.who} came later."


def _open(a: _Side, b: _Side, said: str, would: str) -> Ruling:
    return Ruling((a.name, b.name), UNDECIDED, None, said, _would(would))


def _would(what: str) -> str:
    return f"What would decide the dispute: {what}."


def _odds(test: Tested) -> str:
    said = CAPPED if test.log10_risk < LEAST_LOG10 else f"10^{test.log10_risk:.1f}"
    return f"probability by chance: {said}"
