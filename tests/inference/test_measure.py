"""The cost of a change of a model, compared with definitions that are computed here directly."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM

import irwm
from irwm.attacks import prune
from irwm.attacks.equivalence import apply, disguise, read_state, write_state
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference import Reference, compare, default_text, open_model, reference, same_function
from irwm.inference.loading import open_weights
from irwm.inference.measure import BLOCK, _mean
from tests.attacks.models import edited, write_tiny
from tests.checkpoint.gguf_builders import convert
from tests.checkpoint.test_gguf_tokens import in_order
from tests.inference.conftest import TOKENS


def logits_of(folder: Path, ids: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].double()


@pytest.fixture(scope="module")
def pruned(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prune(demo_path, tmp_path_factory.mktemp("utility") / "pruned", 0.5)


@pytest.mark.slow
def test_measured_values_equal_their_definitions(demo: Reference, demo_path: Path, pruned: Path) -> None:
    small = reference(demo_path, default_text(), 100)
    found = compare(small, pruned)
    p, q = (logits_of(folder, list(small.ids))[:-1].log_softmax(dim=1) for folder in (demo_path, pruned))
    wanted = torch.tensor(small.ids)[1:, None]
    before, after = (-x.gather(1, wanted).mean().item() for x in (p, q))
    assert found.tokens == found.compared == 99
    assert found.perplexity_reference == pytest.approx(math.exp(before), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(after), rel=1e-5)
    assert found.change == pytest.approx(math.exp(after - before) - 1, rel=1e-4)
    assert found.kl == pytest.approx((p.exp() * (p - q)).sum(dim=1).mean().item(), rel=1e-4)
    assert found.top1 == pytest.approx((p.argmax(dim=1) == q.argmax(dim=1)).double().mean().item())
    assert found.reason == ""


def test_every_token_but_the_first_is_predicted_once_in_windows_of_256(demo: Reference) -> None:
    assert [len(r.shown) for r in demo.passages] == [255, 44]
    assert torch.cat([r.wanted for r in demo.passages]).tolist() == list(demo.ids[1:])
    assert demo.passages[1].shown[0] == demo.passages[0].wanted[-1]


@pytest.mark.slow
def test_more_damage_costs_significantly_more(demo: Reference, demo_path: Path, pruned: Path, tmp_path: Path) -> None:
    none, light, heavy = (
        compare(demo, each) for each in (demo_path, prune(demo_path, tmp_path / "light", 0.1), pruned)
    )
    assert (none.change, none.kl, none.top1, none.change_error) == (0.0, 0.0, 1.0, 0.0)
    assert compare(demo, pruned) == heavy
    assert light.kl < 0.01 < heavy.kl
    assert light.top1 > 0.95 > heavy.top1
    assert abs(light.change) < 4 * light.change_error
    assert heavy.change > 4 * heavy.change_error > 0


@pytest.mark.sweep
@pytest.mark.parametrize("steps", [["reorder_tokens"], [("pad_tokens", {"count": 200, "interleave": True})]])
@pytest.mark.parametrize("told", [False, True], ids=["by text", "by map"])
def test_a_moved_vocabulary_is_matched(
    demo: Reference, demo_path: Path, tmp_path: Path, steps: list, told: bool
) -> None:
    state = apply(read_state(demo_path), steps, seed=4)
    found = compare(demo, write_state(state, tmp_path / "out"), state.token_ids if told else None)
    assert found.compared == TOKENS - 1
    assert found.top1 > 0.99
    # Added rows take probability from the others; there is no other change.
    assert 0 <= found.kl == pytest.approx(math.log1p(found.change), abs=1e-3)
    assert (found.kl < 1e-9) == (steps == ["reorder_tokens"])


def test_trimmed_vocabulary_compares_common_tokens_and_reencodes_text(
    demo: Reference, demo_path: Path, tmp_path: Path
) -> None:
    out = disguise(demo_path, tmp_path / "out", [("trim_tokens", {"fraction": 0.1})], 5)
    found = compare(demo, out)
    assert found.tokens == TOKENS - 1 > found.compared > TOKENS / 2
    assert found.kl == pytest.approx(0, abs=1e-6)  # no change in the common tokens
    assert found.perplexity > 3 * found.perplexity_reference  # but its tokenizer gives texts it was not trained on
    assert found.change_error is None
    assert found.reason


@pytest.mark.slow
def test_without_a_tokenizer_a_map_is_needed_and_enough(demo: Reference, demo_path: Path, tmp_path: Path) -> None:
    state = apply(read_state(demo_path), [("trim_tokens", {"fraction": 0.1, "tokenizer": "drop"})], seed=5)
    out = write_state(state, tmp_path / "out")
    with pytest.raises(UnsupportedCheckpointError):
        compare(demo, out)
    found = compare(demo, out, state.token_ids)
    assert found.tokens == found.compared < TOKENS - 1
    assert abs(found.change) < 0.2
    with pytest.raises(ParameterError):
        compare(demo, out, list(range(4096)))


def test_nan_outputs_give_infinite_perplexity(demo: Reference, demo_path: Path, tmp_path: Path) -> None:
    out = edited(demo_path, tmp_path / "out", lambda tensors: tensors["model.norm.weight"][0].fill_(math.nan))
    found = compare(demo, out)
    assert found.perplexity == found.change == found.kl == math.inf
    assert found.top1 == 0
    assert found.reason
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["perplexity"] == "infinity"


@pytest.mark.slow
def test_a_masked_model_has_each_token_hidden_once(tmp_path: Path, minilm_path: Path) -> None:
    folder = write_bert(tmp_path / "bert", minilm_path)
    made = reference(folder, default_text(), 200, seed=3)
    assert made.masked
    assert not made.headless
    mask = open_model(folder).tokenizer.mask_token_id
    for part in {r.part for r in made.passages}:  # windows of 64, the model's context, with [CLS] and [SEP]
        places = torch.cat([r.at for r in made.passages if r.part == part]).sort().values
        assert places.tolist() == list(range(1, len(places) + 1))
        assert len(places) == (62 if part < 3 else 200 - 3 * 62)
    assert all((r.shown[r.at] == mask).all() and (r.shown == mask).sum() == len(r.at) for r in made.passages)
    assert torch.cat([r.wanted for r in made.passages]).sort().values.tolist() == sorted(made.ids)
    found = compare(made, folder)
    assert found.tokens == 200
    assert found.perplexity == found.perplexity_reference > 1
    assert found.kl == 0
    again = reference(folder, default_text(), 200, seed=4)
    assert [r.at.tolist() for r in again.passages] != [r.at.tolist() for r in made.passages]


def write_bert(folder: Path, minilm_path: Path) -> Path:
    """A tiny random BERT with a head, and MiniLM's tokenizer cut down to it."""
    write_tiny(folder, "bert")
    config = json.loads((folder / "config.json").read_text())
    words = (minilm_path / "vocab.txt").read_text(encoding="utf-8").splitlines()
    kept = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    kept += [w for w in words if w not in kept and not w.startswith("[unused")][: config["vocab_size"] - 5]
    (folder / "vocab.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.slow
def test_headless_encoder_has_no_perplexity(minilm: Reference, minilm_path: Path, tmp_path: Path) -> None:
    assert minilm.headless
    found = compare(minilm, minilm_path)
    assert found.perplexity is found.kl is found.top1 is None
    assert found.similarity == pytest.approx(1)
    assert found.reason
    damaged = compare(minilm, prune(minilm_path, tmp_path / "pruned", 0.5))
    assert damaged.similarity < 0.9


def test_models_that_cannot_be_compared_are_refused(
    demo: Reference, minilm: Reference, demo_path: Path, minilm_path: Path, tmp_path: Path
) -> None:
    """Unknown names of tensors, an unknown family, and models that do not predict the same thing."""
    renamed = disguise(demo_path, tmp_path / "renamed", ["rename_tensors"])
    nobody = edited(demo_path, tmp_path / "nobody", model_type="nobody")
    for made, other in ((demo, renamed), (demo, nobody), (demo, minilm_path), (minilm, demo_path)):
        with pytest.raises(UnsupportedCheckpointError) as caught:
            compare(made, other)
        assert other == minilm_path or str(other) in str(caught.value.file)


@pytest.mark.slow
def test_a_gguf_file_is_measured(demo: Reference, demo_path: Path, tmp_path: Path) -> None:
    tokens, types = in_order(demo_path)
    for kind, dtype, same in (("F16", torch.float16, True), ("Q8_0", torch.float16, False)):
        path = tmp_path / f"{kind}.gguf"
        convert(demo_path, path, gguf.GGMLQuantizationType[kind], tokens=tokens, types=types)
        found = compare(demo, path)
        assert found.compared == TOKENS - 1
        assert found.top1 > 0.97  # of 299 tokens
        assert (found.kl < 1e-8) == same
        assert open_weights(path).dtype == dtype
        assert same_function(demo, path).same == same


@pytest.mark.parametrize(("text", "tokens"), [("", 10), ("words", 1), (default_text(), 0)])
def test_too_little_to_measure_is_refused(demo_path: Path, text: str, tokens: int) -> None:
    with pytest.raises(ParameterError):
        reference(demo_path, text, tokens)


def test_the_mark_costs_less_than_the_noise_of_the_text(demo: Reference, demo_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(demo_path)
    release = irwm.insert(model, irwm.generate_key(model, secret=bytes(32)), tmp_path / "release")
    found = compare(demo, release.path)
    assert abs(found.change) < 0.005
    assert found.top1 > 0.97  # of 299 tokens


def test_standard_error_has_its_stated_coverage() -> None:
    """Blocks include the dependence of neighbours, so the true mean is within two errors 95 times in 100."""
    source = torch.Generator().manual_seed(0)
    hits = []
    for _ in range(400):
        drawn = torch.randn(2048 + 3, generator=source, dtype=torch.float64)
        mean, error = _mean(drawn.unfold(0, 4, 1).mean(dim=1), torch.zeros(2048))
        hits.append(abs(mean) < 2 * error)
    assert 0.90 < sum(hits) / len(hits) < 0.98
    assert _mean(torch.ones(BLOCK), torch.zeros(BLOCK)) == (1.0, None)


def test_outputs_beyond_memory_come_back_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("irwm.inference.reference")  # in the package's namespace this name is the function
    monkeypatch.setattr(module, "IN_MEMORY", 1000)
    store = module.OutputStore()
    tensors = [torch.randn(n, 37) for n in (5, 1, 30)]
    for tensor in tensors:
        store.add(tensor)
    assert len(store) == 3
    assert store._file._rolled
    for number in (2, 0, 1, 0):
        assert torch.equal(store[number], tensors[number])
