"""Copies of an original: their keys in the vault, their folders on the disk, and the content of a receipt."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from filelock import lock_descriptor
from numpy.typing import NDArray

import irwm
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.platform import unlock_and_close
from irwm.errors import IrwmError, path_from
from irwm.keys.check_original import check_original
from irwm.release import MANIFEST_NAME, SIGNATURE_NAME, read_manifest
from irwm.release.cloning import ClonedFrom
from irwm.release.insertion import Progress, marked_rows
from irwm.release.manifest import format_manifest
from irwm.release.publish import Sign
from irwm.scheme.invariant import Layer0
from storage.errors import StorageError
from storage.files import open_to_append, private_folder, replace_private
from storage.records import Changes, CopyFacts, KeyRecord, MarkedBefore, Receipt, ReleaseRecord
from storage.vault import Vault
from ui.services.finished import finished
from ui.services.recipients import same_name
from ui.services.work import Work

LOCK_NAME = "many-recipients.lock"
# Folder with a small file for each key that was sealed for one folder and whose copy is not filed yet.
UNFILED_NAME = "unfiled"
SECONDS_BETWEEN_LOOKS = 0.25

# Rows sampled for the usual change of a row: with some thousand rows, the median is accurate to one percent.
SAMPLED_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Issued:
    """The vault's records of an owner's copies of one original.

    Attributes:
        released: the release of each recipient who was issued a copy, with any settings; by `same_name`.
        waiting: each recipient's sealed keys with these settings and without a filed copy; oldest first.
        filed: each recipient's keys with these settings and the copy that was filed for them; oldest first.
        settled: a key with these settings, whose secret the next recipients share; None for the first.
        damaged: keys and releases in the vault that do not authenticate: any may have been one of these.
    """

    released: Mapping[str, ReleaseRecord]
    waiting: Mapping[str, tuple[KeyRecord, ...]]
    filed: Mapping[str, tuple[tuple[KeyRecord, ReleaseRecord], ...]]
    settled: KeyRecord | None
    damaged: int


def issued(
    vault: Vault,
    model_fingerprint: str,
    owner: str,
    parameters: irwm.Parameters | None = None,
    among: Collection[str] | None = None,
) -> Issued:
    """Searches the vault for the copies of one original that were issued by `owner`.

    Args:
        parameters: settings of the next copies; without them, `waiting` and `settled` are empty.
        among: the recipients in question, by `same_name`; all of them for None.

    Raises:
        VaultLockedError, StorageError
    """
    keys = vault.keys_for(model_fingerprint)
    own = [key for key in keys if key.owner == owner]
    asked = [key for key in own if among is None or same_name(key.recipient) in among]
    # Opening every release is slow in a large vault; without a key there is no release.
    releases = vault.releases() if asked else None
    by_key = {release.key_id: release for release in releases or ()}
    settings = parameters.to_dict() if parameters else None
    fitting = [key for key in own if key.parameters == settings]
    waiting: dict[str, tuple[KeyRecord, ...]] = {}
    filed: dict[str, tuple[tuple[KeyRecord, ReleaseRecord], ...]] = {}
    for key in asked:
        name = same_name(key.recipient)
        if key.parameters == settings and key.id in by_key:
            filed[name] = (*filed.get(name, ()), (key, by_key[key.id]))
        elif key.parameters == settings:
            waiting[name] = (*waiting.get(name, ()), key)
    return Issued(
        released={same_name(key.recipient): by_key[key.id] for key in asked if key.id in by_key},
        waiting=waiting,
        filed=filed,
        settled=fitting[0] if fitting else None,
        damaged=len(keys.damaged) + (len(releases.damaged) if releases is not None else 0),
    )


def secret_of(vault: Vault, record: KeyRecord | None) -> bytes | None:
    """The secret that a new recipient shares with earlier ones: the basis of the noise depends on it.

    Raises:
        DamagedRecordError: the key was changed. A new secret would silently split the recipients into two groups.
    """
    return irwm.Key.from_bytes(vault.key_bytes(record.id)).secret if record else None


def signer_of(sign_key: str, secret_file: str) -> Sign | None:
    """What signs each copy; None if no key was chosen.

    Raises:
        SigningKeyError, MissingExtraError, CheckpointError: as `irwm.attestation.open_signing_key`.
    """
    if not sign_key:
        return None
    from irwm.attestation import model_signer, open_signing_key  # reports, which the other copies do not need

    return model_signer(open_signing_key(sign_key, secret_file))


def require_margin(model: Checkpoint, key: irwm.Key, layer0: Layer0) -> None:
    """Raises if this model cannot carry the mark, before its key is sealed.

    Raises:
        MarginError
    """
    check_original(key, model)
    marked_rows(model, key, key.choices(), layer0)


def seal(vault: Vault, model: Checkpoint, key: irwm.Key, label: str) -> KeyRecord:
    """Puts the key into the vault. Only after this may the release be written, because now it can be proved."""
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


@contextlib.contextmanager
def alone(home: Path, work: Work) -> Iterator[None]:
    """Lock so that two runs do not make two keys for one name, or two secrets; the system releases it when a run ends.

    Raises:
        CancelledError: stopped while it waited for another run to end.
    """
    descriptor = open_to_append(home / LOCK_NAME)
    try:
        while not lock_descriptor(descriptor, blocking=False):
            work.progress(0, 0, "Waiting for another run to finish writing copies")
            time.sleep(SECONDS_BETWEEN_LOOKS)
        yield
    finally:
        unlock_and_close(descriptor)


def note_folder(home: Path, commitment: str, folder: Path) -> None:
    """Stores a note on the folder for which a key will be sealed: only a run into that folder may use the key.

    The note contains a digest of the folder's path, because the path may name people.

    Raises:
        StorageError
    """
    path = _note(home, commitment)
    try:
        private_folder(path.parent)
        replace_private(path, _digest(commitment, folder).encode("ascii"))
    except OSError as error:
        raise StorageError("the app cannot write to its own folder", file=path, found=error.strerror) from error


def sealed_for_one(home: Path, commitment: str) -> bool:
    """Whether a key was sealed for any one folder, and its copy is not filed yet."""
    return _note(home, commitment).is_file()


def sealed_for(home: Path, commitment: str, folder: Path) -> bool:
    """Whether a key was sealed for this folder, and its copy is not filed yet."""
    try:
        return _note(home, commitment).read_text(encoding="ascii") == _digest(commitment, folder)
    except (OSError, ValueError):
        return False


def forget_folder(home: Path, commitment: str) -> None:
    """Removes the note when the key's copy is filed, because it is not needed any more."""
    with contextlib.suppress(OSError):
        _note(home, commitment).unlink()


