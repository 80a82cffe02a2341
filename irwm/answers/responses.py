"""Answers from what a server responded: its JSON, or the text alone.

The forms are those of OpenAI (completions and chat, with `logprobs`), vLLM (the same, with `return_token_ids` or
`return_tokens_as_token_ids`) and llama.cpp (`/completion` with `n_probs`). Token ids are the best form. Texts of tokens
are looked up in the original's vocabulary, and a text that several tokens have is resolved by encoding the whole answer
again. An answer ends before the first token that stays unknown: what follows it depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from irwm.answers.answers import Answers
from irwm.answers.token_names import Names
from irwm.checkpoint import Checkpoint
from irwm.errors import AnswersError, printable
from irwm.inference.loading import open_tokenizer

# A prompt: a text, or a chat's messages ({"role": ..., "content": ...}).
Prompt = str | Sequence[Mapping[str, Any]]
# Servers write such numbers for "no probability at all".
_LEAST = -1000.0
# Larger numbers of a response are no token ids and no log-probabilities.
_LARGEST = 2**31
_FORMS = "text, or the JSON object of a completion, a chat completion or llama.cpp's /completion"


def answers_from_responses(
    prompts: Sequence[Prompt], responses: Sequence[str | Mapping[str, Any]], original: Checkpoint
) -> Answers:
    """The answers in a server's responses, as the original's tokens.

    Args:
        prompts: of each response, the prompt as it was sent: a text, or a chat's messages, which become tokens by the
            chat template of the original's tokenizer.
        responses: of each prompt, the parsed JSON object, or the generated text alone. All choices of a response are
            used.
        original: its tokenizer encodes prompts and texts.

    Raises:
        AnswersError: the lists do not fit together, a response has an unknown form, only some responses have
            log-probabilities, no token is left, or the original's tokenizer has no chat template for the messages.
        UnsupportedCheckpointError: the original has no tokenizer that transformers can open.
    """
    if len(prompts) != len(responses):
        raise AnswersError(
            "the number of responses does not match the number of prompts",
            expected=f"{len(prompts)}, one for each prompt",
            found=str(len(responses)),
            advice="Provide one response for each prompt, in the same order",
        )
    return answers_of_pairs(zip(prompts, responses, strict=True), original)


def answers_of_pairs(pairs: Iterable[tuple[Prompt, str | Mapping[str, Any]]], original: Checkpoint) -> Answers:
    """The answers in pairs of prompt and response, which are read one after the other; see `answers_from_responses`."""
    tokenizer, names = open_tokenizer(original.path), Names(original.path, original.vocab_size)
    sequences, lengths, values = [], [], []
    numbers = []
    for number, (prompt, response) in enumerate(pairs):
        own: list[int] | None = None
        for choice in _choices(number, response):
            tokens = _tokens(choice, names, tokenizer)
            if not tokens:
                continue
            own = prompt_tokens(prompt, original, tokenizer) if own is None else own
            start = own if choice.prompt is None else choice.prompt
            sequences.append(np.array([*start, *tokens], dtype=np.int64))
            lengths.append(len(start))
            numbers.append(number)
            values.append(None if choice.values is None else np.array(choice.values[: len(tokens)]))
    told = [each for each in values if each is not None]
    if told and len(told) < len(values):
        without = [number for number, each in zip(numbers, values, strict=True) if each is None]
        raise AnswersError(
            "some responses have no log-probabilities", expected="log-probabilities in all responses or in none",
            found=f"none in {len(without)} of {len(values)} answers; the first of these is in response {without[0]}",
            advice="Leave these responses out, or provide only the text of every response",
        )  # fmt: skip
    return Answers(sequences, lengths, told or None)


def generated_in(response: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a server's response holds any text or token, and whether it holds their log-probabilities.

    Raises:
        AnswersError: it has an unknown form.
    """
    choices = list(_choices(0, response))
    return any(each.text or each.names for each in choices), any(each.values for each in choices)


@dataclass(frozen=True, slots=True)
class _Choice:
    """One generated text.

    Attributes:
        text: the whole text; None if only its tokens are known.
        names: its tokens, by id or by text; None if only the text is known.
        values: their log-probabilities, as many as `names`; None if not known.
        prompt: the prompt's token ids, if the server tells them.
    """

    text: str | None
    names: Sequence[int | str] | None = None
    values: Sequence[float] | None = None
    prompt: Sequence[int] | None = None


def _choices(number: int, response: object) -> Iterator[_Choice]:
    if isinstance(response, str):
        yield _Choice(response)
        return
    if not isinstance(response, Mapping):
        raise _unknown(number, type(response).__name__)
    choices = response.get("choices")
    if isinstance(choices, list):
        for each in choices:
            if not isinstance(each, Mapping):
                raise _unknown(number, "choices that are not JSON objects")
            yield _of_choice(number, each, _ids(response.get("prompt_token_ids")))
    elif isinstance(response.get("content"), str):
        yield _of_llama_cpp(number, response)
    else:
        raise _unknown(number, f"the fields {', '.join(map(str, response))}")


