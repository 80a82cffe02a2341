"""Recipients are traced from tokens and their log-probabilities, without the suspect's weights."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.answers.reading import gradients_of, readings_of
from irwm.answers.weights import LOG_PROBABILITIES, TEMPERATURES, TEXT
from irwm.errors import AnswersError, KeyMismatchError, ParameterError, UnsupportedCheckpointError
from irwm.inference.loading import open_weights
from irwm.keys.key import Key
from irwm.scheme.basis import Basis
from irwm.scheme.noise import places
from tools.copies import keys_for
from tools.generating import prompts, served, text_of
from tools.small_models import write_llama

TINY = irwm.Parameters(positions=20, required_positions=12, constraints=4, noise_coordinates=4, spread=0.25)
CONTEXT, VOCABULARY = 24, 600


@pytest.fixture(scope="module")
def tied_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tied"
    return write_llama(folder, tie_word_embeddings=True, max_position_embeddings=CONTEXT)


@pytest.fixture(scope="module")
def untied_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("model") / "untied", max_position_embeddings=CONTEXT, seed=1)


def invented(seed: int, count: int = 6, *, told: bool = True) -> irwm.Answers:
    """Random tokens, of which no copy generated any."""
    rng = np.random.default_rng(seed)
    sequences = [rng.integers(0, VOCABULARY, rng.integers(8, CONTEXT + 1)) for _ in range(count)]
    lengths = [int(rng.integers(0, 4)) for _ in sequences]
    logarithms = [-rng.exponential(5.0, len(each) - n) for each, n in zip(sequences, lengths, strict=True)]
    return irwm.Answers(sequences, lengths, logarithms if told else None)


def named_others(key: Key, count: int) -> list[Key]:
    """The same key under other names: recipients who got no copy."""
    head = key.head
    return [
        replace(key, recipient=f"{i}", head=None if head is None else replace(head, recipient=f"{i}"))
        for i in range(count)
    ]


def naive_temperature(model: torch.nn.Module, answers: irwm.Answers, by: str) -> float:
    """The temperature under which text is most likely, or log-probabilities are nearest, by the definition."""

    def distance(temperature: float) -> float:
        own = [likelihood(model, *each, temperature) for each in zip(answers.sequences, answers.firsts, strict=True)]
        values = torch.cat(own).detach().numpy()
        told = [each[-len(ours) :] for each, ours in zip(answers.log_probabilities or (), own, strict=True)]
        return -values.sum() if by == TEXT else float(np.median(np.abs(np.concatenate(told) - values)))

    return min(TEMPERATURES, key=distance)


def naive_weights(model: torch.nn.Module, answers: irwm.Answers, temperature: float) -> list[torch.Tensor]:
    """y of the log-probabilities, by the definition, one sequence after the other."""
    y = []
    for tokens, first, told in zip(answers.sequences, answers.firsts, answers.log_probabilities or (), strict=True):
        own = likelihood(model, tokens, first, temperature).detach()
        y.append(torch.tensor(told[len(told) - (len(tokens) - first) :]) - own)
    together = np.concatenate([each.numpy() for each in y])
    middle = np.median(together)
    most = 2 * np.median(np.abs(together - middle))
    return [(each - middle).clamp(-most, most) for each in y]


def likelihood(model: torch.nn.Module, tokens: np.ndarray, first: int, temperature: float = 1.0) -> torch.Tensor:
    """log p of each token from `first` on, float64."""
    logits = (model(torch.tensor(tokens)[None]).logits[0].double() / temperature).log_softmax(-1)
    return torch.stack([logits[t - 1, tokens[t]] for t in range(first, len(tokens))])


@pytest.mark.parametrize("by", [TEXT, LOG_PROBABILITIES])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_z_equals_its_definition(
    by: str, tied: bool, tied_path: Path, untied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the nearest of the temperatures; those between two of them are below."""
    monkeypatch.setattr("irwm.answers.weights.FITS", 0)
    path = tied_path if tied else untied_path
    model, answers = irwm.open_checkpoint(path), invented(0)
    keys = keys_for(model, ["a", "b"], TINY)
    running = open_weights(path).model
    at = naive_temperature(running, answers, by)
    ys = naive_weights(running, answers, at)
    terms = zip(answers.sequences, answers.firsts, ys, strict=True)
    total = sum((likelihood(running, *each, at) * (1.0 if by == TEXT else y)).sum() for *each, y in terms)
    total.backward()  # type: ignore[union-attr]
    where = {"embedding": (running.get_input_embeddings(), model)}
    if not tied:
        assert model.output_head is not None
        where["head"] = (running.get_output_embeddings(), model.output_head)
    found = {each[0].place: each for each in readings_of(answers, model, keys, "cpu", None) if each[0].by == by}
    assert set(found) == set(where)
    for place, (layer, part) in where.items():
        for key, evidence in zip(keys, found[place], strict=True):
            own = key.at(place)
            assert own is not None
            assert evidence.z == pytest.approx(naive_z(layer.weight.grad.double().numpy(), part, own), abs=2e-3)


