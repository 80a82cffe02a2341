"""Labels of settings, for errors in which the library uses its own names."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The labels of the fields in Protect and Explore.
LABELS: Mapping[str, str] = {
    "positions": "Positions (l)",
    "constraints": "Constraints (t)",
    "required_positions": "Required positions (ρ)",
    "rank_threshold": "Rank threshold (β)",
    "scale": "Scale (scale_wm)",
    "condition_limit": "Condition limit (τ)",
    "permutations": "Permutations (numit)",
    "noise_coordinates": "Noise coordinates (num_noise)",
    "spread": "Size of the fingerprint (α)",
    "survival": "Survival rate (p)",
    "recipients": "Recipients (num_u)",
    "risk": "Accepted risk",
    "success": "Required success",
    "noise": "Attack (noise, σ)",
    "colluders": "Colluders (c)",
}
_OUT_OF_RANGE = re.compile(r"(?P<name>\w+) is out of range")
_QUOTED = re.compile(r"'(?P<text>[^']*)'")
_HIDDEN = re.compile(r"hidden=(?P<value>True|False)")


def setting_of(problem: str) -> str:
    """The setting that an error is about, by the library's name; "" if it is not in `LABELS`."""
    found = _OUT_OF_RANGE.fullmatch(problem)
    if found and found["name"] in LABELS:
        return found["name"]
    return "noise_coordinates" if problem == "noise coordinates require secret coordinates" else ""


def in_words(parts: Mapping[str, str]) -> dict[str, str]:
    """An error's parts, with labels of settings and typed values instead of Python names and values."""
    said = dict(parts)
    name = setting_of(said.get("problem", ""))
    if not name:
        return said
    found = said.get("found", "")
    if name != "noise_coordinates" or _OUT_OF_RANGE.fullmatch(said["problem"]):
        said["problem"] = f"{LABELS[name]} is out of range"
    if found == "None":
        said["found"] = "nothing"
    elif quoted := _QUOTED.fullmatch(found):
        said["found"] = f"“{quoted['text']}”"
    for part in ("expected", "found"):
        if part in said:
            said[part] = _HIDDEN.sub(_secret, said[part])
    return said


def _secret(hidden: re.Match[str]) -> str:
    return "secret coordinates (B_i)" if hidden["value"] == "True" else "no secret coordinates (B_i)"
