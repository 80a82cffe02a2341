"""Malicious or broken model folders: code in them never runs, and each gives a typed error or a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from irwm.errors import IrwmError
from irwm.running import certify, open_model
from irwm.running.function import _rounding_error
from tests.attacks.models import edited


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