def naive_z(gradient: np.ndarray, part: irwm.Checkpoint, key: Key) -> float:
    """z of a key for a gradient (s, d), row by row."""
    d, derivation = part.hidden_size, key.derivation
    basis, rows = Basis.derive(derivation.basis_key(), d), part.embedding().double().numpy()
    usual = np.median([np.mean(row**2) for row in gradient if row.any()])
    terms = []
    for i, row in enumerate(gradient):
        if row.any():
            token = np.array([i])
            positions, signs = places(derivation.noise_key(), token, key.parameters.noise_coordinates, d, adds=True)
            root = math.sqrt(max(np.mean(row**2), usual / 100))
            weight = np.linalg.norm(rows[i]) / math.sqrt(d) / math.sqrt(root)
            terms += list(weight * basis.into(row[None], token)[0][positions[0]] * signs[0])
    return float(np.sum(terms) / np.sqrt(np.sum(np.square(terms))))


def one_temperature(monkeypatch: pytest.MonkeyPatch, temperature: float = 1.0) -> None:
    for module in ("weights", "reading"):
        monkeypatch.setattr(f"irwm.answers.{module}.TEMPERATURES", (temperature,))


def test_only_the_wanted_gradients_are_made(untied_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_weights(untied_path)
    monkeypatch.setattr("irwm.answers.reading.open_weights", lambda *_, **__: opened)
    gradients_of(invented(0), irwm.open_checkpoint(untied_path), ["embedding"])
    wanted = opened.model.get_input_embeddings().weight
    assert [each is wanted for each in opened.model.parameters() if each.requires_grad] == [True]


def test_the_text_of_a_prompt_adds_nothing(tied_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sequences of which only the last token was generated: the gradient is that of these two predictions."""
    one_temperature(monkeypatch)
    model = irwm.open_checkpoint(tied_path)
    tokens = [np.arange(1, 9), np.arange(101, 112)]
    found = gradients_of(irwm.Answers(tokens, [7, 10]), model, ["embedding"])[TEXT]["embedding"]
    running = open_weights(tied_path).model
    weight = running.get_input_embeddings().weight
    total = sum(likelihood(running, each, len(each) - 1).sum() for each in tokens)
    (expected,) = torch.autograd.grad(total, weight)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    everything = gradients_of(irwm.Answers(tokens, [0, 0]), model, ["embedding"])[TEXT]["embedding"]
    assert np.abs(everything - found).max() > 1e-3, "generated tokens do add something"


def test_long_answers_are_read_in_windows(tied_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_temperature(monkeypatch)
    model, rng = irwm.open_checkpoint(tied_path), np.random.default_rng(0)
    long = rng.integers(0, VOCABULARY, 5 * CONTEXT)
    steps: list[tuple[int, int]] = []
    answers = irwm.Answers([long], [3], [-rng.exponential(5.0, len(long) - 3)])
    found = gradients_of(answers, model, ["embedding"], "cpu", lambda done, total, _: steps.append((done, total)))
    assert set(found) == {TEXT, LOG_PROBABILITIES}
    assert steps == [(i + 1, len(steps)) for i in range(len(steps))]
    half = CONTEXT // 2
    parts = [irwm.Answers([long[:CONTEXT]], [3])]
    parts += [irwm.Answers([long[i : i + CONTEXT]], [half]) for i in range(half, len(long) - half, half)]
    expected = sum(gradients_of(each, model, ["embedding"])[TEXT]["embedding"] for each in parts)
    np.testing.assert_allclose(found[TEXT]["embedding"], expected, atol=1e-5)


@pytest.mark.parametrize(("recipients", "answers"), [(100, 6), pytest.param(400, 40, marks=pytest.mark.slow)])
def test_recipients_without_a_copy_score_by_chance(tied_path, untied_path, recipients: int, answers: int) -> None:
    """z of recipients over answers of nobody's copy. The z of two recipients are independent given the answers, since
    their signs are, and the mean over answers of one recipient's z varies at most as much as one z."""
    z = []
    for path in (tied_path, untied_path):
        model = irwm.open_checkpoint(path)
        (key,) = keys_for(model, ["real"], TINY)
        keys = [*named_others(key, recipients), key]
        for seed in range(answers):
            z += [[each.z for each in reading] for reading in readings_of(invented(seed), model, keys, "cpu", None)]
    check_chance(np.array(z))


def check_chance(z: np.ndarray) -> None:
    """Checks z (readings, recipients) against the stated bound."""
    of_each = z.mean(axis=0)
    assert abs(of_each.mean()) < 4 * of_each.std() / math.sqrt(of_each.size)
    assert 0.7 < z.std() < 1.1
    for tail in (1e-1, 1e-2, 1e-3):
        p = 10 ** irwm.scheme.probabilities.rademacher_tail_log10(z)
        shares = (p <= tail).mean(axis=0)
        assert shares.mean() < tail + 4 * shares.std() / math.sqrt(shares.size), tail


@pytest.mark.parametrize("name", ["gemma", pytest.param("demo", marks=pytest.mark.slow)])
def test_the_copy_that_answered_is_named_among_all_recipients(
    name: str, demo_path: Path, gemma_path: Path, tmp_path: Path
) -> None:
    path = {"gemma": gemma_path, "demo": demo_path}[name]
    model = irwm.open_checkpoint(path)
    guilty, *innocent = keys_for(model, ["guilty", "second", "third"])
    irwm.insert(model, guilty, tmp_path / "copy")
    answers = served(tmp_path / "copy", prompts(path, 16), 32)
    others = named_others(guilty, 57)
    traces = irwm.trace_answers(answers, model, [*others, *innocent, guilty])
    assert [each.recipient for each in traces if each.named] == ["guilty"]
    assert traces[-1].z > 9
    assert max(each.z for each in traces[:-1]) < 5
    assert all(math.isnan(each.share) for each in traces)
    found = irwm.detect_answers(answers, model, guilty)
    assert (found.verdict, found.z) == ("found", traces[-1].z)
    assert found.comparisons == found.places * found.weightings == (2 if model.tied else 4)
    assert traces[-1].log10_risk == pytest.approx(found.log10_p + math.log10(60 * found.comparisons))
    assert irwm.detect_answers(answers, model, innocent[0]).verdict == "inconclusive"
    few = irwm.detect_answers(text_of(answers), model, guilty, keys_tried=3)
    assert (few.verdict, few.weightings, few.keys_tried) == ("inconclusive", 1, 3)


@pytest.mark.slow
def test_recipients_score_by_chance_on_another_recipients_copy(gemma_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(gemma_path)
    (guilty,) = keys_for(model, ["guilty"])
    irwm.insert(model, guilty, tmp_path / "copy")
    keys, z = [*named_others(guilty, 400), guilty], []
    for seed in range(6):
        answers = served(tmp_path / "copy", prompts(gemma_path, 16, seed), 32, seed)
        z += [[each.z for each in reading[:-1]] for reading in readings_of(answers, model, keys, "cpu", None)]
    check_chance(np.array(z))


def test_a_few_absurd_log_probabilities_do_not_hide_a_fingerprint(
    gemma_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = irwm.open_checkpoint(gemma_path)
    (guilty,) = keys_for(model, ["guilty"])
    irwm.insert(model, guilty, tmp_path / "copy")
    answers = served(tmp_path / "copy", prompts(gemma_path, 16), 32)
    assert answers.log_probabilities is not None
    absurd = [np.where(np.arange(32) == 5, -100.0, each) for each in answers.log_probabilities]
    answers = irwm.Answers(answers.sequences, answers.prompt_lengths, absurd)
    limited = irwm.detect_answers(answers, model, guilty)
    assert (limited.verdict, limited.evidence[0].by) == ("found", LOG_PROBABILITIES)
    monkeypatch.setattr("irwm.answers.weights.MOST_DEVIATIONS", math.inf)
    assert irwm.detect_answers(answers, model, guilty).verdict == "inconclusive"


def test_unusable_input_is_refused_as_tracing_of_weights_refuses_it(
    tied_path: Path, untied_path: Path, minilm_path: Path
) -> None:
    model, other = irwm.open_checkpoint(tied_path), irwm.open_checkpoint(untied_path)
    (key,) = keys_for(model, ["a"], TINY)
    answers = invented(0, 2)
    with pytest.raises(KeyMismatchError):
        irwm.trace_answers(answers, other, [key])
    for refused in (
        lambda: irwm.trace_answers(answers, model, []),
        lambda: irwm.trace_answers(answers, model, [key], risk=1.0),
        lambda: irwm.detect_answers(answers, model, key, keys_tried=0),
    ):
        with pytest.raises(ParameterError):
            refused()
    with pytest.raises(AnswersError) as found:
        irwm.trace_answers(irwm.Answers([[1, 2], [1, VOCABULARY]], [1, 1]), model, [key])
    assert (found.value.expected, found.value.found) == ("token IDs from 0 to 599", "600")
    encoder = irwm.open_checkpoint(minilm_path)
    with pytest.raises(UnsupportedCheckpointError):
        irwm.trace_answers(answers, encoder, keys_for(encoder, ["a"], TINY))


def test_a_key_without_noise_has_no_z(tied_path: Path) -> None:
    model = irwm.open_checkpoint(tied_path)
    plain, noisy = (
        keys_for(model, ["a"], params)[0] for params in (replace(TINY, noise_coordinates=0, spread=0.0), TINY)
    )
    without, with_noise = irwm.trace_answers(invented(0, 2), model, [plain, noisy])
    assert math.isnan(without.z)
    assert (without.log10_p, without.log10_risk, without.named) == (0.0, 0.0, False)
    assert math.isfinite(with_noise.z)
    (alone,) = irwm.trace_answers(invented(0, 2), model, [plain])
    assert math.isnan(alone.z)
    found = irwm.detect_answers(invented(0, 2), model, plain)
    assert (found.verdict, found.log10_risk) == ("inconclusive", 0.0)


@pytest.mark.parametrize("temperature", [0.7, pytest.param(1.5, marks=pytest.mark.slow)])
def test_a_servers_temperature_costs_nothing(
    gemma_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """0.7 is between two of the temperatures that are tried."""
    model = irwm.open_checkpoint(gemma_path)
    (guilty,) = keys_for(model, ["guilty"])
    irwm.insert(model, guilty, tmp_path / "copy")
    answers = served(tmp_path / "copy", prompts(gemma_path, 16), 32, temperature=temperature)
    found = irwm.detect_answers(answers, model, guilty)
    assert found.verdict == "found"
    one_temperature(monkeypatch, temperature)
    assert irwm.detect_answers(answers, model, guilty).z == pytest.approx(found.z, rel=0.05)
    one_temperature(monkeypatch)
    assert irwm.detect_answers(answers, model, guilty).z < found.z / 2
