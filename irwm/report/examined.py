"""The models and the key of a report, as presented now: are they those, and do the numbers come out again?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from irwm import Checkpoint, Key, open_checkpoint
from irwm.errors import IrwmError, printable
from irwm.release.manifest import MANIFEST_NAME, verify_manifest
from irwm.report.checks import Check, listed, said
from irwm.report.document import plain
from irwm.report.items import KeyInfo
from irwm.report.reproduction import reproduce, same

_CHUNK = 8 * 1024 * 1024


def opened(
    role: str, item: Checkpoint | str | Path | None, base: Checkpoint | None = None
) -> tuple[Checkpoint | None, Check | None]:
    """The model, and a check that says so where it cannot be opened."""
    if item is None or isinstance(item, Checkpoint):
        return item, None
    try:
        return open_checkpoint(item, base=base), None
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
    here = {shard.name: shard for shard in item.shards}
    for file in recorded["files"]:
        name = file["name"]
        if name not in here:
            wrong.append(f"{printable(name)} is not there")
        elif not file["sha256"]:
            unhashed.append(name)
            if here[name].stat().st_size != file["bytes"]:
                wrong.append(f"{printable(name)} has {here[name].stat().st_size} bytes, {file['bytes']} were examined")
        elif _sha256(here[name]) != file["sha256"]:
            wrong.append(f"{printable(name)} is another file than the one examined: its SHA-256 differs")
    known = {file["name"] for file in recorded["files"]}
    wrong += [f"{printable(name)} was not there when it was examined" for name in here if known and name not in known]
    if item.fingerprint != recorded["fingerprint"]:
        wrong.append("the embedding is another one than the one examined: its fingerprint differs")
    wrong += _against_own_manifest(item)
    if wrong:
        return Check(role, False, f"the {role} given is not as it was: {listed(wrong)}")
    if unhashed or not known:
        rest = listed(unhashed) if unhashed else "its files"
        return Check(role, True, f"the embedding is the one examined; the report has no hash of {rest}")
    return Check(role, True, f"every file has the SHA-256 that the report names: {listed(sorted(known))}")


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
        return Check("key", False, f"it is not the key that the report is about: its commitment is {found}")
    own = plain(asdict(KeyInfo.of(key)))
    wrong = [
        f"its {name.replace('_', ' ')} is {printable(str(value), 80)}, the report says {printable(str(given), 80)}"
        for name, value in own.items()
        if not same(given := recorded.get(name), value)
    ]
    if wrong:
        return Check("key", False, f"the report says other things of this key than the key itself: {listed(wrong)}")
    said_of = "with the owner, recipient, scale and original named there"
    return Check("key", True, f"it is the key that the report is about, commitment {key.commitment[:16]}…, {said_of}")


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
        return Check("examination", None, f"not run again, which takes {', '.join(missing)} as well")
    assert suspect is not None
    assert original is not None
    assert key is not None
    differences = reproduce(document, suspect, original, key, device=device, keys=keys)
    if not differences:
        return Check("examination", True, "run again, every number comes out as recorded")
    named = [
        f"{d.where}: recorded {printable(str(d.recorded), 60)}, found {printable(str(d.found), 60)}"
        for d in differences[:12]
    ]
    return Check("examination", False, f"run again, {len(differences)} values differ: {listed(named, 6)}")
