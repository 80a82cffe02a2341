"""One attack on a release: its effect on the mark, and on the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import irwm
from irwm.attacks.attack import Attack, Attacked, Setup, Strength
from irwm.attacks.catalogue import ATTACKS
from irwm.attacks.trial import try_attack
from irwm.errors import CancelledError, ParameterError
from irwm.evidence.detection import WAYS, detect_ways
from irwm.inference import Reference, default_text, reference
from irwm.scheme.parameters import many_recipients


@pytest.fixture(scope="module")
def setup(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("trial")
    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, many_recipients(model.hidden_size), secret=bytes(range(32)), recipient="Ada")
    (folder / "scratch").mkdir()
    return Setup(demo_path, Path(irwm.insert(model, key, folder / "release").path), key, "", folder / "scratch")


@pytest.fixture(scope="module")
def measured(setup: Setup) -> Reference:
    return reference(setup.release, default_text(), tokens=512)


@pytest.mark.slow
def test_weak_attack_keeps_mark_trace_and_utility(setup: Setup, measured: Reference) -> None:
    trial = try_attack(setup, ATTACKS["prune"], 0.1, measured)
    assert trial.ran
    assert tuple(trial.findings) == WAYS
    assert trial.finding.verdict == "found"
    assert trial.findings["sum", "suspect"].reading.statistic == "sum"
    assert trial.traced is not None
    (trace,) = trial.traced.traces
    assert trace.named
    assert trace.z > 10
    assert trial.utility is not None
    assert abs(trial.utility.change) < 0.25
    assert trial.proof is None
    assert not any(setup.scratch.iterdir())


def test_trial_readings_equal_single_ones(setup: Setup) -> None:
    suspect, original = irwm.open_checkpoint(setup.release), irwm.open_checkpoint(setup.original)
    for (statistic, invariant), found in detect_ways(irwm.Examination(suspect, original), setup.key).items():
        alone = irwm.detect(suspect, original, setup.key, statistic=statistic, invariant=invariant)
        assert (found.ranks == alone.ranks).all()
        assert (found.verdict, found.log10_p) == (alone.verdict, alone.log10_p)


@pytest.mark.slow
def test_a_disguise_proves_that_the_model_computes_the_same(setup: Setup, measured: Reference) -> None:
    trial = try_attack(setup, ATTACKS["everything"], 1, measured)
    assert trial.finding.verdict == "found"
    assert trial.proof is not None
    assert trial.proof.same
    assert trial.proof.tolerance < 1e-2  # verified in float32, not in the file's bfloat16
    assert trial.utility is not None
    assert abs(trial.utility.change) < 1e-2


def test_an_attack_that_cannot_run_says_why(setup: Setup) -> None:
    trial = try_attack(setup, ATTACKS["shift-rows"], 1)
    assert (trial.ran, trial.reason) == (False, ATTACKS["shift-rows"].why_not(setup))


def broken(error: Exception) -> Attack:
    def fails(_setup: Setup, _value: float | str, out: Path) -> Attacked:
        out.mkdir()
        (out / "half").write_text("written")
        raise error

    return replace(ATTACKS["prune"], name="broken", strengths=(Strength(1, "once"),), carry_out=fails)


def test_a_failing_or_stopped_attack_leaves_nothing_but_a_reason(setup: Setup) -> None:
    trial = try_attack(setup, broken(ParameterError("the disk is of wood")), 1)
    assert not trial.ran
    assert "of wood" in trial.reason
    assert not any(setup.scratch.iterdir())
    with pytest.raises(CancelledError):
        try_attack(setup, broken(CancelledError("stopped")), 1)
    assert not any(setup.scratch.iterdir())


def test_findings_are_kept_if_utility_cannot_be_measured(
    setup: Setup, measured: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_arguments: object, **_more: object) -> None:
        raise ParameterError("a token has no row")

    monkeypatch.setattr("irwm.attacks.trial.compare", refuses)
    trial = try_attack(setup, ATTACKS["prune"], 0.1, measured)
    assert trial.finding.verdict == "found"
    assert trial.utility is None
    assert "no row" in trial.reason
