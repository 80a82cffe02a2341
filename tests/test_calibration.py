"""Searches for our own false positives: hundreds of wrong keys on unmarked, trained models, in four studies.

Every key is wrong by construction, so every "found" would be a false accusation. Ranks must be uniform for the
verdict's statistic and for the paper's. `make every` uses more keys, and `python -m benchmarks.calibration` repeats the
first study with the default number of permutations.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file
from scipy.stats import binom, chi2, kstest

import irwm
from benchmarks.disguises import RENAMED, TRIMMED, everything, models
from irwm.attacks.equivalence import apply, read_state, write_state
from irwm.evidence.finding import Reading
from irwm.scheme.keystream import derive
from irwm.scheme.parameters import EMBEDDING, HEAD, chance_of_counting

# Reads hundreds of keys, once for each study and model.
pytestmark = pytest.mark.slow

KEYS, EVERY = 400, 1000  # of the first study
PERMUTATIONS = 199  # exact at any number
PARAMETERS = irwm.Parameters(permutations=PERMUTATIONS)


def as_state_space_model(path: Path, folder: Path) -> Path:
    """A trained embedding under the names of a family without attention; only the embedding is read."""
    model = irwm.open_checkpoint(path)
    folder.mkdir()
    tensors = {"backbone.embeddings.weight": model.embedding()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "mamba", "vocab_size": model.vocab_size, "hidden_size": model.hidden_size}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def disguised(path: Path, folder: Path) -> Path:
    return write_state(apply(read_state(path), [TRIMMED, *everything(path), RENAMED], seed=5), folder)


@dataclass(frozen=True)
class Study:
    """Wrong keys on one kind of suspect.

    Attributes:
        secrets: the name that the secrets are derived from.
        first, keys: the range of their numbers.
        batch: keys per seed. They are ranked against the same permutations, so their ranks share that set's chance
            error, but a Kolmogorov-Smirnov test assumes independent ranks: with 50 keys per seed it alarms too easily
            on 100 keys.
        seed: added to a batch's start.
        original, suspect: make a folder from a trained model; the model itself where None.
    """

    secrets: bytes
    first: int = 0
    keys: int = 100
    batch: int = 100
    seed: int = 0
    parameters: irwm.Parameters = PARAMETERS
    original: Callable[[Path, Path], Path] | None = None
    suspect: Callable[[Path, Path], Path] | None = None


# The first hundred secrets of the variants gave p = 6e-4 on the demo among noise. This was chance: all seven hundred
# gave .67 (`python -m benchmarks.calibration --noise 10 --secrets variants --keys 700 --models demo`).
VARIANT = {"secrets": b"variants", "first": 100, "batch": 10, "seed": 1}
AMONG_NOISE = replace(PARAMETERS, scale="auto", noise_coordinates=10)
STUDIES = {
    "unmarked": Study(b"calibration", keys=KEYS),
    # A of cosines between rows uses the very rows in which the mark is searched for, so similarity between them could
    # do harm that A of attention would not show.
    "embedding only": Study(**VARIANT, original=as_state_space_model),
    "among noise": Study(**VARIANT, parameters=AMONG_NOISE),
    # If alignment pulled rows towards what a key expects, or the null used other coordinates than the key, it would
    # show here.
    "disguised": Study(b"disguised calibration", suspect=disguised),
}


@dataclass(frozen=True)
class Findings:
    study: str
    all: list[irwm.Finding]

    def readings(self) -> dict[str, list[Reading]]:
        """Of unmarked models the verdict's statistic in the embedding and in the output head, and the paper's."""
        if self.study != "unmarked":
            return {"verdict": [each.reading for each in self.all]}
        found = {"paper": [each.paper for each in self.all], EMBEDDING: [at(each, EMBEDDING) for each in self.all]}
        return found if self.all[0].places == 1 else found | {HEAD: [at(each, HEAD) for each in self.all]}


def at(finding: irwm.Finding, place: str) -> Reading:
    reading = finding.reading if finding.place == place else finding.elsewhere
    assert reading is not None
    return reading


CASES = [(name, model) for name in STUDIES for model in ("demo", "gemma" if name == "disguised" else "MiniLM")]
UNMARKED = CASES[:2]


@pytest.fixture(scope="module", params=CASES, ids=" on ".join)
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, in_full: bool) -> Findings:
    name, model_name = request.param
    study, root = STUDIES[name], tmp_path_factory.mktemp("calibration")
    path = models()[model_name]
    model = irwm.open_checkpoint(study.original(path, root / "original") if study.original else path)
    assert (model.layout.scores == "embedding") == (name == "embedding only")
    suspect = irwm.open_checkpoint(study.suspect(path, root / "suspect")) if study.suspect else model
    examination, found = irwm.Examination(suspect, model), list[irwm.Finding]()
    for start in range(0, EVERY if in_full and name == "unmarked" else study.keys, study.batch):
        numbers = range(study.first + start, study.first + start + study.batch)
        secrets = (derive(study.secrets, b"", number.to_bytes(4, "big")) for number in numbers)
        keys = [irwm.generate_key(model, study.parameters, secret=secret) for secret in secrets]
        found += irwm.detect_each(examination, keys, seed=start + study.seed, keys_tried=1)
    return Findings(name, found)


def test_no_key_is_found(findings: Findings) -> None:
    assert len(findings.all) >= STUDIES[findings.study].keys
    assert {each.lineage.status for each in findings.all} == {"derived"}
    assert not [each for each in findings.all if each.verdict == "found" or each.passes or each.reading.passes]
    assert not [each for each in findings.readings().get("paper", []) if each.passes]
    # The grey zone starts at one in a thousand; more of these would be too unlikely.
    assert sum(f.verdict != "not found" for f in findings.all) <= binom.ppf(0.9995, len(findings.all), 1e-3)


def test_ranks_are_uniform(findings: Findings) -> None:
    params = findings.all[0].parameters
    for name, readings in findings.readings().items():
        ranks = np.concatenate([each.ranks for each in readings])
        complete, ranks = ranks.size, ranks[np.isfinite(ranks)]
        assert complete == len(readings) * params.positions
        assert ranks.size > 0.5 * complete if findings.study == "disguised" else ranks.size == complete
        jitter = np.random.default_rng(0).uniform(
            0, 1 / (1 + PERMUTATIONS), ranks.size
        )  # undoes the grid of 1 / (N + 1)
        assert kstest(ranks - jitter, "uniform").pvalue > 1e-3, name
        low, high = binom.interval(0.999, ranks.size, chance_of_counting(params))
        assert low <= (ranks < params.rank_threshold).sum() <= high, name


@pytest.mark.parametrize("findings", UNMARKED, indirect=True)
def test_counts_follow_the_binomial_law(findings: Findings) -> None:
    """Positions must be independent too: dependent ones would keep the mean count and widen its spread."""
    p = chance_of_counting(findings.all[0].parameters)
    for name, readings in findings.readings().items():
        counts = np.array([each.count for each in readings])
        dispersion = (counts.size - 1) * counts.var(ddof=1) / (50 * p * (1 - p))
        low, high = chi2.interval(0.999, counts.size - 1)
        assert low <= dispersion <= high, name


@pytest.mark.parametrize("findings", UNMARKED, indirect=True)
def test_p_values_are_conservative(findings: Findings) -> None:
    """Those of each statistic, and the risk corrected for both places."""
    n = len(findings.all)
    values = {name: [each.log10_p for each in readings] for name, readings in findings.readings().items()}
    for name, logs in (values | {"risk": [each.log10_risk for each in findings.all]}).items():
        p = 10.0 ** np.array(logs)
        assert name == "risk" or kstest(p, "uniform", alternative="greater").pvalue > 1e-3, name
        for alpha in (0.1, 0.01, 0.001):
            assert (p <= alpha).sum() <= binom.ppf(0.9995, n, alpha), name


@pytest.mark.parametrize("findings", UNMARKED[:1], indirect=True)
def test_shown_place_is_not_chosen_by_its_result(findings: Findings) -> None:
    """Of two places that read the same, the embedding is shown, even if the other reads lower."""
    lower = [each.elsewhere.log10_p < each.reading.log10_p for each in findings.all if each.elsewhere is not None]
    assert binom.ppf(0.0005, len(lower), 0.5) <= sum(lower) <= binom.ppf(0.9995, len(lower), 0.5)
