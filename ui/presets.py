"""Protect's presets as parameters, and a check whether this computer can compute with the chosen settings."""

from __future__ import annotations

import os
from typing import Any

from irwm import Parameters
from irwm.errors import ParameterError
from irwm.report.numbers import number
from irwm.scheme.parameters import NOISE_LEVELS, many_recipients, one_owner
from ui.preset_names import MANY, PAPER, STANDARD
from ui.units import size_text

PRESETS = (STANDARD, MANY, PAPER)
# How the noise of Algorithm 4 is added to a row; `Parameters` calls this `spread` and `noise_level`.
ADDED = "added"
NOISE_CHOICES = [
    ("Added (fingerprint)", ADDED),
    ("Overwriting (hides marked rows)", NOISE_LEVELS[0]),
    ("Overwriting, same size in all rows (as in the paper)", NOISE_LEVELS[1]),
]
# Offered before a model is chosen; the demo model's size, which is small.
USUAL_HIDDEN_SIZE = 256
# Bytes behind one number of the null's orders: the stream, its order, and space to sort it.
_BYTES_PER_PLACE = 24
# Used if a system does not report how much memory it has.
_USUAL_MEMORY = 8 * 1024**3


def preset_parameters(preset: str, hidden_size: int | None) -> Parameters:
    """The parameters of a preset for a model of this hidden size; None while that is unknown."""
    if preset == PAPER:
        return Parameters.paper()
    return (many_recipients if preset == MANY else one_owner)(hidden_size or USUAL_HIDDEN_SIZE)


def noise_choice(params: Parameters) -> tuple[str, float]:
    """Which of `NOISE_CHOICES` the parameters have, and the fingerprint's size."""
    if not params.noise_coordinates:
        return ADDED, one_owner(USUAL_HIDDEN_SIZE).spread
    return (ADDED if params.spread else params.noise_level), params.spread or one_owner(USUAL_HIDDEN_SIZE).spread


def chosen_noise(choice: Any, spread: Any) -> dict[str, Any]:
    """The inverse of `noise_choice`, as arguments of `Parameters`."""
    return {"spread": spread} if choice == ADDED else {"noise_level": choice, "spread": 0.0}


def memory_needed(params: Parameters, hidden_size: int | None) -> int:
    """Bytes needed by the null of a reading: the shared orders (numit, d), the positions' own (l, d), and the lengths
    (l, numit) twice."""
    d = hidden_size or USUAL_HIDDEN_SIZE
    return _BYTES_PER_PLACE * d * (params.permutations + params.positions) + 16 * params.permutations * params.positions


def check_memory(params: Parameters, hidden_size: int | None) -> None:
    """Refuses settings that this computer could not compute with.

    Raises:
        ParameterError
    """
    needed, there = memory_needed(params, hidden_size), memory_there()
    if needed > there:
        raise ParameterError(
            "this number of permutations (numit) needs more memory than this computer has",
            expected=f"at most {size_text(there)} (about {number(params.permutations * there // needed)} permutations)",
            found=f"{number(params.permutations)} permutations, {size_text(needed)}",
            advice="Choose fewer permutations. A thousand is enough to prove a mark",
        )


def memory_there() -> int:
    """Bytes of memory that this computer has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return _USUAL_MEMORY
