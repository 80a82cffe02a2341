"""A tokenizer's files after token ids were changed: every id in them is mapped, and tokens without a row are removed.

Only the JSON and text files are handled, without a tokenizer library. SentencePiece's binary `tokenizer.model` cannot
be renumbered, and loaders do not need it if there is a tokenizer.json next to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from irwm.attacks.equivalence.state import State
from irwm.checkpoint.tokens import TOKENIZER_FILES, TokenizerJson
from irwm.families.configvalues import ConfigJson

_CHAT_TEMPLATES = ("chat_template.jinja", "chat_template.json")
BINARY_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
# Lists of token ids in config.json and generation_config.json, in addition to the keys ending in _token_id(s).
_ID_LISTS = ("suppress_tokens", "begin_suppress_tokens")
# So low that the placeholder for a hole is never the best encoding of a text.
_HOLE_SCORE = -1e6


def special_ids(state: State) -> frozenset[int]:
    """Ids that the model's configs and tokenizer name: special and added tokens, which an attacker would not trim."""
    found = set(_config_ids(state.config)) | set(_config_ids(state.json("generation_config.json") or {}))
    tokenizer = state.json("tokenizer.json") or {}
    found |= {entry["id"] for entry in tokenizer.get("added_tokens") or ()}
    found |= {i for ids in _post_processor_ids(tokenizer.get("post_processor")) for i in ids}
    unknown = (tokenizer.get("model") or {}).get("unk_id")
    found |= {unknown} if isinstance(unknown, int) else set()
    found |= {int(key) for key in (state.json("tokenizer_config.json") or {}).get("added_tokens_decoder") or ()}
    return frozenset(found | set((state.json("added_tokens.json") or {}).values()))


def alphabet_ids(state: State) -> frozenset[int]:
    """Ids of single characters and bytes, without which a BPE or unigram tokenizer cannot encode every text."""
    model = (state.json("tokenizer.json") or {}).get("model") or {}
    return frozenset(i for token, i in _vocabulary(model) if len(token) == 1 or token.startswith("<0x"))


def renumbered(state: State, new_ids: Sequence[int]) -> tuple[ConfigJson, dict[str, bytes]]:
    """Config and companion files under new token ids.

    Args:
        state: the model with its old ids.
        new_ids: the new id of each old id, -1 for a removed token.

    Returns:
        The config and the files. Ids beyond `new_ids` belong to no row: configs keep them, the tokenizer drops them.
    """
    files = dict(state.files)
    config = _with_ids(state.config, new_ids)
    generation = state.json("generation_config.json")
    if generation is not None:
        files["generation_config.json"] = _dumped(_with_ids(generation, new_ids))
    tokens: set[str] = set()
    tokenizer = state.json("tokenizer.json")
    if tokenizer is not None:
        files["tokenizer.json"] = _dumped(_tokenizer(tokenizer, new_ids, tokens))
        for name in BINARY_FILES:
            files.pop(name, None)
    settings = state.json("tokenizer_config.json")
    if settings is not None and settings.get("added_tokens_decoder"):
        entries = settings["added_tokens_decoder"].items()
        kept = {str(new): entry for key, entry in entries if (new := _new(int(key), new_ids)) is not None}
        files["tokenizer_config.json"] = _dumped({**settings, "added_tokens_decoder": kept})
    for name in ("added_tokens.json", "vocab.json"):
        table = state.json(name)
        if table is not None:
            mapped = _mapped(table, new_ids)
            tokens |= mapped.keys()
            files[name] = _dumped(mapped)
    if "merges.txt" in files:
        lines = files["merges.txt"].decode("utf-8").split("\n")
        files["merges.txt"] = "\n".join(line for line in lines if _merge_holds(line, tokens)).encode("utf-8")
    if "vocab.txt" in files:
        lines = files["vocab.txt"].decode("utf-8").removesuffix("\n").split("\n")
        table = _mapped({line: i for i, line in enumerate(lines)}, new_ids)
        files["vocab.txt"] = ("\n".join(_filled(table)) + "\n").encode("utf-8")
    return config, files


def without_tokenizer(state: State) -> dict[str, bytes]:
    """The companion files less the tokenizer's."""
    return {name: content for name, content in state.files.items() if name not in {*TOKENIZER_FILES, *_CHAT_TEMPLATES}}


