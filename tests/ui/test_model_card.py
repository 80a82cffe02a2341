"""The model card as HTML: every fact in plain words; text from a file is inert."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.card import Card, NumberFormat, Shard, Tokenizer, card_of
from tests.ui.tags import assert_balanced
from tools.small_models import DEMO, write_llama
from ui.components import model_card
from ui.components.model_card import Measured, measure, model_html

EMBEDDING = "model.embed_tokens.weight"
NASTY = "<script>alert(1)</script>\u202e\x1b[31m"
DONE = Measured("ab" * 32, Tokenizer(4096, 4), 4092, ())


@pytest.fixture(scope="module")
def demo() -> Card:
    return card_of(open_checkpoint(DEMO))


def words(page: str) -> str:
    """The visible text: no tags, and plain spaces instead of no-break ones."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.replace("<wbr>", "")).replace("\u00a0", " ").split())


def facts(page: str) -> dict[str, str]:
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page, re.DOTALL)
    return {label: words(value) for label, value in pairs}


def opened(page: str) -> str:
    """The page without its folded parts."""
    return re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)


def test_demo_card_states_all_facts(demo: Card) -> None:
    model = open_checkpoint(DEMO)
    shown = facts(model_html(demo, measure(model, rows=True), marking=True))
    assert shown == {
        "Family": f"llama, recognised by config.json {demo.title}",
        "Embedding": "4 096 tokens × 256",
        "Layers": "4",
        "Attention": "8 query heads and 4 key heads of size 32",
        "q·k": "from the token’s embedding, then RMS norm, then q and k",
        "Output head": "a separate matrix",
        "Format": "safetensors",
        "Number format": "bfloat16",
        "Parameters": "5.25 million (5 245 184)",
        "Size": "10.5 MB in 1 weights file",
        "Tokenizer": "4 096 named tokens; special or unused: 4 tokenizer.json, tokenizer_config.json",
        "Usable rows": "4 092 of 4 096; left out: 4 special or unused",
        "Fingerprint": f"{model.fingerprint} Copy SHA-256 of the embedding",
    }


def test_protect_shows_facts_that_investigate_folds(demo: Card) -> None:
    """Before the rows are read, their facts are pending."""
    pending = facts(model_html(demo, marking=True))
    for label in ("Fingerprint", "Usable rows", "Tokenizer"):
        assert "reading …" in pending[label]
    assert "Can be marked" not in model_html(demo, marking=True), "not before the numbers were checked"
    protect, investigate = (model_html(demo, DONE, marking=marking) for marking in (True, False))
    assert EMBEDDING in words(opened(protect))
    assert EMBEDDING in words(investigate)
    assert EMBEDDING not in words(opened(investigate))
    assert "Can be marked" in protect
    assert "marked" not in investigate
    assert "Usable rows" not in investigate


def test_unmarkable_model_shows_icon_and_reason(demo: Card) -> None:
    card = dataclasses.replace(demo, refusal="a GGUF file can be examined but not marked", advice="save it again")
    page = model_html(card, DONE, marking=True)
    assert "Cannot be marked" in page
    assert "Can be marked" not in page
    assert "Can be examined, but not marked. A GGUF file can be examined but not marked. Save it again." in words(page)
    assert "Usable rows" not in page


def test_rows_of_a_large_embedding_are_checked_at_release(monkeypatch: pytest.MonkeyPatch, demo: Card) -> None:
    monkeypatch.setattr(model_card, "_MOST_COUNTED", 1000)
    measured = measure(open_checkpoint(DEMO), rows=True)
    assert measured.usable is None
    page = model_html(demo, measured, marking=True)
    assert "counted when the release is made" in page
    assert "Can be marked" in page


