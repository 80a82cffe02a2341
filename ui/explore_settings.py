"""The settings of Explore as one value: a mark's parameters and the conditions to examine it under; shared as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from irwm.errors import ParameterError
from irwm.explore.planning import LEAST_RISK, MOST_RECIPIENTS, Wish
from irwm.scheme.parameters import PLACES, Parameters, many_recipients, one_owner

FORMAT, VERSION = "irwm-explore-settings", 1
# Longer than any settings, and short enough to be read at once.
MOST_CHARACTERS = 4000
# Digits of a whole number; the largest setting has 13.
MOST_DIGITS = 20
# White noise beyond three deviations destroys a model.
MOST_NOISE = 3.0
# Largest number of copies that the page computes.
MOST_COPIES = 1000


class SettingsTextError(ParameterError):
    """A text that does not contain settings of this page."""


@dataclass(frozen=True, slots=True)
class ExploreSettings:
    """The values of the page's controls.

    Attributes:
        parameters: of the mark.
        survival: p, share of the positions that still count after an attack.
        recipients: keys in use.
        risk, success: the requirements for a setting, for the inverse question.
        noise: k, the attack's white noise in deviations of a row.
        colluders: c, copies that are averaged.

    Raises:
        ParameterError: a value is outside its range.
    """

    parameters: Parameters = field(default_factory=Parameters)
    survival: float = 0.8
    recipients: int = 1
    risk: float = 1e-6
    success: float = 0.999
    noise: float = 0.3
    colluders: int = 8

    def __post_init__(self) -> None:
        for name, low, high in (
            ("survival", 0.0, 1.0),
            ("risk", LEAST_RISK, 1.0),
            ("success", 0.0, 1.0),
            ("noise", 0.0, MOST_NOISE),
        ):
            object.__setattr__(self, name, _real(name, getattr(self, name), low, high))
        if self.parameters.hidden and self.parameters.places[:2] != PLACES:
            raise ParameterError(
                "settings from this page always mark the output head if it is a separate matrix",
                expected=", ".join(PLACES),
                found=", ".join(self.parameters.places),
                advice="To mark only the embedding, use Parameters(places=...) in Python",
            )
        _whole("recipients", self.recipients, MOST_RECIPIENTS)
        _whole("colluders", self.colluders, MOST_COPIES)
        _ = self.wish

    @property
    def wish(self) -> Wish:
        """The inverse question."""
        return Wish(self.recipients, self.risk, self.survival, self.success, self.parameters.rank_threshold)

    def to_json(self) -> str:
        """One value per line, with the format's name and version; `from_json` reads it."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "parameters"}
        document = {"format": FORMAT, "version": VERSION, "parameters": asdict(self.parameters), **values}
        return json.dumps(document, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ExploreSettings:
        """Settings from `to_json`'s form. A missing name keeps its default; an unknown name is refused.

        Raises:
            SettingsTextError: not JSON, not of this kind or version, a name twice or unknown, or a value out of range.
        """
        if len(text) > MOST_CHARACTERS:
            raise SettingsTextError(
                "this text is too long to be a set of settings",
                expected=f"at most {MOST_CHARACTERS} characters",
                found=f"{len(text)} characters",
            )
        try:
            document = json.loads(text, object_pairs_hook=_once, parse_constant=_none, parse_int=_int)
        except SettingsTextError:
            raise
        except (ValueError, RecursionError) as error:
            raise SettingsTextError(
                "this text is not JSON",
                found=f"{type(error).__name__}: {error}"[:200],
                advice="Paste the complete text that you copied from this page, from { to }",
            ) from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise SettingsTextError(
                "these settings are not from this page",
                expected=f'"format": "{FORMAT}"',
                found=repr(document.get("format") if isinstance(document, dict) else document)[:60],
            )
        if document.get("version") != VERSION or isinstance(document.get("version"), bool):
            raise SettingsTextError(
                "these settings are for a different version of this page",
                expected=str(VERSION),
                found=repr(document.get("version"))[:60],
            )
        values = {name: value for name, value in document.items() if name not in ("format", "version")}
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise SettingsTextError(
                "some settings are unknown",
                expected=", ".join(sorted(known)),
                found=", ".join(unknown)[:200],
            )
        parameters = values.pop("parameters", {})
        if not isinstance(parameters, dict):
            raise SettingsTextError("“parameters” is not a group of settings", found=repr(parameters)[:60])
        try:
            return cls(parameters=Parameters.from_dict(parameters), **values)
        except SettingsTextError:
            raise
        except ParameterError as error:
            raise SettingsTextError(
                error.problem, expected=error.expected, found=(error.found or "")[:200] or None, advice=error.advice
            ) from error


def presets(hidden_size: int) -> Mapping[str, ExploreSettings]:
    """The settings that one click selects: the paper's worked examples (its section 5.4), and Protect's own presets."""
    return {
        "Paper: p = 0.8, ρ = 30": ExploreSettings(parameters=Parameters.paper(), recipients=100_000),
        "Paper: p = 0.7, ρ = 28": ExploreSettings(
            parameters=Parameters.paper(required_positions=28), survival=0.7, recipients=100_000
        ),
        "Standard": ExploreSettings(parameters=one_owner(hidden_size)),
        "Many recipients": ExploreSettings(parameters=many_recipients(hidden_size), recipients=300),
    }


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose names are all different: two values of one name would be ambiguous."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise SettingsTextError("the settings contain a duplicate", advice="Keep only one of the two")
    return found


def _none(name: str) -> Any:
    raise SettingsTextError("a value is not a finite number", found=name)


def _int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:  # not a float, and slow to convert
        raise SettingsTextError("a number is too large", found=f"a number with {len(digits)} digits")
    return int(digits)


def _real(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ParameterError(
            f"{name} is out of range", expected=f"a number from {low:g} to {high:g}", found=repr(value)[:60]
        )
    return float(value)


def _whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ParameterError(
            f"{name} is out of range", expected=f"a whole number from 1 to {most}", found=repr(value)[:60]
        )
