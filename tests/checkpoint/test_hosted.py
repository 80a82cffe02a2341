"""Lists of models: of an organisation or a search on the hub, of a bucket, and of one model."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

import irwm
from irwm.checkpoint.remote import store
from irwm.checkpoint.remote.address import parse
from irwm.checkpoint.remote.hosted import check_source, hosted
from irwm.errors import ParameterError, RemoteError
from tools.hub import ADDRESS, Hub, put


@pytest.mark.parametrize(
    "source",
    ["hf://acme", "hf://?search=llama 8b", "hf://?filter=base_model:a/b&author=acme", ADDRESS, "s3://b/models"],
)
def test_sources(source: str) -> None:
    check_source(source)


@pytest.mark.parametrize(
    "source", ["hf://", "hf://?", "hf://?sort=x", "hf://?search=", "hf://?search=a%0Ab", "https://host", "hf://a b"]
)
def test_incomplete_sources_are_refused(source: str) -> None:
    with pytest.raises(ParameterError):
        check_source(source)


def with_models(hub: Hub, demo_path: Path, count: int) -> None:
    for number in range(count):
        hub.models[f"acme/model-{number}"] = (f"{number:040x}", demo_path)
    hub.models["other/model"] = ("e" * 40, demo_path)


def test_models_of_an_organisation_are_listed_page_by_page(hub: Hub, demo_path: Path) -> None:
    with_models(hub, demo_path, 7)
    hub.page = 3
    found = list(hosted("hf://acme"))
    assert [each.name for each in found] == [f"acme/model-{number}" for number in range(7)]
    assert [each.version for each in found] == [f"{number:040x}" for number in range(7)]
    assert found[3].address == f"hf://acme/model-3@{3:040x}"
    assert len(hub.requests) == 3
    assert irwm.open_checkpoint(found[3].address).vocab_size == irwm.open_checkpoint(demo_path).vocab_size


def test_search(hub: Hub, demo_path: Path) -> None:
    with_models(hub, demo_path, 12)
    assert [each.name for each in hosted("hf://?search=model-1")] == ["acme/model-1", "acme/model-10", "acme/model-11"]
    assert [each.name for each in hosted("hf://?author=other&search=model")] == ["other/model"]
    assert not list(hosted("hf://nobody"))


def test_one_model_is_listed_with_its_commit(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    (found,) = hosted(ADDRESS)
    assert (found.address, found.version) == (f"{ADDRESS}@{hub.commit}", hub.commit)


def test_names_that_the_hub_accepts_and_entries_that_are_no_models(hub: Hub, demo_path: Path) -> None:
    """An attacker's unusual name must not hide the models that are listed after it."""
    for number, name in enumerate(("acme/_llama", "acme/a-.b", "acme/last")):
        hub.models[name] = f"{number:040x}", demo_path
    assert [each.name for each in hosted("hf://acme")] == ["acme/_llama", "acme/a-.b", "acme/last"]
    hub.models = {"acme/\u212a": ("f" * 40, demo_path), "acme/x": ("main", demo_path), **hub.models}
    listed = []
    with pytest.raises(RemoteError, match="not a model"):
        listed.extend(each.name for each in hosted("hf://acme"))
    found = iter(hosted("hf://acme"))
    assert [next(found).name for _ in range(3)] == ["acme/_llama", "acme/a-.b", "acme/last"]


def test_signed_addresses_are_no_sources() -> None:
    with pytest.raises(ParameterError) as caught:
        check_source("https://host/m.safetensors?signature=SECRET")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "entry", ["x", {}, {"id": "acme/model"}, {"id": "acme", "sha": "a" * 40}, {"id": "a/b/../c", "sha": "a" * 40},
              {"id": "a/b", "sha": ""}, {"id": "?search=a/b", "sha": "a" * 40}]
)  # fmt: skip
def test_hostile_lists_are_typed_errors(hub: Hub, monkeypatch: pytest.MonkeyPatch, entry: object) -> None:
    monkeypatch.setattr(Hub, "listed", lambda self, query: [entry])
    with pytest.raises(RemoteError):
        list(hosted("hf://acme"))


def test_models_in_a_bucket(demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    weights = (demo_path / "model.safetensors").read_bytes()
    unusual = ("b/deep/x.gguf#2.gguf", "b/deep/%78.gguf", "b/deep/x y.GGUF", "b/deep/x?.gguf")
    names = ("a/config.json", "a/model.safetensors", "b/deep/x.gguf", "b/deep/y.gguf", "b/notes.txt", *unusual)
    system.pipe({f"/bucket/models/{name}": weights if "." in name[-12:] else b"" for name in names})
    monkeypatch.setenv("IRWM_SERVERS", "s3://bucket")
    monkeypatch.setattr(store, "file_system", lambda scheme: system)
    try:
        before = {each.name: each for each in hosted("s3://bucket/models")}
        assert set(before) == {"a", "b/deep/x.gguf", "b/deep/y.gguf", *unusual}
        for name in unusual:
            assert parse(before[name].address).path == f"models/{name}", "another object would be read"
        assert before["a"].address == "s3://bucket/models/a"
        assert before["b/deep/x.gguf"].address == "s3://bucket/models/b/deep/x.gguf"
    finally:
        system.rm("/bucket", recursive=True)
