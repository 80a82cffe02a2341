"""A key that signs releases: EC P-256, in a PEM file or on a PKCS#11 token. Both are keys of `cryptography`."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from irwm.attestation.token import SCHEME, open_token_key
from irwm.checkpoint.files import read_small
from irwm.errors import SigningKeyError, path_from

_MOST_BYTES = 1 << 16
CURVE = "EC P-256 (secp256r1)"


def open_signing_key(source: str, secret_file: str = "") -> ec.EllipticCurvePrivateKey:
    """The private key.

    Args:
        source: the path of a PEM file, or a PKCS#11 URI (RFC 7512).
        secret_file: the path of a file whose first line is the password of the PEM file, or the token's PIN.

    Raises:
        SigningKeyError: it cannot be opened, or is of another kind.
        MissingExtraError: a token needs the extra `release`.
        CheckpointError: a file cannot be read.
    """
    secret = _secret(Path(path_from(secret_file))) if secret_file else None
    if source.startswith(SCHEME):
        return open_token_key(source, secret)
    path = path_from(source)
    content = read_small(path, _MOST_BYTES, "key file")
    try:
        key = load_pem_private_key(content, None if secret is None else secret.encode("utf-8"))
    except TypeError as error:  # a password is missing, or one was given for a key without
        raise SigningKeyError(
            "the key file is encrypted, but no password was given"
            if secret is None
            else "the key file is not encrypted, but a password was given",
            file=path,
            advice="Give the password as the first line of a file (--secret-file)" if secret is None else None,
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SigningKeyError(
            "this is not a private key, or its password is wrong",
            file=path,
            expected=f"a PEM file with a private key, {CURVE}",
            found=str(error)[:200],
            advice="Make one with: openssl ecparam -name prime256v1 -genkey -noout -out key.pem",
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SigningKeyError(
            "the key is of another kind",
            file=path,
            expected=CURVE,
            found=getattr(getattr(key, "curve", None), "name", type(key).__name__),
            advice="Make one with: openssl ecparam -name prime256v1 -genkey -noout -out key.pem",
        )
    return key


def public_pem(key: PublicKeyTypes) -> bytes:
    """A public key as PEM, as verifiers take it."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _secret(path: Path) -> str:
    try:
        return read_small(path, _MOST_BYTES, "file with the secret").decode("utf-8").split("\n")[0].removesuffix("\r")
    except UnicodeDecodeError as error:
        raise SigningKeyError("the file with the password or PIN is not UTF-8", file=path) from error