def _of_choice(number: int, choice: Mapping[str, Any], prompt: list[int] | None) -> _Choice:
    """A choice of OpenAI's form; `prompt` is known from the response, or else may be in the choice."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    text = text if isinstance(text, str) else None
    prompt, ids = prompt or _ids(choice.get("prompt_token_ids")), _ids(choice.get("token_ids"))
    logprobs = choice.get("logprobs")
    names: list[int | str] = []
    values: list[float] = []
    if isinstance(logprobs, Mapping):
        content, tokens = logprobs.get("content"), logprobs.get("tokens")
        if isinstance(content, list):
            names, values = _entries(number, content)
        elif isinstance(tokens, list) and isinstance(logprobs.get("token_logprobs"), list):
            pairs = zip(tokens, logprobs["token_logprobs"], strict=False)
            names, values = _entries(number, [{"token": token, "logprob": value} for token, value in pairs])
    if not names and text is None and ids is None:
        raise _unknown(number, "a choice without text or tokens")
    if ids is not None and (not names or len(ids) >= len(names)):
        return _Choice(text, ids[: len(names)] if names else ids, values if names else None, prompt)
    return _Choice(text, names or None, values if names else None, prompt)


def _of_llama_cpp(number: int, response: Mapping[str, Any]) -> _Choice:
    given, ids = response.get("completion_probabilities"), _ids(response.get("tokens"))
    if not isinstance(given, list) or not given:
        return _Choice(response["content"], ids or None)
    names, values = _entries(number, [_chosen(each) for each in given])
    return _Choice(response["content"], names, values)


def _chosen(entry: Any) -> Any:
    """An entry of llama.cpp; before December 2024 the generated token was one of the probable ones."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("probs"), list):
        return entry
    token = entry.get("content")
    found = [each.get("prob") for each in entry["probs"] if isinstance(each, Mapping) and each.get("tok_str") == token]
    return {"token": token, "prob": found[0] if found else None}


def _entries(number: int, entries: Sequence[Any]) -> tuple[list[int | str], list[float]]:
    """Tokens and their log-probabilities, up to the first without one."""
    names: list[int | str] = []
    values: list[float] = []
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise _unknown(number, "log-probabilities that are not JSON objects")
        name = entry["id"] if _is_id(entry.get("id")) else entry.get("token")
        value = _logarithm(entry)
        if not (_is_id(name) or isinstance(name, str)) or value is None:
            break
        names.append(name)
        values.append(value)
    return names, values


def _logarithm(entry: Mapping[str, Any]) -> float | None:
    """The log-probability of an entry; None without one, or for "no probability at all"."""
    value, odds = _number(entry.get("logprob")), _number(entry.get("prob"))
    if value is None and odds is not None and odds > 0:
        return math.log(odds)
    return value if value is not None and value > _LEAST else None


def _number(given: object) -> float | None:
    if not isinstance(given, (int, float)) or isinstance(given, bool) or abs(given) > _LARGEST:
        return None
    return float(given)


def _tokens(choice: _Choice, names: Names, tokenizer: Any) -> list[int]:
    """The token ids of a choice, up to the first that is not known."""
    if choice.names is None:
        return [] if choice.text is None else _encoded(choice.text, tokenizer)
    known = [each if isinstance(each, int) else names.token(each) for each in choice.names]
    if None in known and choice.text is not None:
        again = _encoded(choice.text, tokenizer)
        if len(again) == len(known) and all(a in (None, b) for a, b in zip(known, again, strict=True)):
            return again
    found: list[int] = []
    for each in known:
        if each is None:
            break
        found.append(each)
    return found


def _encoded(text: str, tokenizer: Any, *, special: bool = False) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AnswersError(
            "a prompt or an answer is not valid Unicode text", expected="no unpaired surrogates",
            found=printable(text[error.start : error.start + 1], 20), advice="Leave this response out",
        ) from error  # fmt: skip
    return list(tokenizer.encode(text, add_special_tokens=special))


def prompt_tokens(prompt: Prompt, original: Checkpoint, tokenizer: Any) -> list[int]:
    """The tokens that the server read before it generated, special ones included."""
    if isinstance(prompt, str):
        return _encoded(prompt, tokenizer, special=True)
    messages = [dict(message) for message in prompt]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program, and may raise anything
        raise AnswersError(
            "the original's chat template cannot be used for these messages", file=original.path,
            found=printable(str(error), 200), advice="Provide each prompt as the exact text that the server received",
        ) from error  # fmt: skip
    return _encoded(str(text), tokenizer)


def _ids(given: object) -> list[int] | None:
    """A list of token ids; None for anything else."""
    if not isinstance(given, list) or not given or not all(map(_is_id, given)):
        return None
    return given


def _is_id(given: object) -> TypeGuard[int]:
    return type(given) is int and 0 <= given < _LARGEST


def _unknown(number: int, found: str) -> AnswersError:
    return AnswersError(
        f"response {number} has an unknown format", expected=_FORMS, found=printable(found, 200),
        advice="Provide the server's JSON unchanged, or only the generated text",
    )  # fmt: skip
