"""The utility certificate: figures if the model runs, a reason if it does not; code in a model's folder never runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from irwm.errors import CancelledError, IrwmError
from irwm.inference import certify, default_text, open_model
from irwm.inference.__main__ import main
from irwm.inference.same_function import _rounding_error
from tests.attacks.models import edited
from tests.conftest import Marked


def test_a_release_is_certified_against_its_original(release_of: Callable[[str], Marked]) -> None:
    original, _, release = release_of("demo")
    steps: list[tuple[int, int]] = []
    found = certify(original.path, release, 50, tokens=300, progress=lambda done, total, _: steps.append((done, total)))
    assert found.why == ""
    assert found.text_sha256 == hashlib.sha256(default_text().encode()).hexdigest()
    assert found.utility.tokens == 299
    assert abs(found.utility.change) < 0.01
    # Both runs check whether to continue.
    assert [step for step in steps if step == (2, 2)] == [(2, 2)] * 2
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["changed_rows"] == 50
    assert document["utility"]["kl"] == found.utility.kl


def test_custom_text_is_named(demo_path: Path) -> None:
    text = "The tutorial shows how to define a class and how to use it. " * 5
    found = certify(demo_path, demo_path, 0, text, "contract.txt")
    assert found.text == "contract.txt"
    assert found.utility.change == 0


def test_a_model_that_cannot_be_run_says_why(tiny_path: Path, demo_path: Path) -> None:
    for found in (certify(tiny_path, tiny_path, 50), certify(demo_path, demo_path, 0, "")):
        assert found.utility is None
        assert found.why


def test_certificate_can_be_stopped(demo_path: Path) -> None:
    said: list[str] = []

    def stop(_done: int, _total: int, what: str) -> None:
        said.append(what)
        raise CancelledError("stopped on request")

    with pytest.raises(CancelledError):
        certify(demo_path, demo_path, 0, tokens=10, progress=stop)
    assert said == ["Running the original"]


@pytest.mark.slow
def test_the_command_compares_two_models(demo_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(default_text()[:2000], encoding="utf-8")
    command = ["compare", str(demo_path), str(demo_path), "--text", str(text), "--tokens", "60", "--same-function"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["change"]) == (59, 0.0)
    assert found["same_function"]["same"] is True
    assert main(["compare", str(demo_path), str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err


def test_code_in_a_models_folder_is_never_run(demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default transformers would ask on standard input, and a "y" would run the code."""
    flag, asked = tmp_path / "ran", []
    monkeypatch.setattr("builtins.input", lambda *words: asked.append(words) or "y")
    classes = {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": "evil.Evil"}
    path = edited(demo_path, tmp_path / "x", model_type="evil", auto_map=classes)
    (path / "evil.py").write_text(f"open({str(flag)!r}, 'w').close()\n")
    with pytest.raises(IrwmError):
        open_model(path)
    assert not flag.exists()
    assert not asked


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": "none", "merges": []}}),
        ("tokenizer.json", {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "gone"}}),
        ("config.json", {"num_attention_heads": 0}),
    ],
)
def test_a_certificate_says_why_it_holds_no_figures(demo_path: Path, tmp_path: Path, file: str, changes: dict) -> None:
    path = edited(demo_path, tmp_path / "x")
    content = json.loads((path / file).read_text()) | changes
    (path / file).write_text(json.dumps(content))
    found = certify(path, path, 50)
    assert found.utility is None
    assert found.why


def test_rounding_keeps_zeros() -> None:
    """Zero is exact in every dtype. Moved like a number of size one, it would excuse changes beyond rounding."""
    value = torch.tensor([0.0, 0.02, 1.0])
    error = _rounding_error(value, torch.bfloat16, torch.Generator().manual_seed(0))
    assert error[0] == 0
    assert (error[1:] != 0).all()
    assert (error.abs() <= value * torch.finfo(torch.bfloat16).eps / 2).all()