def _tokenizer(tokenizer: TokenizerJson, new_ids: Sequence[int], tokens: set[str]) -> TokenizerJson:
    """tokenizer.json under new ids; the names of the remaining tokens are added to `tokens`."""
    model = dict(tokenizer["model"])
    table = _mapped(dict(_vocabulary(model)), new_ids)
    added = [
        {**entry, "id": new}
        for entry in tokenizer.get("added_tokens") or ()
        if (new := _new(entry["id"], new_ids)) is not None
    ]
    tokens |= table.keys()
    if isinstance(model["vocab"], list):
        scores = dict(model["vocab"])
        filled = {**table, **{entry["content"]: entry["id"] for entry in added}}
        model["vocab"] = [[piece, scores.get(piece, _HOLE_SCORE)] for piece in _filled(filled)]
        if isinstance(model.get("unk_id"), int):
            model["unk_id"] = _new(model["unk_id"], new_ids)
    else:
        model["vocab"] = dict(sorted(table.items(), key=lambda item: item[1]))
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if _merge_holds(merge, tokens)]
    result = {**tokenizer, "model": model, "added_tokens": sorted(added, key=lambda entry: int(entry["id"]))}
    for ids in _post_processor_ids(result.get("post_processor")):
        ids[:] = [new for i in ids if (new := _new(i, new_ids)) is not None]
    _map_pairs(result.get("post_processor"), new_ids)
    padding = result.get("padding")
    if isinstance(padding, dict) and isinstance(padding.get("pad_id"), int):
        result["padding"] = {**padding, "pad_id": _new(padding["pad_id"], new_ids) or 0}
    return result


def _vocabulary(model: TokenizerJson) -> Iterator[tuple[str, int]]:
    """Token and id: a mapping for BPE and WordPiece, a list of pairs in the order of their ids for Unigram."""
    vocab = model.get("vocab") or {}
    if isinstance(vocab, dict):
        yield from vocab.items()
    else:
        yield from ((pair[0], i) for i, pair in enumerate(vocab))


def _processors(processor: Any) -> Iterator[dict[str, Any]]:
    if isinstance(processor, dict):
        yield processor
        for inner in processor.get("processors") or ():
            yield from _processors(inner)


def _post_processor_ids(processor: Any) -> Iterator[list[int]]:
    """The lists of ids that a template adds around a text; to read, or to change in place on a fresh copy."""
    for one in _processors(processor):
        if isinstance(one.get("special_tokens"), dict):
            yield from (entry["ids"] for entry in one["special_tokens"].values())


def _map_pairs(processor: Any, new_ids: Sequence[int]) -> None:
    """Maps the [token, id] pairs of BERT's and RoBERTa's own post-processors, in place on a fresh copy."""
    for one in _processors(processor):
        for key in ("sep", "cls"):
            if isinstance(one.get(key), list):
                one[key] = [one[key][0], _new(one[key][1], new_ids)]


def _config_ids(config: ConfigJson) -> Iterator[int]:
    for key, value in config.items():
        if key.endswith(("_token_id", "_token_ids")):
            yield from (i for i in (value if isinstance(value, list) else [value]) if type(i) is int)


def _with_ids(config: ConfigJson, new_ids: Sequence[int]) -> ConfigJson:
    def mapped(value: Any) -> Any:
        if isinstance(value, list):
            return [new for new in map(mapped, value) if new is not None]
        if type(value) is not int or not 0 <= value < len(new_ids):
            return value
        return _new(value, new_ids)

    holds = {key for key in config if key.endswith(("_token_id", "_token_ids")) or key in _ID_LISTS}
    return {key: mapped(value) if key in holds else value for key, value in config.items()}


def _new(old: int, new_ids: Sequence[int]) -> int | None:
    return new_ids[old] if 0 <= old < len(new_ids) and new_ids[old] >= 0 else None


def _mapped(table: Mapping[str, int], new_ids: Sequence[int]) -> dict[str, int]:
    return {token: new for token, old in table.items() if (new := _new(old, new_ids)) is not None}


def _filled(table: Mapping[str, int]) -> list[str]:
    """Tokens in the order of their ids. Formats without explicit ids get a placeholder for each hole."""
    tokens = {i: token for token, i in table.items()}
    return [tokens.get(i, f"[hole{i}]") for i in range(max(tokens, default=-1) + 1)]


def _merge_holds(merge: Any, tokens: set[str]) -> bool:
    """Whether both parts of a merge and its result are still in the vocabulary; true for other lines of the file."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if len(parts) != 2 or parts[0].startswith("#version"):
        return True
    return parts[0] in tokens and parts[1] in tokens and parts[0] + parts[1] in tokens


def _dumped(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8")