def test_hostile_names_are_inert_everywhere(tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x>\u202e"
    shutil.copytree(DEMO, folder)
    tensors = load_file(folder / "model.safetensors")
    save_file({f"t{i}{NASTY}": value for i, value in enumerate(tensors.values())}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": NASTY, "auto_map": {"x": NASTY}}))
    model = open_checkpoint(folder)
    card = card_of(model)
    card = dataclasses.replace(
        card,
        notes=(*card.notes, NASTY, NASTY * 40),
        shards=(Shard(NASTY, None), *card.shards),
        formats=(*card.formats, NumberFormat(NASTY, 1, 1, 1)),
        tokenizer_files=(NASTY,),
        said=((NASTY, NASTY), ("name", NASTY)),
        refusal=NASTY,
        advice=NASTY,
    )
    for marking in (True, False):
        page = model_html(card, dataclasses.replace(measure(model), problems=(NASTY,)), marking=marking)
        assert "<script" not in page
        assert "<img" not in page
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert "t0&lt;script&gt;" in page.replace("<wbr>", "")


@pytest.mark.parametrize(
    ("changes", "label", "said"),
    [
        ({"parameters": 8_030_261_248}, "Parameters", "8.03 billion (8 030 261 248)"),
        ({"layers": 3, "stated_layers": 32}, "Layers", "3 in the files, 32 according to the model’s settings"),
        ({"layers": 0}, "Layers", "cannot be determined from the tensor names"),
        ({"tied": True, "head_stored": False}, "Output head", "tied to the embedding"),
        ({"head_stored": False}, "Output head", "a separate matrix, which the files do not contain"),
        ({"fused": True, "kv_heads": 1}, "Attention", "8 query heads and 1 key head of size 32, fused in one tensor"),
        ({"scores": "", "score": (), "heads": 0}, "q·k", "not recognised"),
        ({"scores": "embedding", "score": ()}, "q·k", model_card._SIMILARITIES),
        ({"family": "bert", "title": "BERT"}, "Family", "bert, recognised by config.json"),
    ],
)
def test_each_fact_is_in_plain_words(demo: Card, changes: dict, label: str, said: str) -> None:
    assert facts(model_html(dataclasses.replace(demo, **changes), DONE, marking=True))[label] == said


def test_claims_of_a_file_are_folded_and_marked_as_unchecked(demo: Card) -> None:
    said = (("name", f"Honest 7B{NASTY}"), *((f"key.{n}", "x") for n in range(40)))
    page = model_html(dataclasses.replace(demo, format="GGUF", said=said), DONE)
    assert facts(page)["Format"].startswith("GGUF named Honest 7B&lt;script&gt;")
    assert "Metadata in the file (41)" in words(page)
    assert "not checked" in words(page)
    assert "and 17 more" in words(page)
    assert "<script" not in page
    assert "Metadata in" not in model_html(demo, DONE)


def test_unusable_rows_and_tokenizers_are_counted_or_named(tmp_path: Path) -> None:
    """A suspect's rows are not read."""
    folder = write_llama(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors[EMBEDDING][10:13] = tensors[EMBEDDING][10]
    tensors[EMBEDDING][20] = 0
    save_file(tensors, folder / "model.safetensors")
    model = open_checkpoint(folder)
    shown = facts(model_html(card_of(model), measure(model, rows=True), marking=True))
    # The config names the ids 1 and 2.
    assert shown["Usable rows"] == "594 of 600; left out: 2 special or unused, 4 duplicate or near zero"
    assert shown["Tokenizer"] == "none; rows will be matched by content"
    tensors[EMBEDDING][7, 3] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("[")
    model = open_checkpoint(folder)
    measured = measure(model, rows=True)
    assert len(measured.problems) == 2
    page = model_html(card_of(model), measured, marking=True)
    assert words(page).count("Problem.") == 2
    assert "Cannot be marked" in page
    assert len(measure(model).problems) == 1


def test_long_lists_and_notes_are_folded(demo: Card) -> None:
    long = "The embedding was recognised by its shape. " + ", ".join(f"tensor.{n}.weight" for n in range(60))
    shards = tuple(Shard(f"model-{n:05d}.safetensors", 10**9) for n in range(1, 192))
    page = model_html(dataclasses.replace(demo, notes=(long, "One. Two."), shards=shards), DONE)
    for note in ("Note. The embedding was recognised by its shape …", "Note. One. Two."):
        assert note in words(opened(page))
    assert long in page
    assert "in 191 weights files" in words(page)
    assert "model-00012.safetensors 1.0 GB and 179 more" in words(page)
    assert "model-00013" not in page
    first, *rest = demo.roles
    formats = (NumberFormat("Q4_K", 9, 90, 50), NumberFormat("F32", 2, 2, 8), *demo.formats, *demo.formats)
    roles = (dataclasses.replace(first, dtype="Q4_K", bits=4.5), *rest)
    page = words(model_html(dataclasses.replace(demo, roles=roles, formats=formats), DONE))
    assert "Q4_K, 4.5 bits each" in page
    assert "Q4_K (9 tensors), F32 (2 tensors), bfloat16 (39 tensors), 1 more" in page


@pytest.mark.parametrize(("name", "marking"), [("demo", True), ("minilm", False), ("gemma", True), ("phi3", False)])
def test_tags_are_balanced(request: pytest.FixtureRequest, name: str, marking: bool) -> None:
    model = open_checkpoint(request.getfixturevalue(f"{name}_path"))
    page = model_html(card_of(model), measure(model, rows=marking), marking=marking)
    assert_balanced(page)
    assert page.count("<h2>") == 1
