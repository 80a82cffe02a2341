"""The files of a checkpoint's folder that a release contains: its weights, and files with names known to be harmless.

A list of files to omit is never complete: any file may contain the unmarked weights in an unexpected format, or a key,
a report or a list of recipients. So a file is copied only if its name is on the list, or if the caller names it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from irwm.checkpoint.files import FileState, open_regular, require_inside, unreadable
from irwm.checkpoint.layout import INDEX_NAME
from irwm.checkpoint.model import Checkpoint, is_single_file
from irwm.errors import ParameterError, PublishError
from irwm.release.manifest import LOCK_NAME, MANIFEST_NAME, SIGNATURE_NAME

# Settings and tokenizers, in lower case, as transformers, sentence-transformers and llama.cpp's converter read them.
COMPANIONS = (
    *("config.json", "generation_config.json", "quantize_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "tokenizer.model.v*", "tokenizer.vocab", "tekken.json", "*.tiktoken", "spiece.model"),
    *("sentencepiece*.model", "source.spm", "target.spm", "vocab.json", "vocab.txt", "vocab.model", "merges.txt"),
    *("bpe.codes", "normalizer.json", "chat_template.json", "*.jinja"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
)
# Texts for people. They have one of the suffixes below, or none.
DOCUMENTS = (
    *("readme*", "license*", "licence*", "notice*", "copying*", "copyright*", "authors*", "citation*", "changelog*"),
    *("model_card*", "modelcard*", "use_policy*", "acceptable_use*", "third_party*"),
)
TEXT_ENDINGS = ("", ".md", ".txt", ".rst", ".cff")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to copy: its name relative to the release, its source path, and its state."""

    name: str
    path: Path
    seen: FileState


@dataclass(frozen=True, slots=True)
class Selection:
    """The files of a release.

    Attributes:
        files: those that are copied, sorted by name.
        left_out: names, relative to the source, of the others; the name of a folder that was not searched ends in a
            slash. Of a single weight file, only the signature next to it.
    """

    files: tuple[SourceFile, ...]
    left_out: tuple[str, ...]


def select_files(source: Checkpoint, also: Collection[str] = ()) -> Selection:
    """The files of a release of `source`, with links replaced by their targets.

    Args:
        also: names, relative to the source, of further files to copy although they are not on the list.

    Raises:
        ParameterError: `also` names something that is not a file in the source's folder, is part of another release,
            or is the source's signature.
        NotACheckpointError: a file or folder cannot be read.
        CorruptCheckpointError: a link to a file leads out of the folder; following it could publish anything.
        PublishError: a shard is reached through a symbolic link to a folder.
    """
    if SIGNATURE_NAME in also:
        raise ParameterError(
            "The original's signature is not valid for a release, so it cannot be added",
            file=(source.path.parent if is_single_file(source) else source.path) / SIGNATURE_NAME,
            advice="Leave it out, and sign the release",
        )
    shards = {part.file: part.seen for tensor in source.tensors.values() for part in tensor.parts}
    if is_single_file(source):
        return _select_beside(source.path, shards[source.path], also)
    wanted = set(also)
    files: list[SourceFile] = []
    left_out: list[str] = []
    pending = [source.path]
    while pending:
        for path in _entries(pending.pop()):
            name = path.relative_to(source.path).as_posix()
            mode, is_link = _mode(path)
            if path in shards:
                files.append(SourceFile(name, path, shards[path]))
            elif name in (MANIFEST_NAME, LOCK_NAME):
                continue  # the release gets its own
            elif stat.S_ISDIR(mode) and not is_link and not path.name.startswith("."):
                pending.append(path)
            elif stat.S_ISREG(mode) and (name == INDEX_NAME or is_released(path.name) or name in wanted):
                require_inside(path, source.path)
                files.append(_source_file(name, path))
                wanted.discard(name)
            else:
                left_out.append(name + "/" if stat.S_ISDIR(mode) else name)
    missing = set(shards) - {file.path for file in files}
    if missing:
        raise PublishError(
            "A shard can be reached only through a symbolic link to a folder, and releases do not follow such links",
            file=min(missing),
            advice="Replace the link with the folder itself",
        )
    _require_found(wanted, source.path)
    return Selection(tuple(sorted(files, key=lambda file: file.name)), tuple(sorted(left_out)))


def is_released(name: str) -> bool:
    """Whether a file of this name is copied into a release by default."""
    lower = name.lower()
    if any(fnmatchcase(lower, pattern) for pattern in COMPANIONS):
        return True
    return Path(lower).suffix in TEXT_ENDINGS and any(fnmatchcase(lower, pattern) for pattern in DOCUMENTS)


def _select_beside(weights: Path, seen: FileState, also: Collection[str]) -> Selection:
    """A single weight file and the companions next to it; other files there may be another model's."""
    files, wanted = [SourceFile(weights.name, weights, seen)], set(also)
    for path in _entries(weights.parent):
        companion = any(fnmatchcase(path.name.lower(), pattern) for pattern in COMPANIONS)
        if (companion or path.name in wanted) and path != weights and stat.S_ISREG(_mode(path)[0]):
            require_inside(path, weights.parent)
            files.append(_source_file(path.name, path))
            wanted.discard(path.name)
    _require_found(wanted, weights.parent)
    signed = (SIGNATURE_NAME,) if os.path.lexists(weights.parent / SIGNATURE_NAME) else ()
    return Selection(tuple(sorted(files, key=lambda file: file.name)), signed)


def _require_found(missing: Collection[str], folder: Path) -> None:
    if missing:
        raise ParameterError(
            "A file to add to the release is not one of the model's files",
            file=folder / min(missing),
            expected="file names relative to the model's folder",
            found=f"names of files that are missing, in a hidden folder, or not regular files: {len(missing)}",
            advice="Use names from a release's list of omitted files",
        )


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except OSError as error:
        raise unreadable(folder, error) from error


def _mode(path: Path) -> tuple[int, bool]:
    """The mode of the path's target, 0 without one, and whether the path itself is a link."""
    try:
        return os.stat(path).st_mode, path.is_symlink()
    except OSError:
        return 0, True


def _source_file(name: str, path: Path) -> SourceFile:
    with open_regular(path) as (_, seen):
        return SourceFile(name, path, seen)
