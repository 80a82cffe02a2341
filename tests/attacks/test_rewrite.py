"""The files next to the weights that an attack writes."""

from __future__ import annotations

import json
from pathlib import Path

from irwm.attacks.rewrite import copy_companions
from irwm.checkpoint import open_checkpoint
from tools.small_models import write_llama

INDEX = "model.safetensors.index.json"


def saved_by_a_library(folder: Path, *, shards: bool) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"new": true}')
    if shards:
        (folder / INDEX).write_text('{"weight_map": {"of": "the new shards"}}')
    return folder


def test_companions_do_not_replace_config_and_shard_index(tmp_path: Path) -> None:
    model = open_checkpoint(write_llama(tmp_path / "model"))
    (model.path / "tokenizer.json").write_text("{}")
    (model.path / INDEX).write_text('{"weight_map": {"of": "the old shards"}}')
    one = saved_by_a_library(tmp_path / "one", shards=False)
    several = saved_by_a_library(tmp_path / "several", shards=True)
    for out in (one, several):
        copy_companions(model, out, described=True)
        assert json.loads((out / "config.json").read_text()) == {"new": True}
        assert (out / "tokenizer.json").exists()
    assert not (one / INDEX).exists()
    assert "new" in (several / INDEX).read_text()
    copy_companions(model, one)
    assert "old" in (one / INDEX).read_text()
