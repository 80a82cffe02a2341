"""A suspect that is known only by what it generated: who is traced in it, as values that a report prints.

A mark cannot be read from tokens. So the finding of a key is "inconclusive" here, and only the fingerprints can name
someone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from irwm.alignment import Alignment
from irwm.answers.answers import Answers
from irwm.answers.fits import LEAST_ANSWERS, Progress
from irwm.answers.reading import places_of, strength, strongest_by_try, tries_of
from irwm.answers.recorded_responses import RecordedResponses, answers_in, holds_responses, read_recorded_responses
from irwm.answers.text_files import answers_from_texts, holds_text, read_texts
from irwm.answers.tracing import trace_of
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.served_source import GENERATED_TOKENS, TEXT_ALONE, Heard, Recording, utc_of
from irwm.errors import AnswersError, InsufficientMemoryError, UnsupportedCheckpointError, path_from
from irwm.evidence.detection import reading_of
from irwm.evidence.finding import FORMS, MAPS, Evidence, Finding
from irwm.evidence.lineage import CANNOT_TELL, Lineage
from irwm.evidence.verdict import judge
from irwm.families.schema import TensorRef
from irwm.inference.fitting import Fits
from irwm.keys.key import Key
from irwm.scheme.parameters import EMBEDDING
from irwm.tracing.recipients import DECOYS, RISK, recognised
from irwm.tracing.result import ALL_MADE, NAMED, NO_MEMORY, NOT_REQUESTED, TOO_FEW, UNSUPPORTED, Trace, Tracing

# The original as it is, and each fit.
TRIES = 1 + len(Fits().kinds)
ONLY_TEXT = "The file contains only text: no prompts, no server and no times."
# Completes "The suspect ...".
NO_MARK = "is known only from the text that it generated, and no mark can be read from text"


@dataclass(frozen=True, slots=True, eq=False)
class GeneratingSuspect:
    """A file of recorded responses, or of text.

    Attributes:
        path: the file.
        original: the answers were encoded with its tokenizer.
        generated: the answers.
        answers: the facts about them that a report prints.
        fingerprint: hex SHA-256 of the file.
        bytes_total: the file's size.
        notes: sentences that a reader should see.
    """

    path: Path
    original: Checkpoint
    generated: Answers
    answers: Heard
    fingerprint: str
    bytes_total: int
    notes: tuple[str, ...] = ()

    @property
    def shards(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)


def holds_generated(path: str | Path) -> bool:
    """Whether a file claims to hold what a suspect generated: recorded responses, or text."""
    return holds_responses(path) or holds_text(path)


def open_generated(path: str | Path, original: Checkpoint) -> GeneratingSuspect:
    """A file of recorded responses, or of text, as a suspect.

    Raises:
        AnswersFileError, UnsupportedCheckpointError: as `irwm.read_responses` and `irwm.answers.text_files`.
    """
    file = path_from(path)
    if holds_text(file):
        texts = read_texts(file)
        generated = answers_from_texts(file, texts, original)
        given, used = len(texts.texts), len(generated.sequences)
        heard = Heard(max(given, used), used, generated.tokens, None, form=TEXT_ALONE)
        return GeneratingSuspect(file, original, generated, heard, texts.sha256, texts.bytes, (ONLY_TEXT,))
    recorded = read_recorded_responses(file)
    generated = answers_in(file, recorded, original)
    notes: tuple[str, ...] = ()
    if recorded.source.original != original.fingerprint:
        notes = ("The answers were recorded for a different original.",)
    heard = _heard(recorded, generated)
    return GeneratingSuspect(file, original, generated, heard, recorded.sha256, recorded.bytes, notes)


def _heard(recorded: RecordedResponses, generated: Answers) -> Heard:
    source, exchanges = recorded.source, recorded.exchanges
    times = [each.time_ms for each in exchanges]
    recording = Recording(
        endpoint=source.endpoint,
        model=source.model,
        api=source.api,
        scale=TEXT_ALONE if generated.log_probabilities is None else GENERATED_TOKENS,
        original=source.original,
        prompt_seed=source.prompt_seed,
        prompts=len({json.dumps(each.prompt) for each in exchanges}),
        requests=len(exchanges),
        began=utc_of(min(times)),
        ended=utc_of(max(times)),
        requests_sha256=_digest_of_digests([each.request for each in exchanges]),
        responses_sha256=_digest_of_digests([each.response for each in exchanges]),
    )
    used = len(generated.sequences)  # a response may hold several answers
    return Heard(max(len(exchanges), used), used, generated.tokens, None, recording, recording.scale)


def _digest_of_digests(texts: Sequence[str]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(text.encode()).digest() for text in texts)).hexdigest()


def trace_generated(
    answers: Answers,
    model: Checkpoint,
    keys: Sequence[Key],
    keys_tried: int,
    risk: float = RISK,
    decoys: int = DECOYS,
    device: str = "cpu",
    progress: Progress | None = None,
    fits: Fits | None = None,
    tries_made: int | None = None,
) -> Tracing:
    """The recipients of `irwm.trace_answers` in the form and with the corrections of a tracing in weights, and decoys.

    It corrects for both weightings of the tokens even if the answers allow only one, for every fit even if none is
    made, and for the mark as a second form of evidence: so one key and one suspect have one p, in every form of the
    suspect, and it costs nothing to trace without fits first. Fewer than `LEAST_ANSWERS` answers get no fits, and a fit
    that transformers cannot run, or that needs more memory than there is, ends the tries.

    Args:
        keys: with noise.
        keys_tried: all keys that are tried on the suspect.
        answers, model, risk, decoys, device, progress, fits: as `irwm.trace_answers` and `irwm.tracing.trace_each`.
        tries_made: how many tries to make, whoever they name, so that a report can be reproduced with some of its keys.
            None for all until one names someone.

    Raises:
        AnswersError: no key has noise.
        As `irwm.trace_answers`.
    """
    if not any(key.parameters.noise_coordinates for key in keys):
        raise AnswersError(
            "none of these keys has a fingerprint, and answers can show nothing else",
            expected="keys with settings for many recipients", advice="Examine the suspect's weights",
        )  # fmt: skip
    places = len(places_of(keys, model))
    corrections = math.log10(keys_tried * len(MAPS) * FORMS * places * TRIES)
    earlier: list[tuple[int, list[list[Evidence]]]] = []
    fits = fits if len(answers.sequences) >= LEAST_ANSWERS else None
    noted = lambda tokens, readings: earlier.append((tokens, readings))  # noqa: E731
    tried = tries_of(answers, model, keys, device, progress, fits, decoys, noted)

    def traces_of(strongest: Sequence[Evidence]) -> list[Trace]:
        return [trace_of(key, each, corrections, risk) for key, each in zip(keys, strongest, strict=False)]

    by_try, ended = _until_named(strongest_by_try(tried), traces_of, tries_made)
    if ended == ALL_MADE and fits is None:
        ended = NOT_REQUESTED if len(answers.sequences) >= LEAST_ANSWERS else TOO_FEW
    strongest = by_try[-1]
    traces = traces_of(strongest)
    likeliest = max(range(len(keys)), key=lambda i: strength(strongest[i]))
    best, named = strongest[likeliest], sum(trace.named for trace in traces)
    rows = max(trace.rows for trace in traces)
    return Tracing(
        traces=tuple(traces),
        decoys=np.array([each.z for each in strongest[len(keys) :]]),
        keys_tried=keys_tried,
        risk=risk,
        alignment=_nowhere(model),
        tensors_read=1,
        maps=len(MAPS),
        by=best.by,
        looks=1,
        rows=rows,
        first_pass_rows=rows,
        reason=recognised(named, aligned=False, why="", nothing=False, text=True)[0],
        places=places,
        place=best.place,
        tries=TRIES,
        tries_made=len(by_try),
        tries_ended=ended,
        growth=_growth(earlier, likeliest, best, answers.tokens),
    )


def _until_named(
    tried: Iterator[list[Evidence]], traces_of: Callable[[Sequence[Evidence]], list[Trace]], tries_made: int | None
) -> tuple[list[list[Evidence]], str]:
    """The evidence after each try that was made, and one of `TRIES_ENDED`; arguments as `trace_generated`.

    A fit that fails ends the tries. The correction is for all fits, so those that were made are valid without it.
    """
    by_try: list[list[Evidence]] = []
    try:
        for strongest in tried:
            by_try.append(strongest)
            named = any(trace.named for trace in traces_of(strongest))
            if len(by_try) == tries_made or (tries_made is None and named):
                return by_try, NAMED if named else ALL_MADE
    except (UnsupportedCheckpointError, InsufficientMemoryError) as error:
        if not by_try or tries_made is not None:
            raise
        return by_try, NO_MEMORY if isinstance(error, InsufficientMemoryError) else UNSUPPORTED
    return by_try, ALL_MADE


def _growth(
    earlier: Sequence[tuple[int, list[list[Evidence]]]], key: int, best: Evidence, tokens: int
) -> tuple[tuple[int, float], ...]:
    """z of one key by the number of tokens, all read as `best`; only all tokens are read after a fit."""
    points = [
        (count, each[key].z)
        for count, readings in earlier
        for each in readings
        if (each[key].place, each[key].by) == (best.place, best.by)
    ]
    return (*points, (tokens, best.z))


def unread_mark(key: Key, model: Checkpoint, keys_tried: int, seed: int) -> Finding:
    """The finding of a key on tokens: its mark was not read, so it is "inconclusive"."""
    params = key.parameters
    nothing = np.full((params.positions, 1 + params.permutations), np.nan)
    reading = reading_of("joint", "original", nothing[:, 0], nothing[:, 1:], params)
    alignment = _nowhere(model)
    forms = FORMS if params.noise_coordinates else 1
    places = len(places_of([key], model))
    comparisons = keys_tried * len(MAPS) * forms * places
    verdict, reason = judge(reading, params, alignment, (), comparisons, EMBEDDING)
    return Finding(
        verdict=verdict,
        reason=reason,
        reading=reading,
        paper=None,
        alignment=alignment,
        lineage=Lineage(CANNOT_TELL, math.nan, math.nan, NO_MARK),
        parameters=params,
        commitment=key.commitment,
        marked_rows=key.choices().marked_rows,
        seed=seed,
        keys_tried=keys_tried,
        maps=len(MAPS),
        forms=forms,
        places=places,
        elsewhere=reading if places > 1 else None,
    )


def _nowhere(model: Checkpoint) -> Alignment:
    """The alignment of a suspect without rows: all rows of the original are gone."""
    rows = np.full(model.vocab_size, -1, dtype=np.int64)
    return Alignment.unmoved(TensorRef(""), NO_MARK, rows, model.hidden_size)
