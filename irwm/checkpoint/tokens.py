"""Finds the rows of the embedding whose tokens never occur in text.

Special, added, reserved and byte-fallback tokens are rarely or never trained, get rewritten by fine-tuning, and are
the first that an attacker would check. A mark must not use their rows. Everything here comes from the model's own
JSON and text files, or from its GGUF file; no tokenizer is loaded and no code is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from irwm.checkpoint.files import read_json_object, read_small
from irwm.checkpoint.formats import GGUF
from irwm.checkpoint.formats.content import Metadata
from irwm.checkpoint.model import Checkpoint, folder_of
from irwm.errors import CorruptCheckpointError
from irwm.families.building import MOST_ROWS
from irwm.families.configvalues import ConfigJson
from irwm.families.identification import language_sections

# File names of tokenizers, in the order in which transformers prefers them.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)

# The content of tokenizer.json, or of another JSON file of a tokenizer.
TokenizerJson = Mapping[str, Any]

# The largest real tokenizer.json files have about 35 MB.
_MAX_TOKENIZER_BYTES = 128 * 1024 * 1024
# BERT's "[unused12]", Gemma's "<unused12>", and SentencePiece's byte fallback "<0x0A>".
_NO_TEXT = re.compile(r"\[unused\d+\]|<unused\d+>|<0x[0-9A-Fa-f]{2}>")
# GGUF's kinds of tokens: 1 is a normal one; unknown, control, added, unused and byte tokens are 2 to 6.
_ORDINARY, _CONTROL = 1, 3


def special_token_ids(checkpoint: Checkpoint) -> frozenset[int]:
    """Ids, within the vocabulary, of special, added, unused and byte-fallback tokens.

    The ids come from config.json's ..._token_id entries and, if they exist next to the weights, tokenizer.json,
    tokenizer_config.json, added_tokens.json and vocab.txt. Without any tokenizer file only the config's ids are known.

    Raises:
        CorruptCheckpointError: one of these files is too large, not valid JSON, or a link out of the folder.
        NotACheckpointError: one of them is unreadable or not a regular file.
    """
    found: set[int] = set(_config_ids(checkpoint.config))
    vocab_size, checkpoint = checkpoint.vocab_size, with_tokenizer(checkpoint)
    if checkpoint.format is GGUF:
        found.update(
            i for token, i, kind in _gguf(checkpoint.metadata) if kind != _ORDINARY or _NO_TEXT.fullmatch(token)
        )
        return frozenset(i for i in found if 0 <= i < vocab_size)
    folder = folder_of(checkpoint)
    tokenizer = _json(folder, "tokenizer.json")
    found.update(i for _, i in _added(tokenizer))
    found.update(_without_text(_vocabulary(tokenizer.get("model"))))
    decoder = _json(folder, "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(decoder, dict):
        # Texts longer than any id are skipped; Python would refuse to convert thousands of digits.
        found.update(int(key) for key in decoder if key.isascii() and key.isdigit() and len(key) < 12)
    found.update(_whole(_json(folder, "added_tokens.json").values()))
    found.update(_without_text(_lines(folder)))
    return frozenset(i for i in found if 0 <= i < vocab_size)


def with_tokenizer(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint whose tokenizer is used: an adapter without a tokenizer uses its base's."""
    while checkpoint.base is not None and not tokenizer_files(folder_of(checkpoint)):
        checkpoint = checkpoint.base
    return checkpoint


def tokenizer_files(folder: Path) -> tuple[str, ...]:
    """The names of the tokenizer's files in a folder."""
    return tuple(name for name in TOKENIZER_FILES if os.path.lexists(folder / name))


def _config_ids(config: ConfigJson) -> Iterator[int]:
    """Ids under keys such as bos_token_id, in the config and in the section of a multimodal model's language model."""
    for section in language_sections(config):
        for key, value in section.items():
            if key.endswith(("_token_id", "_token_ids")):
                yield from _whole(value if isinstance(value, list) else [value])


def _whole(values: Iterable[Any]) -> Iterator[int]:
    return (value for value in values if type(value) is int)


def _added(tokenizer: TokenizerJson) -> Iterator[tuple[Any, int]]:
    """Content, which may be anything, and id of tokenizer.json's added_tokens, special or not.

    The vocabulary's training created none of them.
    """
    entries = tokenizer.get("added_tokens")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and type(entry.get("id")) is int:
            yield entry.get("content"), entry["id"]


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
    content = read_small(path, _MAX_TOKENIZER_BYTES, "vocabulary", folder)
    if content.count(b"\n") > MOST_ROWS:
        raise CorruptCheckpointError("The vocabulary has too many lines", file=path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError("The vocabulary is not UTF-8 text", file=path) from error
    yield from ((line.rstrip("\r"), i) for i, line in enumerate(text.split("\n")))


def _gguf(metadata: Metadata) -> Iterator[tuple[str, int, int]]:
    """Token, id and GGUF's kind of token. The token is spelt as in tokenizer.json.

    Only WordPiece is spelt differently in GGUF: the beginning of a word has SentencePiece's mark in front, and a
    continuation lacks its "##".
    """
    tokens, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list):
        return
    kinds = kinds if isinstance(kinds, list) and len(kinds) == len(tokens) else [_ORDINARY] * len(tokens)
    pieces = metadata.get("tokenizer.ggml.model") == "bert"
    for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if not isinstance(token, str) or type(kind) is not int:
            continue
        if pieces and kind != _CONTROL:
            token = token[1:] if token.startswith("\u2581") else f"##{token}"
        yield token, i, kind


def _without_text(vocabulary: Iterable[tuple[str, int]]) -> Iterator[int]:
    return (i for token, i in vocabulary if _NO_TEXT.fullmatch(token))


def _json(folder: Path, name: str) -> TokenizerJson:
    path = folder / name
    if not os.path.lexists(path):
        return {}
    return read_json_object(path, _MAX_TOKENIZER_BYTES, name, folder=folder)


def token_ids(checkpoint: Checkpoint) -> dict[str, int]:
    """Every token's string and id, within the vocabulary; {} if no file next to the weights contains them.

    Raises:
        CorruptCheckpointError, NotACheckpointError: as `special_token_ids`.
    """
    vocab_size, checkpoint = checkpoint.vocab_size, with_tokenizer(checkpoint)
    if checkpoint.format is GGUF:
        return {token: i for token, i, _ in _gguf(checkpoint.metadata) if i < vocab_size}
    folder = folder_of(checkpoint)
    tokenizer = _json(folder, "tokenizer.json")
    found = dict(_vocabulary(tokenizer.get("model"))) or dict(_lines(folder))
    found |= {token: i for token, i in _added(tokenizer) if isinstance(token, str)}
    return {token: i for token, i in found.items() if 0 <= i < vocab_size}
