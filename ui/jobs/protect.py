"""The task behind Protect: key into the vault, marked copy onto the disk, receipt into the vault - in this order.

The key is sealed before the first byte of the release is written: a release whose key is lost can never be proved.
What can be refused is refused before that, so that a failure leaves no key of nothing in the vault.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import irwm
from irwm.checkpoint import preflight
from irwm.insertion import check_key, marked_rows
from storage.vault import Vault
from ui.jobs.device import device_of
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Mark one model for one owner or recipient.

    Args:
        request: "model" and "out_dir" (paths), "parameters" (`irwm.Parameters.to_dict`), "owner", "recipient",
            "label", "device".
        secrets: see `ui.jobs.vault_access`.

    Returns:
        What the page's receipt shows, plain JSON, without anything that derives from the secret but the commitment.
    """
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    report.progress(0, 0, "Opening the original")
    model = irwm.open_checkpoint(request["model"])
    params = irwm.Parameters.from_dict(request["parameters"])
    report.progress(0, 0, "Fingerprinting the embedding and deriving the key")
    key = irwm.generate_key(model, params, owner=request["owner"], recipient=request["recipient"], device=device)
    report.progress(0, 0, "Checking the target disk and the mark's margin")
    preflight(model, request["out_dir"])
    marked_rows(model, key, check_key(model, key), device)
    record = vault.add_key(
        key.to_bytes(),
        owner=key.owner,
        recipient=key.recipient,
        model_name=model.path.name,
        model_fingerprint=key.model_fingerprint,
        family=model.family,
        commitment=key.commitment,
        parameters=params.to_dict(),
        label=request["label"],
    )
    release = irwm.insert(
        model, key, request["out_dir"], progress=report.progress, device=device, cancelled=report.cancelled
    )
    receipt = _receipt(model, key, release)
    report.progress(release.bytes_written, release.bytes_written, "Filing the receipt in the vault")
    _file(vault, record.id, release, receipt)
    return receipt | {"key_id": record.id}


def _receipt(model: irwm.Checkpoint, key: irwm.Key, release: irwm.Release) -> dict[str, Any]:
    found, p = release.verification, key.parameters
    return {
        "model": str(model.path),
        "model_fingerprint": model.fingerprint,
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
        "changed_rows": len(release.changed_rows),
        "changed_values": len(release.changed_rows) * p.constraints,
        "verdict": found.verdict,
        "count": found.count,
        "present": found.present,
        "log10_p": found.log10_p,
        "paper_count": found.paper.count if found.paper else None,
        "irwm": irwm.__version__,
    }


def _file(vault: Vault, key_id: str, release: irwm.Release, receipt: Mapping[str, Any]) -> None:
    vault.add_release(key_id, Path(release.path), release.manifest.files, receipt)
