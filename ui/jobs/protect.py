"""The task behind Protect: key into the vault, marked copy onto the disk, receipt into the vault - in this order.

The key is sealed before the first byte of the release is written: a release whose key is lost can never be proved.
What can be refused is refused before that, so that a failure leaves no key of nothing in the vault. A run that was
ended in between is taken up by the same request: its key is used, and a copy that it finished is filed. Many recipients
are `ui.jobs.protect_many`'s.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import irwm
from irwm.checkpoint import Checkpoint, preflight
from irwm.errors import CancelledError, OutputExistsError
from ui.jobs import protect_many
from ui.jobs.certifying import certificate_of
from ui.jobs.device import device_of
from ui.jobs.finished import finished
from ui.jobs.recipients import same_name
from ui.jobs.releasing import issued, receipt_of, require_margin, seal, secret_of, write
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Mark one model for one owner or recipient, or, where the request has "recipients", for many.

    Args:
        request: "model" and "out_dir" (paths), "parameters" (`irwm.Parameters.to_dict`), "owner", "recipient",
            "label", "device", and, where what the mark costs is to be measured, "utility" (`ui.jobs.certifying`).
        secrets: see `ui.jobs.vault_access`.

    Returns:
        What the page's receipt shows, `ui.jobs.releasing.receipt_of`; its "utility" is the certificate or None.
    """
    if "recipients" in request:
        return protect_many.run(request, secrets, report)
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    report.progress(0, 0, "Opening the original")
    model = irwm.open_checkpoint(request["model"])
    params = irwm.Parameters.from_dict(request["parameters"])
    report.progress(0, 0, "Fingerprinting the embedding and deriving the key")
    owner, recipient = request["owner"], request["recipient"]
    known = issued(vault, model.fingerprint, owner, params, {same_name(recipient)})
    record, out = known.waiting.get(same_name(recipient)), Path(request["out_dir"])
    release = None
    if record is not None and record.label == request["label"]:
        # Sealed by a run that was ended: its copy may stand there, finished and never filed, or be missing.
        key = irwm.Key.from_bytes(vault.key_bytes(record.id))
        release = _left_behind(model, key, out, report, device)
    else:
        # Noise names a leaker only among recipients whose noise lies in one basis, which is the secret's.
        secret = secret_of(vault, known.settled if params.noise_coordinates else None)
        key, record = irwm.generate_key(model, params, secret, owner, recipient, device=device), None
    if release is None:
        report.progress(0, 0, "Checking the target disk and the mark's margin")
        preflight(model, out)
        require_margin(model, key, device)
        record = record or seal(vault, model, key, request["label"])
        release = write(model, key, out, progress=report.progress, cancelled=report.cancelled, device=device).release
    marks = vault.marks_on(model.fingerprint)
    before = {"marked_before": [mark.whose for mark in marks], "damaged": len(marks.damaged)}
    receipt = receipt_of(model, key, release) | before
    with contextlib.suppress(CancelledError):  # the copy stands; a Stop from here on must not cost its record
        report.progress(release.bytes_written, release.bytes_written, "Filing the receipt in the vault")
    vault.add_release(record.id, release.path, release.manifest.files, receipt)
    return receipt | {"key_id": record.id, "utility": certificate_of(request, model, receipt, device, report)}


def _left_behind(model: Checkpoint, key: irwm.Key, out: Path, report: JobReporter, device: str) -> irwm.Release | None:
    """The finished copy of a run that was ended before it could file it; None where it has to be written."""
    try:
        release = finished(model, key, out.parent.resolve() / out.name, cancelled=report.cancelled, device=device)
    except OutputExistsError:
        return None  # somebody's own folder: `preflight` says so in the words that fit
    if release is not None:
        report.log(f"{out.name} was finished by an earlier run; its receipt is filed now")
    return release
