"""Descriptions of the items examined, as plain values that a job can send to another process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import irwm
from irwm import Checkpoint, Finding, Key, Manifest
from irwm.answers.suspect import GeneratingSuspect
from irwm.checkpoint.files import open_regular, read_small, resolved, stays_inside
from irwm.checkpoint.formats import GGUF
from irwm.checkpoint.layout import CONFIG_NAME
from irwm.checkpoint.model import folder_of, is_single_file
from irwm.checkpoint.remote.mirror import mirror_of
from irwm.checkpoint.remote.opening import server_of, source_notes
from irwm.checkpoint.served_model import ANSWERS
from irwm.checkpoint.served_source import Heard
from irwm.checkpoint.tokens import TOKENIZER_FILES
from irwm.checkpoint.weight_sets import ADAPTER_CONFIG
from irwm.errors import CheckpointError, shown_path
from irwm.evidence.finding import FOUND, INCONCLUSIVE
from irwm.evidence.verdict import log10_risk
from irwm.report import schema

# Libraries whose versions can change a number of a finding or the drawing of a report.
_LIBRARIES = ("torch", "numpy", "scipy", "safetensors", "cryptography", "plotly", "matplotlib", "typst")
# Sources of the text and the drawings in reports.
_DRAWING = (".py", ".j2", ".css", ".js", ".typ")
LAYOUT = "Report layout"
# Files in the folder of the weights that say which tensor and which row is which.
SETTINGS = (CONFIG_NAME, *TOKENIZER_FILES)
MOST_SETTINGS_BYTES = 128 << 20
# Of an item's other files: how many are listed, and how many bytes of them are hashed.
_OF_FILE_MANAGERS = ("Thumbs.db", "desktop.ini")
MOST_OTHER, MOST_OTHER_BYTES = 2000, 1 << 30
MORE_FILES = f"The folder contains more than {MOST_OTHER} files that were not examined; only {MOST_OTHER} are listed."


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file as received: its name within the item, size in bytes, hex SHA-256 ("" when it was not hashed)."""

    name: str
    bytes: int
    sha256: str = ""


def source_of(checkpoint: Checkpoint) -> schema.Source | None:
    """The server that a checkpoint is read from, and what was read so far; None for files of this machine."""
    mirrored = mirror_of(folder_of(checkpoint) / CONFIG_NAME)
    if mirrored is None:
        return None
    mirror, name = mirrored
    below = name.removesuffix(CONFIG_NAME)
    ranges: dict[str, list[schema.ReadRange]] = {}
    for each in mirror.reads:
        part: schema.ReadRange = {"start": each.start, "stop": each.stop, "sha256": each.sha256, "utc": each.utc}
        ranges.setdefault(each.file, []).append(part)
    listing = mirror.listing
    files: list[schema.SourceFile] = [
        {
            "name": file.name.removeprefix(below),
            "bytes": file.size,
            "sha256": file.sha256,
            "etag": file.etag,
            "ranges": ranges[file.name],
        }
        for file in listing.files
        if file.name in ranges and file.name.startswith(below)
    ]
    return {"address": listing.address, "server": listing.server, "commit": listing.commit, "files": files}


