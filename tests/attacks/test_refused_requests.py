"""Every attack refuses invalid options, existing folders and other formats, and then writes nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from irwm.attacks import (
    adaptive,
    add_noise,
    autoround,
    collude,
    drop_layers,
    equivalence,
    exchange_tokenizer,
    factor_queries_and_keys,
    finetune,
    mark_again,
    merge,
    prune,
    prune_neurons,
    quantize,
    to_bitsandbytes,
    to_gguf,
)
from irwm.checkpoint.formats import read_budget
from irwm.errors import NotACheckpointError, OutputExistsError, ParameterError, UnsupportedCheckpointError
from tests.checkpoint.parsing import without_child

# Each attack with valid options; most of them have further options in INVALID.
ATTACKS: dict[str, tuple[Callable[..., Path], dict[str, Any]]] = {
    "prune": (prune, {"ratio": 0.1}),
    "prune_neurons": (prune_neurons, {"ratio": 0.1}),
    "quantize": (quantize, {"bits": 4}),
    "add_noise": (add_noise, {"share": 0.1}),
    "finetune": (finetune, {"text": "text", "steps": 1}),
    "drop_layers": (drop_layers, {"layers": []}),
    "collude": (lambda model, out, copies=2, **options: collude([model] * copies, out, **options), {}),
    "merge": (
        lambda model, out, models=2, based=False, **options: merge(
            [model] * models, out, base_dir=model if based else None, **options
        ),
        {},
    ),
    "mark_again": (mark_again, {}),
    "disguise": (equivalence.disguise, {"steps": ["rotate"]}),
    "write_state": (lambda model, out: equivalence.write_state(equivalence.read_state(model), out), {}),
    "exchange_tokenizer": (exchange_tokenizer, {"text": "text", "size": 0.5}),
    "factor_queries_and_keys": (factor_queries_and_keys, {"kept": 0.5}),
    "drop_components": (adaptive.drop_components, {"kept": 0.5}),
    "flatten_seldom": (adaptive.flatten_seldom, {"rows": 0.5}),
    "redraw_small": (adaptive.redraw_small, {"rows": 0.5}),
    "redraw_outliers": (adaptive.redraw_outliers, {"share": 0.5}),
    "store_otherwise": (adaptive.store_otherwise, {"power": 0.5}),
    "confuse": (adaptive.confuse, {"how": "nan-row"}),
    "to_gguf": (to_gguf, {"kind": "F16"}),
    "to_bitsandbytes": (to_bitsandbytes, {"kind": "nf4"}),
}
# The tool itself checks its folders; see test_autoround.py.
AUTOROUND = (autoround, {"layout": "gptq", "text": "text"})
WEIGHTS = ([1.0], [1.0, -1.0], [1.0, math.nan], [0.0, 0.0])
BASED = {"models": 1, "based": True}
INVALID: list[tuple[str, dict[str, Any]]] = [
    *((name, {"ratio": ratio}) for name in ("prune", "prune_neurons") for ratio in (-0.1, 1.0, math.nan)),
    *(("quantize", options) for options in ({"bits": 1}, {"bits": 9}, {"group_size": 0})),
    *(("add_noise", {"share": share}) for share in (-0.1, math.nan, math.inf)),
    *(("finetune", options) for options in ({"steps": 0}, {"learning_rate": math.nan}, {"what": "head"})),
    *(("drop_layers", {"layers": layers}) for layers in ([1], [-1], [0])),
    *(
        (name, {option: share})
        for name in ("drop_components", "flatten_seldom", "redraw_small", "redraw_outliers", "store_otherwise")
        for option in ATTACKS[name][1]
        for share in (0.0, -0.5, 1.5, math.nan)
    ),
    ("confuse", {"how": "nothing"}),
    *(("exchange_tokenizer", options) for options in ({"size": 0.0}, {"size": 1.1}, {"size": math.nan}, {"text": " "})),
    *(("factor_queries_and_keys", {"kept": kept}) for kept in (0.0, 1.0, math.nan)),
    *((name, {"weights": weights}) for name in ("collude", "merge") for weights in WEIGHTS),
    *(("collude", options) for options in ({"copies": 1}, {"how": "mode"}, {"how": "median", "weights": [1.0, 1.0]})),
    *(("merge", options) for options in ({"models": 1}, {"method": "blend"}, {"method": "slerp", "models": 3})),
    *(("merge", {"method": method}) for method in ("task arithmetic", "ties", "dare")),
    *(("merge", options) for options in ({"based": True}, {**BASED, "method": "ties", "density": 0.0})),
    *(
        ("disguise", {"steps": [step]})
        for step in (
            "melt",
            ("rotate", {"angle": 3}),
            ("map_qk", {"condition": 0.5}),
            ("rescale", {"factor": 0.0}),
            ("regain", {"spread": 0.5}),
            ("reorder_neurons", {"spread": 0.5}),
            ("add_neurons", {"share": 0.0}),
            ("widen", {"share": -1.0}),
            ("trim_tokens", {"fraction": 1.0}),
            ("trim_tokens", {"keep": [999]}),
            ("pad_tokens", {"count": -1}),
            ("pad_tokens", {"rows": "ones"}),
            ("reorder_tokens", {"tokenizer": "burn"}),
            ("rename_tensors", {"scheme": "none"}),
            ("cast", {"dtype": "int8"}),
        )
    ),
    *((name, {"kind": "Q3_Z"}) for name in ("to_gguf", "to_bitsandbytes")),
    *(("autoround", options) for options in ({"layout": "marlin"}, {"samples": 0}, {"iterations": -1})),
]


@pytest.mark.parametrize(("name", "options"), INVALID, ids=str)
def test_invalid_options_are_refused(tiny_path: Path, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    attack, valid = AUTOROUND if name == "autoround" else ATTACKS[name]
    with pytest.raises(ParameterError):
        attack(tiny_path, tmp_path / "out", **(valid | options))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ATTACKS)
def test_an_existing_folder_is_left_alone(tiny_path: Path, tmp_path: Path, name: str) -> None:
    attack, options = ATTACKS[name]
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        attack(tiny_path, tmp_path, **options)
    assert [file.name for file in tmp_path.iterdir()] == ["kept.txt"]


@pytest.mark.parametrize("name", ATTACKS)
def test_pytorch_files_and_missing_folders_are_refused(
    tiny_path: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_budget, "run_parser", without_child)
    attack, options = ATTACKS[name]
    archive = tmp_path / "archive"
    archive.mkdir()
    torch.save(load_file(tiny_path / "model.safetensors"), archive / "pytorch_model.bin")
    shutil.copy(tiny_path / "config.json", archive)
    with pytest.raises(UnsupportedCheckpointError):
        attack(archive, tmp_path / "out", **options)
    with pytest.raises(NotACheckpointError):
        attack(tmp_path / "missing", tmp_path / "out", **options)
    assert [file.name for file in tmp_path.iterdir()] == ["archive"]
