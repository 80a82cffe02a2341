"""The tokenizer of a model folder, as the settings of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irwm.checkpoint.tokens import TokenizerJson
from irwm.families.configvalues import ConfigJson
from irwm.families.family import Writing

if TYPE_CHECKING:
    import gguf

# Kinds of tokens (gguf.TokenType).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
# GGUF's kinds of tokenizers, each named after the first model that had it: pieces of words, of bytes, or of text.
_WORDPIECE, _BYTES, _SENTENCEPIECE = "bert", "gpt2", "llama"
_SPECIAL = ("bos", "eos", "unk", "sep", "pad", "mask")
# The score that llama.cpp's converter gives each token if only the merges are known.
_NO_SCORE = -1000.0


def write_vocabulary(writer: gguf.GGUFWriter, rules: Writing, folder: Path, config: ConfigJson, rows: int) -> None:
    """Write the tokens' texts, kinds and merges, as far as a tokenizer.json has them.

    Args:
        rules: the rules of the model's family.
        folder: the tokenizer's folder; without a supported tokenizer.json the file has no vocabulary.
        rows: rows of the embedding; rows without a token are called unused.
    """
    tokenizer = _read(folder)
    model = tokenizer.get("model") or {}
    kind, vocabulary = model.get("type"), model.get("vocab")
    if kind not in ("BPE", "WordPiece") or not isinstance(vocabulary, dict):
        writer.add_tokenizer_model("no_vocab")
        return
    added = {token["id"]: token for token in tokenizer.get("added_tokens") or ()}
    texts = {number: text for text, number in vocabulary.items()} | {i: t["content"] for i, t in added.items()}
    unknown = model.get("unk_token")
    tokens, kinds = [], []
    pieces = bool(model.get("byte_fallback"))
    for number in range(rows):
        text = texts.get(number)
        tokens.append(f"[PAD{number}]" if text is None else text)
        kinds.append(_kind(text, added.get(number), unknown, bytes_too=pieces))
    if kind == "WordPiece":
        tokens = [text if kinds[i] == _CONTROL else _phantom(text) for i, text in enumerate(tokens)]
    writer.add_tokenizer_model(_WORDPIECE if kind == "WordPiece" else _SENTENCEPIECE if pieces else _BYTES)
    if kind == "BPE" and not pieces:
        cut = tokenizer.get("pre_tokenizer") or {}
        alone = cut.get("type") == "ByteLevel" and cut.get("use_regex", True)
        writer.add_tokenizer_pre("gpt-2" if alone else rules.word_cuts.get(str(config.get("model_type")), "default"))
    writer.add_token_list(tokens)
    if pieces:
        writer.add_token_scores([_NO_SCORE] * rows)
    writer.add_token_types(kinds)
    if kind == "BPE" and (merges := list(_merges(model.get("merges") or ()))):
        writer.add_token_merges(merges)
    _write_special(writer, rules, config, {text: number for number, text in texts.items()}, model)


def _read(folder: Path) -> TokenizerJson:
    try:
        found = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _kind(text: str | None, added: TokenizerJson | None, unknown: str | None, *, bytes_too: bool) -> int:
    if text is None:
        return _UNUSED
    if bytes_too and text == unknown:
        return _UNKNOWN
    if added is not None:
        return _CONTROL if added.get("special") else _USER_DEFINED
    if bytes_too and len(text) == 6 and text.startswith("<0x"):
        return _BYTE
    return _NORMAL


def _phantom(text: str) -> str:
    """llama.cpp marks the beginning of a word, BERT its continuation."""
    return text[2:] if text.startswith("##") else f"▁{text}"


def _merges(merges: Iterable[Any]) -> Iterable[str]:
    """One text per merge, with a space between its halves; a space within a half becomes Ġ, as in the converter."""
    for merge in merges:
        yield merge if isinstance(merge, str) else " ".join(part.replace(" ", "Ġ") for part in merge)


def _write_special(
    writer: gguf.GGUFWriter,
    rules: Writing,
    config: ConfigJson,
    ids: Mapping[str, int],
    model: TokenizerJson,
) -> None:
    named = {"unk": ids.get(model.get("unk_token") or ""), "sep": ids.get("[SEP]"), "mask": ids.get("[MASK]")}
    if rules.first_token is not None:
        named["bos"] = ids.get(rules.first_token)
    for name in _SPECIAL:
        number = config.get(f"{name}_token_id")
        if isinstance(number, list):  # several ends of a text; the file has a place for one
            number = number[0] if number else None
        number = named.get(name) if number is None else number
        if type(number) is int and number >= 0:
            getattr(writer, f"add_{name}_token_id")(number)
