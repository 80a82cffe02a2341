"""What marking one copy and marking many have in common: the key's way into the vault, and what a receipt certifies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import irwm
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.cloning import ClonedFrom
from irwm.insertion import check_key, marked_rows
from storage.records import KeyRecord, ReleaseRecord
from storage.vault import Vault
from ui.jobs.recipients import same_name

# Rows behind "by about so much": the middle of some thousand is known to a hundredth.
SAMPLED_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Issued:
    """What the vault knows about an owner's copies of one original.

    Attributes:
        released: the release of each recipient who was issued a copy, whatever its settings; by `same_name`.
        waiting: the key of each recipient, with these settings, that was sealed and whose copy was never finished.
        settled: a key with these settings, whose secret the next recipients share; None for the first.
        damaged: keys and releases in the vault that do not authenticate: any may have been one of these.
    """

    released: Mapping[str, ReleaseRecord]
    waiting: Mapping[str, KeyRecord]
    settled: KeyRecord | None
    damaged: int


def issued(
    vault: Vault,
    model_fingerprint: str,
    owner: str,
    parameters: irwm.Parameters | None = None,
    among: Collection[str] | None = None,
) -> Issued:
    """Looks through the vault for the copies of one original that were issued by `owner`.

    Args:
        parameters: settings of the copies to come; without them nothing is waiting or settled.
        among: the recipients in question, by `same_name`; all of them for None.

    Raises:
        VaultLockedError, StorageError
    """
    keys = vault.keys_for(model_fingerprint)
    own = [key for key in keys if key.owner == owner]
    asked = [key for key in own if among is None or same_name(key.recipient) in among]
    # Opening every release takes a while in a large vault; where there is no key there is no release.
    releases = vault.releases() if asked else None
    by_key = {release.key_id: release for release in releases or ()}
    settings = parameters.to_dict() if parameters else None
    fitting = [key for key in own if key.parameters == settings]
    return Issued(
        released={same_name(key.recipient): by_key[key.id] for key in asked if key.id in by_key},
        waiting={
            same_name(key.recipient): key
            for key in reversed(asked)
            if key.parameters == settings and key.id not in by_key
        },
        settled=fitting[0] if fitting else None,
        damaged=len(keys.damaged) + (len(releases.damaged) if releases is not None else 0),
    )


def secret_of(vault: Vault, record: KeyRecord | None) -> bytes | None:
    """The secret that a new recipient shares with those before: the basis of the noise follows from it.

    Raises:
        DamagedRecordError: the key was changed. A fresh secret would part the recipients into two groups in silence.
    """
    return irwm.Key.from_bytes(vault.key_bytes(record.id)).secret if record else None


def require_margin(model: Checkpoint, key: irwm.Key, device: str) -> None:
    """Refuses a mark that this model could not carry, before its key is sealed.

    Raises:
        MarginError
    """
    marked_rows(model, key, check_key(model, key), device)


def seal(vault: Vault, model: Checkpoint, key: irwm.Key, label: str) -> KeyRecord:
    """Puts the key into the vault. From here on its release can be proved, so only now may it be written."""
    return vault.add_key(
        key.to_bytes(),
        owner=key.owner,
        recipient=key.recipient,
        model_name=model.path.name,
        model_fingerprint=key.model_fingerprint,
        family=model.family,
        commitment=key.commitment,
        parameters=key.parameters.to_dict(),
        label=label,
    )


@dataclass(frozen=True, slots=True)
class Written:
    """A copy on the disk.

    Attributes:
        release: what `irwm.insert` returned.
        shared: what the next copy may be cloned from.
        cloned: bytes of this one that were.
    """

    release: irwm.Release
    shared: Mapping[str, ClonedFrom] = field(default_factory=dict)
    cloned: int = 0


def write(
    model: Checkpoint,
    key: irwm.Key,
    folder: Path,
    *,
    progress: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
    device: str,
    shared: Mapping[str, ClonedFrom] | None = None,
) -> Written:
    """Writes and verifies the copy of one recipient; errors as `irwm.insert`."""
    release = irwm.insert(model, key, folder, progress=progress, device=device, cancelled=cancelled, shared=shared)
    return Written(release, release.shared, release.bytes_cloned)


def receipt_of(model: Checkpoint, key: irwm.Key, release: irwm.Release) -> dict[str, Any]:
    """What the page's receipt shows, plain JSON, without anything that derives from the secret but the commitment."""
    found, p = release.verification, key.parameters
    copy = irwm.open_checkpoint(release.path)
    return {
        "model": str(model.path),
        "model_fingerprint": model.fingerprint,
        "release_fingerprint": copy.fingerprint,
        "family": model.family,
        "dtype": model.dtype,
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "owner": key.owner,
        "recipient": key.recipient,
        "commitment": key.commitment,
        "parameters": p.to_dict(),
        "scale": key.scale,
        "path": str(release.path),
        "bytes": release.bytes_written,
        "files": dict(release.manifest.files),
        "left_out": list(release.left_out),
        **changes(model, copy, release.changed_rows, exact=not p.noise_coordinates),
        "verdict": found.verdict,
        "count": found.count,
        "present": found.present,
        "log10_p": found.log10_p,
        "paper_count": found.paper.count if found.paper else None,
        "irwm": irwm.__version__,
    }


def changes(model: Checkpoint, copy: Checkpoint, rows: NDArray[np.int64], *, exact: bool) -> dict[str, Any]:
    """What differs between an original and its copy, read back from both.

    Args:
        rows: ids of the embedding rows that were changed.
        exact: count every number in these rows; without it, as for noise in all of them, a sample says how much.

    Returns:
        "changed_rows"; "changed_tensors", their names: the embedding and, where they were its equals, a tied head that
        is stored as well and copies; "changed_values", numbers that differ in all of them together, None if not
        counted; "changed_share", the middle row's change as a share of its length.
    """
    layout = model.layout
    head = layout.head if model.tied else None
    refs = [ref for ref in (layout.embedding, head, *layout.copies) if ref is not None]
    step = max(1, len(rows) // SAMPLED_ROWS)
    blocks = [rows[i : i + SAMPLED_ROWS] for i in range(0, len(rows), SAMPLED_ROWS)] if exact else [rows[::step]]
    names, values, shares = [], 0, [torch.zeros(0)]
    for ref in refs:
        counted = 0
        for block in blocks:
            before, after = model.read(ref, block), copy.read(ref, block)
            counted += int((before != after).sum())
            if ref is layout.embedding:
                lengths = before.norm(dim=1)
                shares.append(((after - before).norm(dim=1) / lengths)[lengths > 0])
        if counted:
            names.append(ref.name)
            values += counted
    every = torch.cat(shares)
    return {
        "changed_rows": len(rows),
        "changed_tensors": names,
        "changed_values": values if exact else None,
        "changed_share": float(every.median()) if every.numel() else None,
    }
