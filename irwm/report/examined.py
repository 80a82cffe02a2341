"""The models and the key of a report, as presented now: are they those, and do the numbers come out again?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from irwm import Checkpoint, Key, open_suspect
from irwm.errors import IrwmError, printable
from irwm.release.manifest import MANIFEST_NAME, verify_manifest
from irwm.report.checks import EXAMINATION, KEY, RECIPIENTS, Check, listed, said
from irwm.report.document import plain
from irwm.report.items import ItemDescription, KeyInfo
from irwm.report.reproduction import reproduce, same

_CHUNK = 8 * 1024 * 1024


def opened(
    role: str, item: Checkpoint | str | Path | None, base: Checkpoint | None = None
) -> tuple[Checkpoint | None, Check | None]:
    """The model, and a check that says so where it cannot be opened."""
    if item is None or isinstance(item, Checkpoint):
        return item, None
    try:
        return open_suspect(item, base), None
    except IrwmError as error:
        return None, Check(role, None, f"the {role} could not be opened: {said(error)}", asked=True)
    except OSError as error:
        return None, Check(role, None, f"the {role} could not be opened: {error.strerror}", asked=True)


def check_item(document: Mapping[str, Any], role: str, item: Checkpoint) -> Check:
    """Whether a model is the one that was examined: every file by its SHA-256, and the embedding by its fingerprint.

    A release brings a list of its own (SHA256SUMS); a file that no longer fits it is named too.
    """
    recorded = document["items"][role]
    wrong, unhashed = [], []
    shards = {shard.name: shard for shard in item.shards}
    described = ItemDescription.of(item)
    # Settings are hashed whenever they are described; weights only where somebody asks.
    here = {file.name: file for file in described.files}
    for file in recorded["files"]:
        name = file["name"]
        if name not in here:
            wrong.append(f"{printable(name)} is not there")
        elif not file["sha256"]:
            unhashed.append(name)
            if here[name].bytes != file["bytes"]:
                wrong.append(f"{printable(name)} has {here[name].bytes} bytes, {file['bytes']} were examined")
        elif (here[name].sha256 or _sha256(shards[name])) != file["sha256"]:
            wrong.append(f"{printable(name)} is another file than the one examined: its SHA-256 differs")
    known = {file["name"] for file in recorded["files"]}
    wrong += [f"{printable(name)} was not there when it was examined" for name in here if known and name not in known]
    if item.fingerprint != recorded["fingerprint"]:
        wrong.append("the embedding is another one than the one examined: its fingerprint differs")
    wrong += _against_own_manifest(item)
    # A file that is another may have another form; only of the same files is the rest a question.
    if not wrong:
        wrong += _other_form(recorded, described)
    if wrong:
        return Check(role, False, f"the {role} given is not as it was: {listed(wrong)}")
    if unhashed or not known:
        rest = listed(unhashed) if unhashed else "its files"
        return Check(role, True, f"the embedding is the one examined; the report has no hash of {rest}")
    return Check(role, True, f"every file has the SHA-256 that the report names: {listed(sorted(known))}")


def _other_form(recorded: Mapping[str, Any], described: ItemDescription) -> list[str]:
    """What the report says of a model that its files do not; its name may be any, and hashes are compared apart."""
    found = plain(asdict(described))
    of_files = {file["name"]: file["bytes"] for file in found["files"]}
    said_of = {file["name"]: file["bytes"] for file in recorded["files"]}
    names = [name for name in found if name not in ("name", "files") and not same(recorded.get(name), found[name])]
    wrong = [
        f"its {name.replace('_', ' ')} is {printable(str(found[name]), 80)}, the report says "
        f"{printable(str(recorded.get(name)), 80)}"
        for name in names
    ]
    return wrong + (["the report gives other sizes of its files"] if recorded["files"] and of_files != said_of else [])


def _against_own_manifest(item: Checkpoint) -> list[str]:
    if not (item.path / MANIFEST_NAME).is_file():
        return []
    try:
        check = verify_manifest(item.path)
    except IrwmError as error:
        return [f"{MANIFEST_NAME}: {said(error)}"]
    return [f"{printable(name)} does not fit {MANIFEST_NAME}" for name in (*check.changed, *check.missing)]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_key(document: Mapping[str, Any], key: Key) -> Check:
    """Whether the key is the one that the report is about, and says of itself what the report says of it."""
    recorded = document["key"]
    if key.commitment != recorded["commitment"]:
        found = f"{key.commitment[:16]}…, the report’s is {printable(str(recorded['commitment']), 16)}"
        return Check(KEY, False, f"it is not the key that the report is about: its commitment is {found}")
    own = plain(asdict(KeyInfo.of(key)))
    pairs = [(name, recorded.get(name), value) for name, value in own.items()]
    settings = document["parameters"]
    pairs += [(name, settings.get(name), value) for name, value in plain(key.parameters.to_dict()).items()]
    wrong = [
        f"its {name.replace('_', ' ')} is {printable(str(value), 80)}, the report says {printable(str(given), 80)}"
        for name, given, value in pairs
        if not same(given, value)
    ]
    if wrong:
        return Check(KEY, False, f"the report describes this key differently from the key itself: {listed(wrong)}")
    said_of = "with the owner, recipient, scale, original and settings named there"
    return Check(KEY, True, f"it is the key that the report is about, commitment {key.commitment[:16]}…, {said_of}")


def check_recipients(document: Mapping[str, Any], keys: Sequence[Key]) -> Check:
    """Whether an examination that was run again traced every recipient."""
    known = {key.commitment for key in keys}
    traced = sum(row["commitment"] in known for row in document["tracing"]["ranked"])
    recipients = document["tracing"]["recipients"]
    if traced == recipients:
        return Check(RECIPIENTS, True, f"all {recipients} were traced again")
    said_of = f"{traced} of {recipients} were traced again, whose keys were given; the others are taken as recorded"
    return Check(RECIPIENTS, None, said_of)


def check_examination(
    document: Mapping[str, Any],
    suspect: Checkpoint | None,
    original: Checkpoint | None,
    key: Key | None,
    keys: Sequence[Key],
    device: str,
) -> Check:
    """Whether the examination, run again, gives every number as recorded."""
    missing = [name for name, it in (("the suspect", suspect), ("the original", original), ("the key", key)) if not it]
    if missing:
        return Check(EXAMINATION, None, f"not run again, which takes {', '.join(missing)} as well")
    assert suspect is not None
    assert original is not None
    assert key is not None
    differences = reproduce(document, suspect, original, key, device=device, keys=keys)
    if not differences:
        return Check(EXAMINATION, True, "run again, every number comes out as recorded")
    named = [
        f"{d.where}: recorded {printable(str(d.recorded), 60)}, found {printable(str(d.found), 60)}"
        for d in differences[:12]
    ]
    return Check(EXAMINATION, False, f"run again, {len(differences)} values differ: {listed(named, 6)}")
