"""An adapter as suspect: read on top of the original, hashed by its own files, and reproducible from the report."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import irwm
from irwm.checkpoint.weight_sets import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from irwm.report import from_json, reproduce
from irwm.report.items import SETTINGS
from storage import Jobs, Vault
from tests.jobs.recipients import put_in_vault, request, run_job, succeeded


def saved_adapter(model: Path, folder: Path, **settings: Any) -> Path:
    """The folder of a LoRA adapter of a model."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        adapter = get_peft_model(AutoModelForCausalLM.from_pretrained(model), LoraConfig(r=4, **settings))
        adapter.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def leaked(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[irwm.Key, Path]:
    """A key, and an adapter that was trained on its release and saves the whole embedding."""
    root = tmp_path_factory.mktemp("leaked")
    original = irwm.open_checkpoint(tiny_path)
    key = irwm.generate_key(original, secret=bytes(32), owner="Example Labs", recipient="Early access 7")
    release = irwm.insert(original, key, root / "release")
    return key, saved_adapter(release.path, root / "adapter", target_modules=["q_proj", "k_proj", "embed_tokens"])


@pytest.mark.slow
def test_an_adapter_is_investigated_on_top_of_the_original(
    leaked: tuple[irwm.Key, Path], vault: Vault, jobs: Jobs, tiny_path: Path
) -> None:
    key, folder = leaked
    asked = request(tiny_path, put_in_vault(vault, [key]), suspect=str(folder))
    job = succeeded(run_job("investigate", asked, vault, jobs))
    assert [row["verdict"] for row in job.result["rows"]] == ["found"]

    document = from_json(jobs.files(job.id).read(job.result["json"]))
    suspect, original = document["items"]["suspect"], document["items"]["original"]
    assert suspect["name"] == "adapter"
    assert {file["name"]: (file["bytes"], file["sha256"]) for file in suspect["files"]} == {
        name: ((folder / name).stat().st_size, hashlib.sha256((folder / name).read_bytes()).hexdigest())
        for name in (ADAPTER_WEIGHTS[0], ADAPTER_CONFIG)
    }
    assert suspect["bytes_total"] == sum(file["bytes"] for file in suspect["files"])
    settings = [name for name in SETTINGS if (tiny_path / name).is_file()]
    assert [file["name"] for file in original["files"]] == ["model.safetensors", *settings]
    assert any("applied in memory" in note for note in suspect["notes"])

    lines = document["reproduce"]["python"]
    opening = [line for line in lines if "open_checkpoint" in line]
    assert [line.partition(" = ")[0] for line in opening] == ["model", "suspect"]
    assert "base=model" in opening[1]
    assert "base=" not in opening[0]
    base = irwm.open_checkpoint(tiny_path)
    assert reproduce(document, irwm.open_checkpoint(folder, base=base), base, key) == []


def test_complete_suspect_is_reproduced_without_a_base(tiny_path: Path) -> None:
    from irwm.report.items import ItemDescription

    item = ItemDescription.of(irwm.open_checkpoint(tiny_path))
    assert not item.is_adapter
    names = ["model.safetensors", "config.json"]
    assert [(file.name, file.bytes) for file in item.files] == [
        (name, (tiny_path / name).stat().st_size) for name in names
    ]


def test_adapter_without_embedding_changes_proves_neither_mark_nor_lineage(tiny_path: Path, tmp_path: Path) -> None:
    """The comparison would use the original's own embedding, which the investigator put under another adapter."""
    original = irwm.open_checkpoint(tiny_path)
    modules = ["q_proj", "k_proj"]
    unrelated = saved_adapter(tiny_path, tmp_path / "adapter", target_modules=modules, init_lora_weights=False)
    suspect = irwm.open_checkpoint(unrelated, base=original)
    finding = irwm.detect(suspect, original, irwm.generate_key(original, secret=bytes(32)))
    assert finding.verdict == "inconclusive"
    assert "an adapter without its own embedding" in finding.reason
    assert finding.lineage.status == "cannot tell"
    assert not finding.judgeable
