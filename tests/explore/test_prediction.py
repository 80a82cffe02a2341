"""Theory compared with trials on the demo model's own rows, and with exact values if there are any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm

import irwm
from irwm.errors import ConditionError, ParameterError
from irwm.explore.capacity import Collusion, most_colluders, naming_z, simulated
from irwm.explore.prediction import Rehearsal, Sample, counting_share, sample, tries
from irwm.scheme.condition import permute_rows
from irwm.scheme.probabilities import rademacher_tail_log10

NOISE = (0.1, 0.3, 0.5, 1.0, 2.0)
# Three standard errors of a share of 200 rows, .035 at most, and the deviation of near-normal rows from the law.
BOUND = 0.12


@pytest.fixture(scope="module")
def rows_of_demo(demo_path: Path) -> Sample:
    return sample(irwm.open_checkpoint(demo_path), 20)


@pytest.mark.parametrize("k", NOISE)
def test_counting_share_has_the_law_of_normal_variables(k: float) -> None:
    """The paper's sum is one normal variable, the joint statistic t of them."""
    one = 2 * norm.cdf(norm.ppf(0.6) * math.sqrt(1 + 1 / k**2)) - 1  # |Z| is below the quantile with odds .2
    for t in (1, 5, 20):
        want = chi2.cdf(chi2.ppf(0.2, t) * (1 + 1 / k**2), t)
        assert float(counting_share(k, t, 0.2, "joint")) == pytest.approx(want, rel=1e-12)
        assert float(counting_share(k, t, 0.2, "sum")) == pytest.approx(one, rel=1e-12)


def test_counting_share_falls_to_chance_and_joint_falls_later() -> None:
    k = np.linspace(0, 3, 40)
    joint, paper = counting_share(k, 10, 0.2, "joint"), counting_share(k, 10, 0.2, "sum")
    assert joint[0] == paper[0] == 1.0
    assert (np.diff(joint) <= 0).all()
    assert (joint >= paper).all()
    assert float(counting_share(1e6, 10, 0.2, "joint")) == pytest.approx(0.2, abs=1e-9)


@pytest.mark.parametrize(("t", "scale"), [(5, None), (10, None), (10, 1000.0), (20, 1000.0)])
def test_theory_and_trials_on_real_rows_agree(rows_of_demo: Sample, t: int, scale: float | None) -> None:
    found = Rehearsal(rows_of_demo, t, 30.0, scale).shares(NOISE, 0.2)
    for statistic, shares in found.items():
        assert shares == pytest.approx(counting_share(NOISE, t, 0.2, statistic), abs=BOUND)


def test_rehearsed_mark_equals_the_inserted_one(rows_of_demo: Sample) -> None:
    mark = Rehearsal(rows_of_demo, 10, 30.0)
    shares = mark.shares((0.0,), 0.2)
    assert shares["joint"][0] == shares["sum"][0] == 1.0
    assert np.sqrt(np.mean(mark.sizes**2)) == pytest.approx(1.0, abs=0.1)
    assert mark.relative_size == pytest.approx(1.0)
    assert Rehearsal(rows_of_demo, 10, 30.0, 1000.0).relative_size == pytest.approx(mark.natural_scale / 1000)
    assert np.linalg.cond(mark.permuted[:, -10:]) < 30.0


def test_condition_limit_decides_attempt_and_entry_size(rows_of_demo: Sample) -> None:
    found, sizes = tries(rows_of_demo, 10, 60, 40)
    assert found.shape == (60,)
    assert sizes.shape == (40,)
    first = rows_of_demo.constraint_orders(int(np.argmax(found < 20.0)), 10)
    assert np.array_equal(
        Rehearsal(rows_of_demo, 10, 20.0).permuted, permute_rows(rows_of_demo.invariant_of(10), first)
    )
    assert np.corrcoef(np.log(found[:40]), np.log(sizes))[0, 1] > 0.8
    with pytest.raises(ConditionError):
        _ = Rehearsal(rows_of_demo, 10, 1.01).permuted


def test_noise_in_as_many_coordinates_as_constraints_hides_marked_rows(rows_of_demo: Sample) -> None:
    mark = Rehearsal(rows_of_demo, 10, 30.0)
    assert mark.seen(0, "row") == 1.0
    assert mark.seen(10, "row") == pytest.approx(0.5, abs=0.07)
    assert mark.seen(2, "row") > 0.75


