"""The statistics on plain arrays: they are small at the mark, and uniform elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from irwm.errors import ConditionError
from irwm.scheme import statistic as stat
from irwm.scheme.condition import permute_rows, well_conditioned
from irwm.scheme.constraint_solution import marked_values, natural_scale, solved_entries
from irwm.scheme.keystream import derive
from irwm.scheme.permutations import NullOrders, permutations
from irwm.scheme.probabilities import LN10, binomial_tail_log

L, T, D, N = 50, 10, 128, 400


def draws(name: str, count: int) -> np.ndarray:
    return permutations(derive(bytes(32), b"test", name.encode()), count, D)


@pytest.fixture(scope="module")
def mark() -> dict:
    rng = np.random.default_rng(1)
    a_m = rng.standard_normal((T, D))
    a_m = (a_m - a_m.mean(1, keepdims=True)) / a_m.std(1, keepdims=True)
    attempt, permuted = well_conditioned(a_m, lambda i: draws(f"A{i}", T), 30.0)
    assert np.allclose(permuted, permute_rows(a_m, draws(f"A{attempt}", T)))
    return {"permuted": permuted, "rows": 0.02 * rng.standard_normal((L, D)), "perm": draws("w", L)}


def rank(weights: np.ndarray, rows: np.ndarray, perm: np.ndarray, count: int = N) -> np.ndarray:
    shuffled = stat.normalised(np.take_along_axis(rows, perm, axis=1))
    null = stat.null_lengths(weights, shuffled, NullOrders.of(0, count, *rows.shape))
    return stat.ranks(stat.lengths(weights, shuffled), null)


def test_the_solved_entries_satisfy_the_constraints(mark: dict) -> None:
    x = solved_entries(mark["rows"], mark["permuted"], mark["perm"])
    e = np.take_along_axis(mark["rows"], mark["perm"], axis=1)
    e[:, -T:] = x
    assert np.abs(mark["permuted"] @ e.T).max() < 1e-10


def test_the_natural_scale_hides_the_t_entries_that_change(mark: dict) -> None:
    scale = natural_scale(mark["rows"], mark["permuted"], mark["perm"])
    marked = marked_values(mark["rows"], mark["permuted"], mark["perm"], scale)
    for row, perm in zip(marked != mark["rows"], mark["perm"], strict=True):
        assert set(np.flatnonzero(row)) == set(perm[-T:])
    stored = np.take_along_axis(marked, mark["perm"], axis=1)[:, -T:]
    assert np.sqrt((stored**2).mean()) == pytest.approx(np.sqrt((mark["rows"] ** 2).mean()), rel=1e-9)


@pytest.mark.parametrize("scale", [1.0, 50.0, 1000.0])
@pytest.mark.parametrize("make", [stat.joint_map, stat.sum_map])
def test_a_marked_row_ranks_lowest(mark: dict, make, scale: float) -> None:
    marked = marked_values(mark["rows"], mark["permuted"], mark["perm"], scale)
    ranks = rank(make(mark["permuted"], scale), marked, mark["perm"])
    assert (ranks == 1 / (1 + N)).all()


@pytest.mark.parametrize("make", [stat.joint_map, stat.sum_map])
def test_an_unmarked_row_ranks_uniformly(mark: dict, make) -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_t(4, (2000, D))  # heavy tails: the null must not assume a Gaussian
    ranks = rank(make(mark["permuted"], 1000.0), rows, draws("many", 2000), 999)
    assert kstest(ranks, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("shared", [True, False])
def test_forger_cannot_fit_parameters_to_the_public_orders(shared: bool) -> None:
    """One constraint at a huge scale: a single place decides the statistic. The forger uses the number of orders for
    which that place keeps its own entry least often, and counts only the smallest rank."""
    rows = np.random.default_rng(7).standard_normal((20_000, D))  # in the key's order, which is as good as any
    orders = NullOrders.of(0, 399, len(rows), D)
    if shared:  # as it used to be: all positions in one order
        orders = NullOrders(orders.shared, np.tile(np.arange(D), (len(rows), 1)))
    place = int((orders.shared == np.arange(D)).sum(axis=0).argmin())
    weights = np.eye(1, D, place)
    ranks = stat.ranks(stat.lengths(weights, rows), stat.null_lengths(weights, rows, orders))
    count, chance = int((ranks < 2 / 400).sum()), 1 / 400
    log10_p = binomial_tail_log(count, len(rows), chance) / LN10
    assert log10_p < -12 if shared else log10_p > -4


def test_the_null_is_the_statistic_of_the_permuted_row(mark: dict) -> None:
    """The gathered product must equal the steps of Algorithm 3: permute, rescale, multiply, measure."""
    weights = stat.joint_map(mark["permuted"], 7.0)
    orders = NullOrders.of(3, 5, L, D)
    null = stat.null_lengths(weights, mark["rows"], orders)
    for i in (0, 7):
        for j in range(5):
            assert null[i, j] == pytest.approx(
                np.linalg.norm(weights @ mark["rows"][i][orders.own[i]][orders.shared[j]]), rel=1e-12
            )


@pytest.mark.parametrize("make", [stat.joint_map, stat.sum_map])
def test_single_precision_never_makes_a_rank_smaller(mark: dict, make) -> None:
    weights, rng = make(mark["permuted"], 1000.0), np.random.default_rng(8)
    rows = stat.normalised(rng.standard_t(4, (400, D)))
    orders = NullOrders.of(2, 199, len(rows), D)
    (exact,), (single,) = (stat.null_lengths_of((weights,), rows, orders, single=each) for each in (False, True))
    assert (single <= exact).all()
    np.testing.assert_allclose(single, exact, rtol=0, atol=2e-5 * np.median(exact))
    observed = stat.lengths(weights, rows)
    assert (stat.ranks(observed, single) >= stat.ranks(observed, exact)).all()


def test_joint_whitens_the_permutation_covariance(mark: dict) -> None:
    weights = stat.joint_map(mark["permuted"], 1000.0)
    e = stat.normalised(mark["rows"][:1] - mark["rows"][:1].mean())
    orders = NullOrders.of(11, 20_000, 0, D)
    outputs = np.concatenate([m[0].numpy() for m in stat.null_maps(weights, e, orders)])
    assert np.allclose(np.cov(outputs.T), np.eye(T), atol=0.08)


def test_missing_constant_and_infinite_rows_have_no_rank(mark: dict) -> None:
    rows = mark["rows"].copy()
    rows[0], rows[1, 3], rows[2, 4], rows[3] = np.nan, np.inf, np.nan, 0.25
    ranks = rank(stat.joint_map(mark["permuted"], 1000.0), rows, mark["perm"])
    assert np.isnan(ranks[:4]).all()
    assert np.isfinite(ranks[4:]).all()


def test_ranks_are_never_zero_and_ties_count_against_the_mark() -> None:
    null = np.array([[0.0, 0.0, 1.0]])
    assert stat.ranks(np.array([-1.0]), null)[0] == 0.25
    assert stat.ranks(np.array([0.0]), null)[0] == 0.75
    assert stat.ranks(np.array([2.0]), np.empty((1, 0)))[0] == 1.0


def test_unreachable_condition_limit_gives_advice(mark: dict) -> None:
    with pytest.raises(ConditionError):
        well_conditioned(np.ones((T, D)), lambda i: draws(f"A{i}", T), 30.0)


def difference_ranks(mark: dict, suspect: np.ndarray, perm: np.ndarray, scale: float = 1000.0) -> np.ndarray:
    orders = NullOrders.of(2, 999, L, D)
    observed, null = stat.difference(suspect, mark["rows"], mark["permuted"], perm, scale, orders)
    return stat.ranks(observed, null)


def test_difference_finds_the_mark_under_heavy_noise(mark: dict) -> None:
    rng = np.random.default_rng(2)
    marked = marked_values(mark["rows"], mark["permuted"], mark["perm"], 1000.0)
    ranks = difference_ranks(mark, marked + 0.02 * rng.standard_normal(marked.shape), mark["perm"])
    assert (ranks < 0.2).mean() > 0.8


@pytest.mark.parametrize("change", ["pruned", "shrunk", "noise"])
def test_difference_is_uniform_on_changed_but_unmarked_rows(mark: dict, change: str) -> None:
    """The values that a key writes depend on the row it overwrites; a null without this accuses pruned models."""
    rows = mark["rows"]
    rng = np.random.default_rng(3)
    suspect = {
        "pruned": np.where(np.abs(rows) < 0.015, 0.0, rows),
        "shrunk": 0.9 * rows,
        "noise": rows + 0.01 * rng.standard_normal(rows.shape),
    }[change]
    ranks = np.concatenate([difference_ranks(mark, suspect, draws(f"wrong{i}", L)) for i in range(12)])
    assert kstest(ranks, "uniform").pvalue > 1e-3


def test_difference_is_undefined_for_unchanged_rows(mark: dict) -> None:
    assert np.isnan(difference_ranks(mark, mark["rows"], mark["perm"])).all()
