"""Writes checkpoints: inserts a mark, and publishes a release without ever leaving an incomplete one.

    insertion   solves the marked rows, publishes them, reads them back (Algorithms 2 and 5)

Publishing, from an opened checkpoint to a new folder:

    neurons     the fingerprint in the neurons of some MLPs
    patches     the byte ranges that change: new rows instead of the embedding's
    selection   which files are copied, and which would reveal unmarked weights
    partial     the locked NAME.partial folder, and the removal of those that interrupted runs left
    publish     copy, hash, verify, rename
    cloning     blocks shared between the copies of one release, if the disk supports it
    manifest    SHA256SUMS, for `sha256sum -c`
    front_matter  the YAML at the start of a model card: base model and licence

This package exports publishing only: `insertion` needs alignment and detection, which are slow to import.
"""

from irwm.release.manifest import (
    MANIFEST_NAME,
    SIGNATURE_NAME,
    STALE_SIGNATURE,
    Manifest,
    read_manifest,
    verify_manifest,
)
from irwm.release.partial import sweep_partials
from irwm.release.patches import Patch
from irwm.release.publish import Preflight, Published, preflight, publish

__all__ = [
    "MANIFEST_NAME",
    "SIGNATURE_NAME",
    "STALE_SIGNATURE",
    "Manifest",
    "Patch",
    "Preflight",
    "Published",
    "preflight",
    "publish",
    "read_manifest",
    "sweep_partials",
    "verify_manifest",
]
