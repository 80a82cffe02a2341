"""The scheme's parameters and their symbols in the paper (section 5.1)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from irwm.errors import ParameterError, printable

AUTO_SCALE = "auto"
NOISE_LEVELS = ("row", "global")
# The matrices of a model that a release marks: the rows of its embedding and, if the output head is a separate matrix,
# that matrix's rows too.
EMBEDDING, HEAD = "embedding", "head"
PLACES = (EMBEDDING, HEAD)
# A fingerprint, but no mark, can also be in the rows by which the neurons of some MLPs read the residual stream.
NEURONS = "neurons"
FINGERPRINT_PLACES = (*PLACES, NEURONS)
# The smallest number of permutations N for which the smallest rank, 1 / (N + 1), is not above any threshold that the
# paper uses (beta >= 0.01).
FEWEST_PERMUTATIONS = 99
# A random t x t block of standardised rows of A has a condition of 10 to 60 (t = 5 to 20). A limit of 30 keeps the
# solved entries within the range of natural ones, and a few tries meet it for t <= 20.
DEFAULT_CONDITION_LIMIT = 30.0

# The fingerprint of a release: noise coordinates, at most one in 16 of a row's; and beta. The smaller beta suffices if
# copies are not combined, the larger one identifies each of 16 who combine theirs (docs/collusion.md). The cost grows
# with m beta^2 / d, and is largest for small models: below `FULL_WIDTH` coordinates beta decreases with d.
FINGERPRINT_NOISE, FINGERPRINT_SPACING = 8, 16
ONE_OWNER_SPREAD, MANY_SPREAD = 0.1, 0.25
FULL_WIDTH = 256
# A row of the output head is read for every predicted word, and one of the embedding only at its token: the same
# fingerprint costs several times as much there (docs/collusion.md), and half of it a quarter of that.
HEAD_SHARE = 0.5
# Similarly for constraints: the paper's 10, or fewer if a row has fewer coordinates to spare.
PRESET_CONSTRAINTS, CONSTRAINTS_SPACING, FEWEST_CONSTRAINTS = 10, 25, 4
# Noise that replaces numbers, which hides marked rows: at most one coordinate in 32, which costs the demo model about
# 1% of perplexity; and at most the paper's t, since more does not hide or trace better in practice.
HIDING_SPACING, MOST_HIDING = 32, 10


# Allowed ranges, wider than any practical use. Extreme settings, such as one constraint at a scale of 1e9, used to make
# unmarked models look marked. The ranges are checked when a key is made, read and used.
RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "positions": (1, 10_000),
        "constraints": (2, 64),
        "scale": (1.0, 10_000.0),
        "condition_limit": (1.0, 10_000.0),
        "rank_threshold": (0.001, 0.5),
        "permutations": (0, 1_000_000),  # below FEWEST_PERMUTATIONS every verdict is inconclusive
        "noise_coordinates": (0, 4096),
        "spread": (0.0, 1.0),
    }
)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Settings of one mark; validated on creation, immutable afterwards.

    Attributes:
        positions: l, embedding rows that carry the mark.
        constraints: t, equations and solved entries per row.
        scale: scale_wm, divisor that hides the solved entries, or "auto" to make their RMS equal the row's.
        hidden: the mark is written in the rows' secret bases (Algorithms 4 to 6), so that no entry of a marked row is
            unusual. In the open, as the paper writes one owner's mark, the solved entries can be recognised and redrawn
            without the key. Noise is always written in the bases.
        condition_limit: tau, bound on cond(A2) (Algorithm 2, line 9).
        rank_threshold: beta, a position counts when its rank is below it.
        required_positions: rho, positions that must count (count >= rho).
        permutations: numit, random permutations behind each rank.
        noise_coordinates: num_noise, coordinates per row that carry noise (Algorithm 4); 0 for none.
        spread: beta of the spread-spectrum fingerprint: the noise is added to a row's values, and this is its size in
            units of the row's own deviation. 0 replaces the row's numbers with noise, as in the paper.
        noise_level: the size of noise that replaces numbers, "row": each row's own deviation (cheaper if lengths
            differ), or "global": the paper's sigma_E for all, with which spread is 0.
        places: which matrices carry mark and noise, ("embedding",), ("embedding", "head") or ("embedding", "head",
            "neurons"); the neurons carry only noise that is added. A model whose output head is its embedding, or has
            another shape, is marked only in its embedding, and so is every model if the mark is not hidden or noise
            replaces numbers.

    Raises:
        ParameterError: a value is outside its range.
    """

    positions: int = 50
    constraints: int = 10
    scale: float | str = AUTO_SCALE
    hidden: bool = True
    condition_limit: float = DEFAULT_CONDITION_LIMIT
    rank_threshold: float = 0.2
    required_positions: int = 30
    permutations: int = 1000
    noise_coordinates: int = 0
    noise_level: str = NOISE_LEVELS[0]
    spread: float = MANY_SPREAD
    places: tuple[str, ...] = FINGERPRINT_PLACES

    def __post_init__(self) -> None:
        for name in ("positions", "constraints", "permutations", "noise_coordinates"):
            require_whole(name, getattr(self, name), *RANGES[name])
        require_whole("required_positions", self.required_positions, 1, self.positions)
        if self.noise_level not in NOISE_LEVELS:
            raise ParameterError(
                "unknown noise level", expected=" or ".join(NOISE_LEVELS), found=repr(self.noise_level)
            )
        object.__setattr__(self, "places", _places(self.places))
        if not isinstance(self.hidden, bool) or (self.noise_coordinates and not self.hidden):
            raise ParameterError(
                "noise coordinates require secret coordinates",
                expected="hidden=True, or no noise",
                found=f"hidden={self.hidden!r}"[:60],
            )
        if self.scale != AUTO_SCALE:
            self._as_real("scale")
        self._as_real("condition_limit")
        self._as_real("rank_threshold")
        self._as_real("spread")
        # Parameters without effect have one value, so that equal settings are equal.
        if not self.noise_coordinates:
            object.__setattr__(self, "noise_level", NOISE_LEVELS[0])
        if not self.noise_coordinates or self.noise_level != NOISE_LEVELS[0]:
            object.__setattr__(self, "spread", 0.0)
        # A mark in the open is the paper's, which is in the embedding. The same holds for noise that replaces numbers:
        # in the head it would cost a model several times as much.
        if not self.hidden or (self.noise_coordinates and not self.spread):
            object.__setattr__(self, "places", (EMBEDDING,))
        if not self.noise_coordinates:
            object.__setattr__(self, "places", tuple(place for place in self.places if place in PLACES))

    @property
    def in_head(self) -> Parameters:
        """The same for the mark in the output head, whose fingerprint is `HEAD_SHARE` as large."""
        return replace(self, spread=self.spread * HEAD_SHARE)

    @classmethod
    def paper(cls, **changes: Any) -> Parameters:
        """The paper's own setting for one owner (section 5.1): scale 1000, in the open, without noise, only in the
        embedding."""
        return cls(**{"scale": 1000.0, "hidden": False, **changes})

    def require_ranges(self) -> None:
        """Checks every range again when a key is made or used: Python allows writing into a frozen object.

        Raises:
            ParameterError: a value is outside its range.
        """
        replace(self)

    @property
    def noise_size(self) -> float | str:
        """The size of the noise, as `irwm.scheme.noise` takes it: `spread` if it is added, else `noise_level`."""
        return self.spread or self.noise_level

    def _as_real(self, name: str) -> None:
        """Stores a number as a float: 1000 and 1000.0 are equal, but JSON writes them differently, and a key is derived
        from the JSON."""
        value = getattr(self, name)
        _real(name, value, *RANGES[name])
        object.__setattr__(self, name, float(value))

    def to_dict(self) -> dict[str, object]:
        """The parameters as plain JSON values, except those without effect: the size of noise without noise, the level
        of noise that is added."""
        values = asdict(self) | {"places": list(self.places)}
        if not self.noise_coordinates:
            del values["spread"]
        if not self.noise_coordinates or self.spread:
            del values["noise_level"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Parameters:
        """Parameters from `to_dict`'s form.

        Raises:
            ParameterError: a name is unknown or a value is outside its range.
        """
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            raise ParameterError("unknown parameters", found=", ".join(unknown))
        return cls(**dict(values))


def one_owner(hidden_size: int) -> Parameters:
    """The preset for one owner's releases of a model with `hidden_size` coordinates: hidden mark, faint fingerprint."""
    return _fingerprinted(hidden_size, ONE_OWNER_SPREAD)


def many_recipients(hidden_size: int, *, hides_rows: bool = False) -> Parameters:
    """The preset for copies to many recipients of a model with `hidden_size` coordinates: a hidden mark, and a
    fingerprint that identifies each recipient who combines copies with others.

    Args:
        hides_rows: the noise replaces the rows' numbers instead, as in the paper, in as many coordinates as there are
            constraints, each as large as the row's own numbers. Recipients who compare their copies then see
            no difference between marked rows and others. It costs the model at least ten times as much
            (docs/collusion.md).
    """
    if not hides_rows:
        return _fingerprinted(hidden_size, MANY_SPREAD)
    t = max(2, min(MOST_HIDING, hidden_size // HIDING_SPACING))
    return Parameters(constraints=t, noise_coordinates=t, noise_level="row", spread=0.0)


def _fingerprinted(hidden_size: int, spread: float) -> Parameters:
    m = max(1, min(FINGERPRINT_NOISE, hidden_size // FINGERPRINT_SPACING))
    narrow = min(1.0, hidden_size / FULL_WIDTH)
    t = max(FEWEST_CONSTRAINTS, min(PRESET_CONSTRAINTS, hidden_size // CONSTRAINTS_SPACING))
    return Parameters(constraints=t, noise_coordinates=m, spread=round(spread * narrow, 3))


def chance_of_counting(params: Parameters, threshold: float | None = None) -> float:
    """Exact odds that an unmarked position counts: P(rank < beta) for a rank uniform on {1, ..., N+1} / (N+1).

    Args:
        params: the parameters of the mark.
        threshold: another one in place of beta.
    """
    steps, beta = 1 + params.permutations, params.rank_threshold if threshold is None else threshold
    # Counted with the same comparison as in readings, so that rounding of beta * steps never understates the odds.
    below = math.floor(beta * steps)
    while below > 0 and not below / steps < beta:
        below -= 1
    while (below + 1) / steps < beta:
        below += 1
    return below / steps


def _places(given: object) -> tuple[str, ...]:
    """Places as a tuple, from Python or from JSON."""
    if isinstance(given, (list, tuple)) and tuple(given) in ((EMBEDDING,), PLACES, FINGERPRINT_PLACES):
        return tuple(given)
    raise ParameterError(
        "unknown places",
        expected="embedding alone, embedding and head, or embedding, head and neurons",
        found=printable(repr(given), 60),
    )


def require_whole(name: str, value: object, low: float, high: float) -> None:
    """Raise ParameterError unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(
            f"{name} is out of range", expected=f"a whole number from {low} to {high}", found=repr(value)
        )


def _real(name: str, value: object, low: float, high: float) -> None:
    number = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # a whole number of hundreds of digits
            number = float(value)
    if not math.isfinite(number) or number < low:
        raise ParameterError(f"{name} is out of range", expected=f"a number no less than {low}", found=repr(value)[:40])
    if number > high:
        raise ParameterError(
            f"{name} is out of range", expected=f"a number no greater than {high}", found=repr(value)[:40]
        )