def test_a_sample_reads_little_and_the_same_each_time(demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, whole, read = irwm.open_checkpoint(demo_path), irwm.Checkpoint.embedding, list[int]()

    def counted(self: irwm.Checkpoint, rows: np.ndarray, device: str = "cpu") -> torch.Tensor:
        read.append(len(rows))
        return whole(self, rows, device)

    monkeypatch.setattr(irwm.Checkpoint, "embedding", counted)
    one = sample(model, 5, rows=64)
    assert sum(read) < 1200 < model.vocab_size
    again = sample(model, 5, rows=64)
    assert one.rows.shape == (64, 256)
    assert np.array_equal(one.rows, again.rows)
    assert np.array_equal(one.a_m, again.a_m)
    assert np.array_equal(one.rows, model.embedding(one.tokens).double().numpy())


@pytest.mark.parametrize("level", ["row", "global", 0.25])
@pytest.mark.parametrize(("m", "k", "c"), [(8, 0.0, 2), (8, 0.3, 8), (10, 0.3, 16), (20, 0.0, 16), (4, 0.6, 4)])
def test_predicted_z_of_colluders_equals_real_noise(
    rows_of_demo: Sample, level: float | str, m: int, k: float, c: int
) -> None:
    case = Collusion(len(rows_of_demo.rows), 256, m, c, k, level)
    found = simulated(rows_of_demo.rows, rows_of_demo.tokens, case)
    # A tenth for effects that the theory ignores, and twice the deviation of a mean of c numbers of deviation 1.
    assert found.mean() == pytest.approx(case.expected_z, abs=0.1 * case.expected_z + 2 / math.sqrt(c))


@pytest.mark.parametrize(("c", "k", "measured"), [(16, 0.0, 104.6), (16, 0.3, 58.8), (64, 0.3, 14.8)])
def test_predicted_weakest_z_is_near_measured_traces(c: int, k: float, measured: float) -> None:
    """Whole traces of 16 000 rows of 512, with noise that replaces ten coordinates, measured in November 2026."""
    assert Collusion(16_000, 512, 10, c, k).weakest_z == pytest.approx(measured, rel=0.1)


def test_capacity_is_largest_number_of_named_colluders() -> None:
    case, z = Collusion(128_256, 4096, 10, 1, 0.3), naming_z(1e-6, 100_000)
    assert rademacher_tail_log10(z) == pytest.approx(-11, abs=1e-6)
    most = most_colluders(case, z)
    weakest = [Collusion(128_256, 4096, 10, c, 0.3).weakest_z for c in (most, most + 1)]
    assert weakest[0] >= z > weakest[1]
    assert most_colluders(Collusion(4, 256, 1, 1, 3.0), z) == 0


@pytest.mark.parametrize(
    ("request_of", "values"),
    [
        *((Collusion, values) for values in ((10, 256, 0), (10, 256, 257), (0, 256, 8), (10, 256, 8, 0))),
        *((Collusion, values) for values in ((10, 256, 8, 1, -0.1), (10, 256, 8, 1, 0.0, "loud"))),
        *((naming_z, values) for values in ((0.0, 1), (1.0, 1), (1e-6, 0))),
        *((counting_share, (k, 10, 0.2, "sum")) for k in (-1.0, math.nan)),
        *(
            (counting_share, (1.0, *values))
            for values in ((10, 1.0, "sum"), (0, 0.2, "joint"), (10, 0.2, "difference"))
        ),
    ],
)
def test_request_outside_its_range_is_refused(request_of: Callable, values: tuple) -> None:
    with pytest.raises(ParameterError):
        request_of(*values)


def test_too_many_constraints_are_refused(demo_path: Path, rows_of_demo: Sample) -> None:
    for refused in (lambda: rows_of_demo.invariant_of(21), lambda: sample(irwm.open_checkpoint(demo_path), 256)):
        with pytest.raises(ParameterError):
            refused()


def test_more_colluders_or_noise_lower_z() -> None:
    for m, k in ((2, 0.0), (10, 0.3), (256, 1.0)):
        z = [Collusion(4096, 256, m, c, k).weakest_z for c in range(1, 400)]
        assert all(a > b for a, b in itertools.pairwise(z))
    assert Collusion(4096, 256, 8, 4, 0.6).expected_z < Collusion(4096, 256, 8, 4, 0.3).expected_z