@dataclass(frozen=True, slots=True)
class ItemDescription:
    """A checkpoint that was examined.

    Attributes:
        name: the item's folder or file name, never the path on the examiner's machine.
        family, dtype: model family and number format of the embedding.
        vocab_size, hidden_size: s and d.
        tied: whether the embedding is the output head too.
        heads, kv_heads, head_dim: layer 0's query heads, key heads and entries per head; 0 if the tensors' names are
            unknown, and then `family` is "unknown".
        fingerprint: hex SHA-256 of the embedding; survives renaming and re-sharding of the files.
        bytes_total: size of all files.
        files: the weight files, with their hashes if they were hashed, then the settings and the tokenizer in the same
            folder (`SETTINGS`), which say what the weights are.
        other_files: the other files of the item's folder, named relative to it. They were not examined; they
            distinguish this item from others. Hidden files and folders are left out, and so are those that a file
            manager adds; links out of the folder have size 0.
        notes: sentences about the files that a reader should see.
        answers: the answers of a suspect that is known only by its answers; its embedding is then the output head
            that was recovered from them. None for weights.
        source: the server that it was read from; None for files of the examiner's machine.
    """

    name: str
    family: str
    dtype: str
    vocab_size: int
    hidden_size: int
    tied: bool
    heads: int
    kv_heads: int
    head_dim: int
    fingerprint: str
    bytes_total: int
    files: tuple[FileRecord, ...] = ()
    other_files: tuple[FileRecord, ...] = ()
    notes: tuple[str, ...] = ()
    answers: Heard | None = None
    source: schema.Source | None = None

    @property
    def is_adapter(self) -> bool:
        """Whether it is an adapter, which was read on top of the original."""
        return any(file.name == ADAPTER_CONFIG for file in self.files)

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint | GeneratingSuspect,
        name: str = "",
        hashes: Manifest | Mapping[str, str] | None = None,
    ) -> ItemDescription:
        """The description of an opened checkpoint. Reads its embedding once, for the fingerprint.

        Args:
            checkpoint: the item.
            name: another name than that of the folder or file.
            hashes: SHA-256 by file name relative to the folder: the manifest of a release, or hashes just computed.
        """
        known = dict(hashes.files if isinstance(hashes, Manifest) else hashes or {})
        if isinstance(checkpoint, GeneratingSuspect):
            return _of_generated(checkpoint, known)
        sizes = {part.file: part.seen.size for tensor in checkpoint.tensors.values() for part in tensor.parts}
        # An adapter's config holds no tensor, but it decides how much the adapter changes.
        weights = {shown_path(shard.name): sizes.get(shard) or shard.stat().st_size for shard in checkpoint.shards}
        files = tuple(FileRecord(name, size, known.get(name, "")) for name, size in weights.items())
        if files:
            files += tuple(_settings(checkpoint))
        others = tuple(_other_files(checkpoint, {file.name for file in files}))
        # `source` says it, and a reader may have the same files on a disk.
        notes = tuple(note for note in checkpoint.notes if note not in source_notes(checkpoint.path))
        return cls(
            name=name or name_of_answers(checkpoint.answers) or shown_path(checkpoint.path.name),
            family=checkpoint.family,
            dtype=checkpoint.dtype,
            vocab_size=checkpoint.vocab_size,
            hidden_size=checkpoint.hidden_size,
            tied=checkpoint.tied,
            heads=checkpoint.layout.heads,
            kv_heads=checkpoint.layout.kv_heads,
            head_dim=checkpoint.layout.head_dim,
            fingerprint=checkpoint.fingerprint,
            bytes_total=sum(file.bytes for file in files) if files else checkpoint.bytes_total,
            files=files,
            other_files=others[:MOST_OTHER],
            notes=(*notes, MORE_FILES) if len(others) > MOST_OTHER else notes,
            answers=checkpoint.answers,
            source=source_of(checkpoint) if checkpoint.answers is None else None,
        )


def _of_generated(suspect: GeneratingSuspect, hashes: Mapping[str, str]) -> ItemDescription:
    """The description of a suspect that is known only by generated text: its tokens are the original's."""
    file = shown_path(suspect.path.name)
    return ItemDescription(
        name=name_of_answers(suspect.answers) or file,
        family=ANSWERS,
        dtype=ANSWERS,
        vocab_size=suspect.original.vocab_size,
        hidden_size=suspect.original.hidden_size,
        tied=False,
        heads=0,
        kv_heads=0,
        head_dim=0,
        fingerprint=suspect.fingerprint,
        bytes_total=suspect.bytes_total,
        files=(FileRecord(file, suspect.bytes_total, hashes.get(file, "")),),
        notes=suspect.notes,
        answers=suspect.answers,
    )


def name_of_answers(heard: Heard | None) -> str:
    """The name of a suspect that only answers: the model and its endpoint; "" if they are unknown."""
    if heard is None or heard.recording is None:
        return ""
    return answers_of(heard.recording.model, heard.recording.endpoint)


def answers_of(model: str, endpoint: str) -> str:
    """The name of a model's answers."""
    return f"answers of {model} at {endpoint}"


def _settings(checkpoint: Checkpoint) -> Iterator[FileRecord]:
    """The files next to the weights that say what the weights are."""
    # GGUF holds both, an adapter has its own, and files next to recorded answers have nothing to do with them.
    if checkpoint.base is not None or checkpoint.answers is not None or checkpoint.format is GGUF:
        return
    folder = folder_of(checkpoint)
    for name in SETTINGS:
        if name != CONFIG_NAME or checkpoint.config:
            # Opening the checkpoint read its config; a tokenizer that cannot be read names no rows.
            with contextlib.suppress(CheckpointError):
                data = read_small(folder / name, MOST_SETTINGS_BYTES, name, resolved(folder))
                yield FileRecord(name, len(data), hashlib.sha256(data).hexdigest())