def _digest(commitment: str, folder: Path) -> str:
    return hashlib.sha256(f"{commitment}\0{folder}".encode("utf-8", "surrogatepass")).hexdigest()


def _note(home: Path, commitment: str) -> Path:
    return home / UNFILED_NAME / f"{commitment}.json"


@dataclass(frozen=True, slots=True)
class Copies:
    """Writes, finds again and files the copies of one original.

    Attributes:
        vault: unlocked.
        device: "cpu" or "cuda".
        layer0: the model's, which is read once for all copies.
        also: names of other files to copy.
        sign: signs each copy; None for no signature.
        base_model: the original's name for the model card; "" for none.
    """

    vault: Vault
    model: Checkpoint
    device: str
    work: Work
    layer0: Layer0
    also: Sequence[str] = ()
    sign: Sign | None = None
    base_model: str = ""

    def key(self, record: KeyRecord) -> irwm.Key:
        """A sealed key."""
        return irwm.Key.from_bytes(self.vault.key_bytes(record.id))

    def finished(self, key: irwm.Key, folder: Path) -> irwm.Release | None:
        """The copy that an earlier run finished in this folder; see `ui.services.finished`."""
        return finished(
            self.model, key, folder, cancelled=self.work.cancelled, device=self.device, also=self.also,
            base_model=self.base_model,
        )  # fmt: skip

    def write(
        self, key: irwm.Key, folder: Path, progress: Progress, shared: Mapping[str, ClonedFrom] | None = None
    ) -> irwm.Release:
        """Writes and verifies a copy; errors as `irwm.insert`."""
        return irwm.insert(
            self.model, key, folder, progress, self.device, self.work.cancelled, shared=shared, also=self.also,
            sign=self.sign, base_model=self.base_model, layer0=self.layer0,
        )  # fmt: skip

    def signed(self, release: irwm.Release) -> irwm.Release:
        """A finished, checked copy with a new signature, if signatures were requested; see `irwm.insert`."""
        if self.sign is None:
            return release
        signature = self._sign(self.sign, release.path, release.manifest.files)
        size = (release.path / SIGNATURE_NAME).stat().st_size
        return replace(release, signature=signature, bytes_written=release.bytes_written + size)

    def signature_of(self, filed: ReleaseRecord) -> str:
        """The SHA-256 of a filed copy's signature, "" if it has none.

        If signatures were requested and the copy was filed without one, the hashes in its record are signed now, if it
        is still in its folder.
        """
        known, folder = filed.receipt.get("signature", ""), path_from(filed.path)
        if self.sign is None or known:
            return known
        try:
            there = read_manifest(folder).files
        except IrwmError:  # moved to its recipient, for example
            there = {}
        if dict(there) != filed.manifest:
            self.work.log(f"Warning: {folder.name} was moved or changed, so it was not signed")
            return ""
        return self._sign(self.sign, folder, filed.manifest)

    def _sign(self, sign: Sign, folder: Path, digests: Mapping[str, str]) -> str:
        """Writes the signature over these files and their manifest in place of any other; returns its SHA-256."""
        signature = sign(folder.name, {**digests, MANIFEST_NAME: hashlib.sha256(format_manifest(digests)).hexdigest()})
        replace_private(folder / SIGNATURE_NAME, signature)
        os.chmod(folder / SIGNATURE_NAME, (folder / MANIFEST_NAME).stat().st_mode & 0o777)
        return hashlib.sha256(signature).hexdigest()

    def file(self, record: KeyRecord, key: irwm.Key, release: irwm.Release, before: MarkedBefore) -> Receipt:
        """Files the receipt of a copy, with the entries of `marked_before`, and returns it."""
        receipt: Receipt = {**receipt_of(self.model, key, release), "bytes_cloned": release.bytes_cloned, **before}
        self.vault.add_release(record.id, release.path, release.manifest.files, receipt)
        return receipt

    def marked_before(self) -> MarkedBefore:
        """The marks that the original already carries, for a receipt; "damaged" counts the unreadable records."""
        marks = self.vault.marks_on(self.model.fingerprint)
        return {"marked_before": [mark.whose for mark in marks], "damaged": len(marks.damaged)}


