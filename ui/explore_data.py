"""The data that Explore shows of a model, computed once and kept while its controls change."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import irwm
from irwm.errors import CheckpointError
from irwm.explore.capacity import Collusion, simulated
from irwm.explore.prediction import Rehearsal, Sample, sample, tries
from irwm.scheme.parameters import AUTO_SCALE
from ui.explore_model_plots import NEIGHBOURS, SIMULATED_COLLUDERS, SIMULATED_NOISE
from ui.explore_settings import ExploreSettings

# Number of sampled query tokens, enough to compare the paper's constraints.
CONSTRAINTS = max(NEIGHBOURS)
TRIES, SIZED_TRIES = 100, 60
# Rows and orders of a simulation at the demo model's width; wider models get fewer, to take the same second.
_ROWS, _ORDERS, _WIDTH = 200, 200, 1024
# Rows of the simulated collusion.
_COLLUSION_ROWS = 256


def sample_of(path: Path, settings: ExploreSettings) -> Sample:
    """A sample of the model at `path`, as large as these settings need; read again only when its files change.

    Raises:
        CheckpointError, ParameterError: the model cannot be used.
    """
    return _sampled(path, _stamp(path), max(CONSTRAINTS, settings.parameters.constraints))


@lru_cache(maxsize=2)
def _sampled(path: Path, stamp: tuple[int, ...], constraints: int) -> Sample:
    model = irwm.open_checkpoint(path)
    return sample(model, min(constraints, model.hidden_size - 1))


def _stamp(path: Path) -> tuple[int, ...]:
    """Time and size of a model's files, to detect changes."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [file.stat() for file in files if file.is_file()]
    except OSError as error:
        raise CheckpointError("this model cannot be read", file=path, found=error.strerror) from error
    return tuple(number for s in stats for number in (s.st_mtime_ns, s.st_size))


def rehearsal_of(of: Sample, settings: ExploreSettings) -> Rehearsal:
    """The mark of these settings on the sample.

    Raises:
        ParameterError, ConditionError: raised when the mark is computed.
    """
    p = settings.parameters
    return _rehearsal(of, p.constraints, p.condition_limit, None if p.scale == AUTO_SCALE else float(p.scale))


@lru_cache(maxsize=16)
def _rehearsal(of: Sample, constraints: int, limit: float, scale: float | None) -> Rehearsal:
    return Rehearsal(of, constraints, limit, scale)


def neighbours_of(of: Sample, settings: ExploreSettings) -> list[Rehearsal]:
    """The same with the paper's other constraints, if they are stable enough within the limit."""
    found = []
    for t in NEIGHBOURS:
        if t <= of.most_constraints:
            each = _rehearsal(of, t, settings.parameters.condition_limit, None)
            try:
                _ = each.natural_scale
            except irwm.IrwmError:  # no try meets this limit; the error for the chosen t is shown elsewhere
                continue
            found.append(each)
    return found


@lru_cache(maxsize=16)
def shares_of(rehearsal: Rehearsal, rank_threshold: float) -> dict[str, NDArray[np.float64]]:
    """Simulated shares at `SIMULATED_NOISE`."""
    wide = rehearsal.sample.hidden_size > _WIDTH
    rows = max(_ROWS // 4, _ROWS * _WIDTH // max(_WIDTH, rehearsal.sample.hidden_size))
    return rehearsal.shares(SIMULATED_NOISE, rank_threshold, rows, _ORDERS // 2 if wide else _ORDERS)


@lru_cache(maxsize=16)
def tries_of(of: Sample, constraints: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return tries(of, constraints, TRIES, SIZED_TRIES)


@lru_cache(maxsize=16)
def seen_of(rehearsal: Rehearsal, chosen: int, level: float | str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Noise coordinates, and how visible the marks are with each."""
    t, d = rehearsal.constraints, rehearsal.sample.hidden_size
    last = min(d, max(2 * t, chosen, 4))
    levels = tuple(sorted({int(v) for v in np.linspace(0, last, 9).round()} | {chosen, min(t, last)}))
    return levels, tuple(rehearsal.seen(m, level) for m in levels)


def collusion_of(of: Sample, settings: ExploreSettings) -> Collusion | None:
    """The collusion for these settings on this model; None without noise."""
    p = settings.parameters
    if not p.noise_coordinates:
        return None
    return Collusion(
        of.vocab_size, of.hidden_size, p.noise_coordinates, settings.colluders, settings.noise, p.noise_size
    )


@lru_cache(maxsize=16)
def guilty_of(of: Sample, coordinates: int, noise: float, level: float | str) -> tuple[float, ...]:
    """Mean z of the guilty at `SIMULATED_COLLUDERS`, by real noise on the sample's rows."""
    rows, tokens = of.rows[:_COLLUSION_ROWS], of.tokens[:_COLLUSION_ROWS]
    cases = (Collusion(of.vocab_size, of.hidden_size, coordinates, c, noise, level) for c in SIMULATED_COLLUDERS)
    return tuple(float(simulated(rows, tokens, case).mean()) for case in cases)
