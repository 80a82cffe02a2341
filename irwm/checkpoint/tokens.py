"""Which rows of the embedding belong to tokens that no text is made of.

Special, added, reserved and byte-fallback tokens are rarely or never trained, get rewritten by fine-tuning, and are
the first that a thief would look at. A mark must not lie in their rows. Everything here comes from the model's own
JSON and text files; no tokenizer is loaded and no code is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from irwm.checkpoint.files import read_json_object, read_small, require_inside
from irwm.checkpoint.model import Checkpoint, folder_of
from irwm.errors import CorruptCheckpointError

# The largest real tokenizer.json are some 35 MB.
_MAX_TOKENIZER_BYTES = 128 * 1024 * 1024
# BERT's "[unused12]", Gemma's "<unused12>", and SentencePiece's byte fallback "<0x0A>".
_NO_TEXT = re.compile(r"\[unused\d+\]|<unused\d+>|<0x[0-9A-Fa-f]{2}>")


def special_token_ids(checkpoint: Checkpoint) -> frozenset[int]:
    """Ids, within the vocabulary, of special, added, unused and byte-fallback tokens.

    Read are config.json's ..._token_id entries and, where they exist beside the weights, tokenizer.json,
    tokenizer_config.json, added_tokens.json and vocab.txt. Without any tokenizer file only the config's ids are known.

    Raises:
        CorruptCheckpointError: one of these files is too large, no valid JSON, or a link out of the folder.
        NotACheckpointError: one of them is unreadable or no regular file.
    """
    folder = folder_of(checkpoint)
    found: set[int] = set(_config_ids(checkpoint.config))
    tokenizer = _json(folder, "tokenizer.json")
    found.update(_added(tokenizer.get("added_tokens")))
    found.update(_without_text(_vocabulary(tokenizer.get("model"))))
    decoder = _json(folder, "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(decoder, dict):
        # Longer digits than any id are no id; Python would refuse to convert thousands of them.
        found.update(int(key) for key in decoder if key.isascii() and key.isdigit() and len(key) < 12)
    found.update(_whole(_json(folder, "added_tokens.json").values()))
    found.update(_without_text(_lines(folder)))
    return frozenset(i for i in found if 0 <= i < checkpoint.vocab_size)


def _config_ids(config: Mapping[str, Any]) -> Iterator[int]:
    """Ids under keys such as bos_token_id, in the config and in a multimodal model's text_config."""
    text = config.get("text_config")
    for section in (config, text) if isinstance(text, dict) else (config,):
        for key, value in section.items():
            if key.endswith(("_token_id", "_token_ids")):
                yield from _whole(value if isinstance(value, list) else [value])


def _whole(values: Iterable[Any]) -> Iterator[int]:
    return (value for value in values if type(value) is int)


def _added(entries: Any) -> Iterator[int]:
    """Ids of tokenizer.json's added_tokens, special or not: none of them comes from the vocabulary's training."""
    if isinstance(entries, list):
        yield from _whole(entry.get("id") for entry in entries if isinstance(entry, dict))


def _vocabulary(model: Any) -> Iterator[tuple[str, int]]:
    """Token and id of tokenizer.json's model: a mapping for BPE and WordPiece, a list of pairs for Unigram."""
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        yield from ((token, i) for token, i in vocab.items() if type(i) is int)
    elif isinstance(vocab, list):
        for i, pair in enumerate(vocab):
            if isinstance(pair, list) and pair and isinstance(pair[0], str):
                yield pair[0], i


def _lines(folder: Path) -> Iterator[tuple[str, int]]:
    """Token and id of BERT's vocab.txt: the token on line i has id i."""
    path = folder / "vocab.txt"
    if not os.path.lexists(path):
        return
    require_inside(path, folder)
    content = read_small(path, _MAX_TOKENIZER_BYTES, "vocabulary")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError("The vocabulary is not UTF-8 text", file=path) from error
    yield from ((line.rstrip("\r"), i) for i, line in enumerate(text.split("\n")))


def _without_text(vocabulary: Iterable[tuple[str, int]]) -> Iterator[int]:
    return (i for token, i in vocabulary if _NO_TEXT.fullmatch(token))


def _json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    if not os.path.lexists(path):
        return {}
    require_inside(path, folder)
    return read_json_object(path, _MAX_TOKENIZER_BYTES, name)
