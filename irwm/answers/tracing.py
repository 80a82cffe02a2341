"""Which recipients' copies had a part in answers: the score of each, from one gradient of the original.

METHOD: G = dL/dW at the original for L(W) = sum_t y_t log p_W(x_t | x_<t), and then, with signs eps, places n, bases B
and sizes sigma as in tracing of weights (`irwm.tracing`),

    a_ij = w_i (G_i B_i)[n_ij],    z_u = sum_ij eps_ij a_ij / sqrt(sum_ij a_ij^2).

For a recipient whose copy had no part in the answers, the signs are fair coins and independent of the a_ij, for any
answers. docs/method.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from irwm.answers.answers import Answers
from irwm.answers.fits import Progress
from irwm.answers.reading import places_of, strength, strongest_by_try, tries, tries_of
from irwm.answers.result import AnswersFinding
from irwm.checkpoint import Checkpoint
from irwm.errors import ParameterError
from irwm.evidence.finding import FOUND, INCONCLUSIVE, Evidence
from irwm.evidence.verdict import FOUND_LOG10_RISK, odds
from irwm.inference.fitting import Fits
from irwm.keys.key import Key
from irwm.tracing.recipients import RISK
from irwm.tracing.result import Trace


def trace_answers(
    answers: Answers,
    model: Checkpoint,
    keys: Sequence[Key],
    risk: float = RISK,
    device: str = "cpu",
    progress: Progress | None = None,
    fits: Fits | None = None,
) -> list[Trace]:
    """Which of these recipients' copies generated the answers; one `Trace` per key, in order.

    The odds of naming anyone whose copy had no part in them are at most `risk`, for any answers and without any
    assumption (docs/method.md): z is a sum of given numbers with fair signs, in units of its deviation, and p is
    `irwm.scheme.probabilities.rademacher_tail_log10`. It is corrected for the keys, for the places (the embedding, and
    in an untied model the output head if a key marks it) and for the weightings of the tokens (their text alone and, if
    given, their log-probabilities), and for the tries: one, and one for each fit. Each key has its strongest z of
    these. A key without noise has z NaN and log10_p 0; `share` is NaN for all. `rows` are those that the answers say
    something about.

    A fit removes what hides a copy: an unknown context, fine-tuning or quantisation. It uses no key. The tries end with
    the first that names someone, but the correction is always for all of them: with both kinds of fits a z of 7 counts
    like one that is smaller by 0.16. A fit takes minutes.

    Args:
        answers: of the suspect, as the original's tokens.
        model: the unmarked original, a folder that transformers opens. It is run in float32: forwards, and backwards
            once for each weighting.
        keys: of the recipients.
        risk: accepted odds of naming any uninvolved recipient, over all keys together.
        device: where the original is run.
        progress: called with steps done, the total of steps and a description of the step; its exceptions are
            propagated. A fit that ends early skips steps.
        fits: of the original to the answers.

    Raises:
        ParameterError: a risk outside (0, 1), no key, or a soft prompt that is longer than half of the original's
            context.
        AnswersError: a token that the original does not have, or fewer than 4 answers for fits.
        KeyMismatchError: a key of another geometry or another original.
        UnsupportedCheckpointError: transformers cannot run the original, or it does not generate text.
        InsufficientMemoryError: the computer has too little memory to run it.
        CheckpointError: a file cannot be read.
    """
    if not 0.0 < risk < 1.0:
        raise ParameterError("the risk is out of range", expected="a number between 0 and 1", found=str(risk))
    comparisons = math.log10(max(1, len(keys) * len(places_of(keys, model)) * _weightings(answers) * tries(fits)))
    traces = [trace_of(key, None, 0.0, risk) for key in keys]
    for strongest in strongest_by_try(tries_of(answers, model, keys, device, progress, fits)):
        traces = [trace_of(key, best, comparisons, risk) for key, best in zip(keys, strongest, strict=True)]
        if any(each.named for each in traces):
            break
    return traces


def _weightings(answers: Answers) -> int:
    return 1 if answers.log_probabilities is None else 2


def trace_of(key: Key, best: Evidence | None, comparisons: float, risk: float) -> Trace:
    """The trace of a key with its strongest evidence, if it has any; `comparisons` is a logarithm."""
    log10_p = 0.0 if best is None else best.log10_p
    log10_risk = min(0.0, log10_p + comparisons)
    return Trace(
        recipient=key.recipient,
        owner=key.owner,
        z=math.nan if best is None else best.z,
        log10_p=log10_p,
        log10_risk=log10_risk,
        named=log10_risk <= math.log10(risk),
        share=math.nan,
        rows=0 if best is None else best.rows,
    )


def detect_answers(
    answers: Answers,
    model: Checkpoint,
    key: Key,
    device: str = "cpu",
    keys_tried: int = 1,
    progress: Progress | None = None,
    fits: Fits | None = None,
) -> AnswersFinding:
    """Whether a copy made with `key` had a part in the answers: "found" or "inconclusive", by the limit that verdicts
    about weights have. It is never "not found": the wrong prompts, few tokens or a changed copy show nothing either.

    Args:
        keys_tried: how many keys were tried on these answers; the risk is multiplied by it.
        answers, model, device, progress, fits: as `trace_answers`.

    Raises:
        As `trace_answers`; ParameterError if keys_tried is below 1.
    """
    if keys_tried < 1:
        raise ParameterError("keys_tried must include this key", expected="at least 1", found=str(keys_tried))
    found = AnswersFinding(
        verdict=INCONCLUSIVE,
        reason="",
        evidence=(),
        tokens=answers.tokens,
        keys_tried=keys_tried,
        places=len(places_of([key], model)),
        weightings=_weightings(answers),
        tries=tries(fits),
        commitment=key.commitment,
    )
    for readings in tries_of(answers, model, [key], device, progress, fits):
        evidence = sorted([*found.evidence, *(each for (each,) in readings)], key=strength, reverse=True)
        found = replace(found, evidence=tuple(evidence))
        if found.log10_risk <= FOUND_LOG10_RISK:
            break
    return _judged(found, fingerprinted=bool(key.parameters.noise_coordinates))


def _judged(found: AnswersFinding, *, fingerprinted: bool) -> AnswersFinding:
    """The finding with its verdict and reason."""
    if not fingerprinted:
        said = "This key has no fingerprint. A mark alone cannot be read from tokens, so the answers show nothing."
        return replace(found, reason=said)
    seen = (
        f"over {found.tokens} generated tokens, its signs add up to {found.z:.1f} standard deviations; "
        f"{odds(found.log10_risk)}"
    )
    if found.log10_risk <= FOUND_LOG10_RISK:
        return replace(found, verdict=FOUND, reason=f"The answers carry this key's fingerprint: {seen}.")
    said = f"The answers do not show this key's fingerprint clearly enough, but that rules no one out: {seen}."
    return replace(found, reason=said)
