"""`model.sig`: a signature over a release in the format of OpenSSF Model Signing, which `model_signing verify` reads.

It covers every file by its SHA-256, SHA256SUMS included, but not the files of Git, which `model_signing` ignores. The
hashes are those computed while the release was written, so no file is read twice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from irwm.attestation.new_file import write_new
from irwm.errors import AttestationError, OutputExistsError
from irwm.extras import release_libraries
from irwm.release.manifest import LOCK_NAME, MANIFEST_NAME, SIGNATURE_NAME, format_manifest, read_manifest
from irwm.release.publish import Sign

# The paths that `model_signing` leaves out by default.
_IGNORED = (SIGNATURE_NAME, ".git", ".gitattributes", ".github", ".gitignore")


def model_signer(key: ec.EllipticCurvePrivateKey) -> Sign:
    """A function that `irwm.insert` calls as `sign`, to sign a release while it is published.

    Raises:
        MissingExtraError: the extra `release` is not installed.
    """
    with release_libraries():
        import model_signing.signing  # noqa: F401  - missing libraries are reported before the work begins

    def sign(name: str, digests: Mapping[str, str]) -> bytes:
        return _signature(key, name, digests)

    return sign


def sign_release(folder: str | Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """Sign a finished release; writes `model.sig` into its folder and returns its path.

    It signs the hashes in SHA256SUMS and reads no other file. `irwm.release.verify_manifest` checks the files.

    Raises:
        OutputExistsError: the release is already signed.
        NotACheckpointError, CorruptCheckpointError: the folder has no manifest, or it is malformed.
        AttestationError: the manifest has another form than this program writes, or the signature cannot be written.
        MissingExtraError: the extra `release` is not installed.
        SigningKeyError: the token does not sign.
    """
    folder = Path(folder)
    target = folder / SIGNATURE_NAME
    if os.path.lexists(target):
        raise OutputExistsError(
            "the release is already signed", file=target, advice="Remove this file to sign the release again"
        )
    if os.path.lexists(folder / LOCK_NAME):  # no signature would hold, because it does not list this file
        raise AttestationError(
            "the release has a file left by an interrupted run", file=folder / LOCK_NAME, advice="Remove this file"
        )
    digests = read_manifest(folder).files
    # The bytes from which the digests were read: another form would have another digest.
    text = format_manifest(digests)
    if (folder / MANIFEST_NAME).read_bytes() != text:
        raise AttestationError(
            "the manifest does not have the form that this program writes",
            file=folder / MANIFEST_NAME,
            expected="lines of sha256sum, sorted by file name",
            advice="Sign the folder with the command model_signing, which reads all files",
        )
    listed = {**digests, MANIFEST_NAME: hashlib.sha256(text).hexdigest()}
    return write_new(target, model_signer(key)(folder.resolve().name, listed))


def _signature(key: ec.EllipticCurvePrivateKey, name: str, digests: Mapping[str, str]) -> bytes:
    from model_signing import manifest, signing

    class KnownKey(signing.ec_key.Signer):
        """Their signer, with a key that is open already instead of a file's."""

        def __init__(self) -> None:
            self._private_key = key

    for text in (name, *digests):
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise AttestationError(
                "a file name is not UTF-8, and a signature cannot contain it", file=Path(text), advice="Rename the file"
            )
    form = manifest.SerializationType.from_args(
        {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": list(_IGNORED)}
    )
    items = [
        form.new_item(file, manifest.hashing.Digest("sha256", bytes.fromhex(digest)))
        for file, digest in digests.items()
        if file.split("/")[0] not in _IGNORED
    ]
    payload = signing.signing.Payload(manifest.Manifest(name, items, form))
    signed: Any = KnownKey().sign(payload)
    return f"{signed.bundle.to_json()}\n".encode()
