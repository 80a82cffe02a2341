"""Protect's presets as parameters, and whether this computer can compute with what was asked for."""

from __future__ import annotations

import os

from irwm import Parameters
from irwm.errors import ParameterError
from irwm.report.numbers import number
from irwm.scheme.parameters import many_recipients
from ui.amounts import size_text
from ui.preset_names import MANY, PAPER, STANDARD

PRESETS = {
    STANDARD: "the mark stands in secret coordinates and is as large as the numbers around it; nothing in a row is odd",
    MANY: "every copy gets noise of its own, which hides its mark from the other recipients and names who leaked it",
    PAPER: "the published setting, exact; somebody who looks for its small numbers can find them and take the mark off",
}
# Offered before a model is known; the demo model's size, on the small side.
USUAL_HIDDEN_SIZE = 256
# Bytes behind one number of the null's orders: the stream, its order, and room to sort it.
_BYTES_PER_PLACE = 24
# Where a system does not tell how much memory it has.
_USUAL_MEMORY = 8 * 1024**3


def preset_parameters(preset: str, hidden_size: int | None) -> Parameters:
    """The parameters of a preset for a model of this hidden size; None while that is unknown."""
    if preset == MANY:
        return many_recipients(hidden_size or USUAL_HIDDEN_SIZE)
    return Parameters.paper() if preset == PAPER else Parameters()


def memory_needed(params: Parameters, hidden_size: int | None) -> int:
    """Bytes that the null of a reading takes: the shared orders (numit, d), the positions' own (l, d), and the lengths
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
            "so many permutations (numit) do not fit into this computer's memory",
            expected=f"at most {size_text(there)}, about {number(params.permutations * there // needed)} permutations",
            found=f"{number(params.permutations)} permutations, {size_text(needed)}",
            advice="Choose fewer; a thousand prove a mark",
        )


def memory_there() -> int:
    """Bytes of memory that this computer has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return _USUAL_MEMORY
