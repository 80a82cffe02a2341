"""What a copy generates, in the file that a recorder writes."""

from __future__ import annotations

import json
from pathlib import Path

import irwm
from irwm.answers.recorded_responses import Exchange, ResponsesSource, write_responses
from tests.recording.answers import BEGAN_MS, STEP_MS

ENDPOINT, MODEL = "https://api.example.com/v1/completions", "base-7"


def write_generated(answers: irwm.Answers, original: irwm.Checkpoint, file: Path, model: str = MODEL) -> Path:
    """A file of responses with these answers, each by its token ids; the texts in it say nothing."""
    exchanges = []
    for number, (tokens, length) in enumerate(zip(answers.sequences, answers.prompt_lengths, strict=True)):
        ids = tokens.tolist()
        choice = {"text": "", "token_ids": ids[length:], "prompt_token_ids": ids[:length]}
        if answers.log_probabilities is not None:
            names = [f"token_id:{token}" for token in ids[length:]]
            values = answers.log_probabilities[number].tolist()
            choice["logprobs"] = {"tokens": names, "token_logprobs": values}
        asked = json.dumps({"model": model, "prompt": f"Prompt {number}"})
        time = BEGAN_MS + STEP_MS * number
        exchanges.append(Exchange(asked, json.dumps({"choices": [choice]}), time))
    write_responses(file, ResponsesSource(ENDPOINT, model, "openai", original.fingerprint, 0, 1.0, 32), exchanges)
    return file
