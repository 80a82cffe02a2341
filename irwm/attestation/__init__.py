"""Documents about releases and reports in the formats of other tools. No module sends any data.

    signing_key        an EC P-256 key in a PEM file, or on a PKCS#11 token (token)
    model_signature    model.sig, an OpenSSF Model Signing signature over a release
    statement          an in-toto statement of a signed report, and the DSSE envelope around a statement
    bill               a CycloneDX ML-BOM of a release
    rekor              the entry with which a signature can be handed in to a Rekor transparency log

The libraries are those of the extra `release`; they are imported when a function needs them. The names of this package
are imported on first use, so that a signature does not load the code of reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irwm.lazy import imported_on_use

if TYPE_CHECKING:
    from irwm.attestation.bill import BillDetails as BillDetails
    from irwm.attestation.bill import bill_of_materials as bill_of_materials
    from irwm.attestation.model_signature import model_signer as model_signer
    from irwm.attestation.model_signature import sign_release as sign_release
    from irwm.attestation.rekor import rekor_entry as rekor_entry
    from irwm.attestation.signing_key import open_signing_key as open_signing_key
    from irwm.attestation.signing_key import public_pem as public_pem
    from irwm.attestation.statement import enveloped as enveloped
    from irwm.attestation.statement import report_statement as report_statement

__getattr__, __dir__ = imported_on_use(__name__)