def receipt_of(model: Checkpoint, key: irwm.Key, release: irwm.Release) -> CopyFacts:
    """The content of the page's receipt."""
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
        "signature": release.signature,
        **changes(model, copy, release.changed_rows, release.head_rows, exact=not p.noise_coordinates),
        "changed_layers": len(release.layers),
        "verdict": found.verdict,
        "count": found.count,
        "present": found.present,
        "log10_p": found.log10_p,
        "log10_risk": found.log10_risk,
        "paper_count": found.paper.count if found.paper else None,
        "irwm": irwm.__version__,
    }


def changes(
    model: Checkpoint, copy: Checkpoint, rows: NDArray[np.int64], head_rows: NDArray[np.int64], *, exact: bool
) -> Changes:
    """The differences between an original and its copy, read from both.

    Args:
        rows: ids of the embedding rows that were changed.
        head_rows: ids of the rows of the output head that were changed; none where it is not marked.
        exact: count every number in these rows; otherwise, as for noise in all rows, estimate from a sample.

    The names are of the embedding, and of a stored tied head and copies if they were equal to it.
    """
    names, values, share = _changes(model, copy, rows, exact=exact)
    head, theirs, named = model.output_head, copy.output_head, None
    if len(head_rows) and head is not None and theirs is not None:
        named = head.layout.embedding.name
        values += _changes(head, theirs, head_rows, exact=exact)[1]
    return {
        "changed_rows": len(rows),
        "changed_tensors": names,
        "changed_values": values if exact else None,
        "changed_share": share,
        "changed_head_rows": 0 if named is None else len(head_rows),
        "head_tensor": named,
    }


def _changes(
    model: Checkpoint, copy: Checkpoint, rows: NDArray[np.int64], *, exact: bool
) -> tuple[list[str], int, float | None]:
    """The changed tensors, the number of changed values in all of them, and the median row's change.

    Args:
        model, copy: may be output heads.
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
    return names, values, float(every.median()) if every.numel() else None
