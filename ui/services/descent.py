"""Map which of several models were made from which."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import irwm
from irwm.checkpoint.candidates import find_checkpoints, several_in
from irwm.checkpoint.remote.address import is_address
from irwm.errors import IrwmError, path_from, shown_path
from ui.services.outcomes import error_parts
from ui.services.request import DescentRequest
from ui.services.results import Mapped, Unread
from ui.services.work import Work

# A sample of a model takes 16 MiB of memory, and the time grows with the square of their number.
MOST_MODELS = 200


def run(request: DescentRequest, vault: object, work: Work) -> Mapped:
    """The map; models that cannot be read are left out, and listed.

    Raises:
        IrwmError: there are fewer than two models, or more than `MOST_MODELS`.
    """
    unread: list[Unread] = []
    originals = list(dict.fromkeys(_found(request.originals, unread)))
    names = list(dict.fromkeys([*originals, *_found(request.models, unread)]))
    if not 2 <= len(names) <= MOST_MODELS:
        raise IrwmError(
            "a map needs several models", expected=f"2 to {MOST_MODELS}", found=f"{len(names)}",
            advice="Enter a folder with models, or several models",
        )  # fmt: skip
    opened: list[irwm.Checkpoint] = []
    kept: list[str] = []
    for number, name in enumerate(names):
        work.progress(number, len(names), f"Opening {Path(name).name}")
        try:
            opened.append(irwm.open_checkpoint(name if is_address(name) else path_from(name)))
            kept.append(name)
        except IrwmError as error:
            unread.append({"name": name, "error": error_parts(error)})
    places = [place for place, name in enumerate(kept) if name in originals]

    def leave_out(place: int, error: IrwmError) -> None:
        unread.append({"name": kept[place], "error": error_parts(error)})

    found = irwm.map_descent(opened, places, work.progress, leave_out)
    return {
        "names": list(found.names),
        "addresses": kept,
        "families": [list(family) for family in found.families],
        "branches": [asdict(each) for each in found.branches],
        "originals": places,
        "unread": unread,
    }


def _found(given: Sequence[str], unread: list[Unread]) -> list[str]:
    """The models that are given, or that are in the folders that are given; parts of these that were not searched are
    added to `unread`.

    Raises:
        IrwmError: a folder cannot be searched.
    """
    found: list[str] = []
    for each in given:
        if is_address(each):
            found.append(each)
            continue
        path = Path(os.path.realpath(path_from(each)))
        if several_in(path) is None:
            found.append(shown_path(path))
            continue
        inside = find_checkpoints(path, MOST_MODELS + 1)
        found += map(shown_path, inside.paths)
        missed = IrwmError("this part of a folder was not searched", file=path, advice="Enter it separately")
        unread += [{"name": name, "error": error_parts(missed)} for name in (*inside.refused, *inside.too_deep)]
    return found
