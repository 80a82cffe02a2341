"""The task behind Protect: key into the vault, marked copy onto the disk, receipt into the vault - in this order.

The key is sealed before the first byte of the release is written: a release whose key is lost can never be proved.
What can be refused is refused before that, so that a failure leaves no key of nothing in the vault. Many recipients
are `ui.jobs.protect_many`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import irwm
from irwm.checkpoint import preflight
from ui.jobs import protect_many
from ui.jobs.certifying import certificate_of
from ui.jobs.device import device_of
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
    # Noise names a leaker only among recipients whose noise lies in one basis, which is the secret's.
    settled = issued(vault, model.fingerprint, owner, params, ()).settled if params.noise_coordinates else None
    key = irwm.generate_key(
        model, params, secret=secret_of(vault, settled), owner=owner, recipient=recipient, device=device
    )
    report.progress(0, 0, "Checking the target disk and the mark's margin")
    preflight(model, request["out_dir"])
    require_margin(model, key, device)
    record = seal(vault, model, key, request["label"])
    release = write(
        model, key, Path(request["out_dir"]), progress=report.progress, cancelled=report.cancelled, device=device
    ).release
    marks = vault.marks_on(model.fingerprint)
    before = {"marked_before": [mark.whose for mark in marks], "damaged": len(marks.damaged)}
    receipt = receipt_of(model, key, release) | before
    report.progress(release.bytes_written, release.bytes_written, "Filing the receipt in the vault")
    vault.add_release(record.id, release.path, release.manifest.files, receipt)
    return receipt | {"key_id": record.id, "utility": certificate_of(request, model, receipt, device, report)}
