"""Everything that writes a checkpoint: a mark inserted, and a release published without ever leaving half of one.

    insertion   solve the marked rows, publish them, read them back (Algorithms 2 and 5)

Publishing, from an opened checkpoint to a new folder:

    patches     the byte ranges that change: new rows in the place of the embedding's
    selection   which files are copied, and which would give unmarked weights away
    partial     the locked NAME.partial folder, and the removal of those that dead runs left
    publish     copy, hash, verify, rename
    cloning     blocks shared between the copies of one release, if the disk can
    manifest    SHA256SUMS, for `sha256sum -c`

This package exports publishing only: `insertion` needs alignment and detection, which take long to import.
"""

from irwm.release.manifest import MANIFEST_NAME, Manifest, ManifestCheck, read_manifest, verify_manifest
from irwm.release.partial import sweep_partials
from irwm.release.patches import LazyPatch, Patch
from irwm.release.publish import Preflight, Published, preflight, publish

__all__ = [
    "MANIFEST_NAME",
    "LazyPatch",
    "Manifest",
    "ManifestCheck",
    "Patch",
    "Preflight",
    "Published",
    "preflight",
    "publish",
    "read_manifest",
    "sweep_partials",
    "verify_manifest",
]
