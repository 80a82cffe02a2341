"""The utility certificate of a receipt: the cost of a mark, measured on original and release."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import torch

from irwm.errors import CancelledError, DeviceMemoryError, IrwmError
from irwm.inference.measure import Utility, compare
from irwm.inference.reference import Progress, reference
from irwm.inference.text import default_text

# Enough to detect a change of perplexity by 1%; takes a small model a few seconds.
TOKENS = 1024
BUNDLED = "the bundled text (documentation of Python)"


class CertificateJson(TypedDict):
    """`Certificate.to_dict`; without a text if the app did not try to measure."""

    changed_rows: int
    text: str | None
    text_sha256: str | None
    utility: Mapping[str, Any] | None
    why: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """A release compared with its original.

    Attributes:
        changed_rows: changed rows of the embedding.
        text: the text's name.
        text_sha256: hex SHA-256 of its UTF-8 bytes.
        utility: None if it was not measured.
        why: why it was not measured; "" otherwise.
    """

    changed_rows: int
    text: str
    text_sha256: str
    utility: Utility | None
    why: str = ""

    def to_dict(self) -> CertificateJson:
        """Plain JSON values."""
        return {
            "changed_rows": self.changed_rows,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "utility": self.utility.to_dict() if self.utility else None,
            "why": self.why,
        }


def certify(
    original: str | Path,
    release: str | Path,
    changed_rows: int,
    text: str | None = None,
    name: str = BUNDLED,
    *,
    tokens: int = TOKENS,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Certificate:
    """Run both models over the beginning of a text.

    A model that cannot be run is not an error: the certificate then states why it holds no figures.

    Args:
        text: None for the bundled text.
        progress: as for `reference` and then `compare`; a `CancelledError` that it raises is propagated.

    Raises:
        DeviceMemoryError, torch.OutOfMemoryError: the device has too little memory (`irwm.evidence.devices.on_device`).
    """
    text = default_text() if text is None else text
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    utility, why = None, ""
    try:
        before = reference(original, text, tokens, device, progress=_saying("Running the original", progress))
        utility = compare(before, release, progress=_saying("Running the release", progress))
    except (CancelledError, DeviceMemoryError, torch.OutOfMemoryError):
        raise  # the caller may try again on the processor
    except IrwmError as error:
        why = str(error)
    # For example too large for this machine, or a full temporary folder. In any case the release is valid.
    except Exception as error:
        why = f"running the model failed: {str(error)[:200]}"
    return Certificate(changed_rows, name, digest, utility, why)


def _saying(what: str, progress: Progress | None) -> Progress | None:
    return progress and (lambda done, total, _what: progress(done, total, what))