def _other_files(checkpoint: Checkpoint, known: Container[str]) -> Iterator[FileRecord]:
    """The files of the item's folder, without those in `known`.

    The smallest ones are hashed, up to `MOST_OTHER_BYTES` together. Name and size are enough for a large file that was
    not read.
    """
    if not checkpoint.shards or is_single_file(checkpoint):
        return
    folder, sizes = resolved(checkpoint.path), {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if name.startswith(".") or name in _OF_FILE_MANAGERS:
                continue
            file = Path(place, name)
            with contextlib.suppress(CheckpointError, OSError):  # gone, or a broken link
                sizes[file] = file.stat().st_size if stays_inside(file, folder) else 0
        if len(sizes) > MOST_OTHER:
            break
    total, found = 0, []
    for file, size in sorted(sizes.items(), key=lambda each: (each[1], each[0])):
        name, digest = shown_path(file.relative_to(folder)), ""
        if name in known:
            continue
        total += size
        if total <= MOST_OTHER_BYTES and not server_of(folder):  # those of a server were not read
            with (
                contextlib.suppress(CheckpointError, OSError),
                open_regular(file, folder) as (descriptor, _),
                open(descriptor, "rb", closefd=False) as stream,
            ):
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        found.append(FileRecord(name, size, digest))
    yield from sorted(found, key=lambda each: each.name)


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """The public facts about a key: its owner and its original, without any value that derives from the secret.

    Attributes:
        owner, recipient: the names that the key records.
        scale: scale_wm as a number, "auto" resolved.
        model_fingerprint: fingerprint of the original that the key was made for.
    """

    owner: str
    recipient: str
    scale: float
    model_fingerprint: str

    @classmethod
    def of(cls, key: Key) -> KeyInfo:
        return cls(key.owner, key.recipient, float(key.scale), key.model_fingerprint)


@dataclass(frozen=True, slots=True)
class SelfTest:
    """A control that was run the same way as the examination and must come out as expected.

    Attributes:
        name: what was tried, e.g. "a key that was never inserted".
        expected, verdict: the verdict that it must have, and the one that it had.
        count, present: positions that counted, of those that could be ranked.
        log10_risk: log10 of the corrected odds, as in the evaluation.
    """

    name: str
    expected: str
    verdict: str
    count: int
    present: int
    log10_risk: float

    @classmethod
    def of(cls, name: str, finding: Finding, expected: str = "not found") -> SelfTest:
        risk = log10_risk(finding.reading, finding.comparisons)
        return cls(name, expected, finding.verdict, finding.count, finding.present, risk)


def control_of_neutral(name: str) -> str:
    """The name of the control that is run on a neutral model of this name."""
    return f"this key on {name}"


def failed(test: schema.SelfTest) -> bool:
    """Whether a control of a document's `self_tests` shows that readings of this examination mean nothing: it found a
    mark that was never written, or gave a verdict on a suspect that cannot be judged. Evidence between found and not
    found is not a failure: one unmarked key in a thousand gives it.
    """
    found, must = test["verdict"], test["expected"]
    return found != must and (found == FOUND or must == INCONCLUSIVE)


def after_controls(verdict: schema.Said, tests: Sequence[schema.SelfTest]) -> schema.Said:
    """A document's verdict; "inconclusive" if a control failed, and then it does not rest on tracing."""
    names = [test["name"] for test in tests if failed(test)]
    if not names:
        return verdict
    reason = (
        f"A control that was run in the same way did not give the required result ({'; '.join(names)}), so no verdict "
        f"can rest on this examination. Without the controls, the verdict would have been: {verdict['word']}."
    )
    return {**verdict, "word": INCONCLUSIVE, "reason": reason, "rests_on": "mark"}


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions of these packages."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def installed_versions() -> dict[str, str]:
    """Versions of this program, Python and the libraries behind the numbers, as installed here."""
    found = {"irwm": irwm.__version__, "Python": platform.python_version()} | versions_of(_LIBRARIES)
    return found | {LAYOUT: _layout(), "System": f"{platform.system()} {platform.machine()}"}


def _layout() -> str:
    """A short digest of all sources that turn a document into pages; equal digests mean equal pages."""
    sources = [path for path in Path(__file__).parent.rglob("*") if path.suffix in _DRAWING]
    digest = hashlib.sha256()
    for path in sorted(sources, key=lambda path: path.name):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
