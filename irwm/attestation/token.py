"""A key on a PKCS#11 token, named by a URI (RFC 7512). The private key never leaves the token.

    pkcs11:token=release;object=signing?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/run/secrets/pin

Known are `token`, `serial`, `object`, `id`, `module-path` and `pin-source` (a file with the PIN). A PIN in the URI
itself is refused: command lines and job lists would show it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, unquote_to_bytes

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from irwm.checkpoint.files import read_small
from irwm.errors import SigningKeyError, printable
from irwm.extras import release_libraries

SCHEME = "pkcs11:"
_PATH, _QUERY = {"token", "serial", "object", "id"}, {"module-path", "pin-source"}
_EXAMPLE = "pkcs11:token=NAME;object=LABEL?module-path=/path/of/module.so"


@dataclass(frozen=True, slots=True)
class TokenUri:
    """The parts of a PKCS#11 URI; None for one that it does not give.

    Attributes:
        module: path of the token's PKCS#11 library.
        token, serial: label and serial number of the token.
        label, id: of the key pair on it.
        pin_source: path of a file with the PIN.
    """

    module: str
    token: str | None
    serial: str | None
    label: str | None
    id: bytes | None
    pin_source: str | None

    @classmethod
    def parse(cls, uri: str) -> TokenUri:
        """The parts.

        Raises:
            SigningKeyError: it has another form, names no key or no module, or contains a PIN.
        """
        if "pin-value=" in uri:
            raise SigningKeyError(
                "the PIN is in the PKCS#11 URI, which command histories and process lists expose",
                advice="Give a file with the PIN: --secret-file FILE, or pin-source in the URI",
            )
        path, _, query = uri.removeprefix(SCHEME).partition("?")
        given: dict[str, str] = {}
        for text, separator, known in ((path, ";", _PATH), (query, "&", _QUERY)):
            for part in filter(None, text.split(separator)):
                name, _, value = part.partition("=")
                if name not in known or name in given:
                    raise _malformed("an attribute that is unknown or occurs twice: " + printable(name, 40))
                given[name] = value
        module = unquote(given.get("module-path", ""))
        if not os.path.isabs(module):  # a relative one could be loaded from the working folder
            raise _malformed("no module-path, or one that is not absolute")
        if not (given.get("object") or given.get("id")):
            raise _malformed("neither object nor id, so no key is identified")
        source = unquote(given.get("pin-source", "").removeprefix("file:").removeprefix("//"))
        if source and not os.path.isabs(source):  # the command and its job have other working folders
            raise _malformed("a pin-source that is not the full path of a file")
        return cls(
            module=module,
            token=unquote(given["token"]) if "token" in given else None,
            serial=unquote(given["serial"]) if "serial" in given else None,
            label=unquote(given["object"]) if "object" in given else None,
            id=unquote_to_bytes(given["id"]) if "id" in given else None,
            pin_source=source or None,
        )


def open_token_key(uri: str, pin: str | None = None) -> ec.EllipticCurvePrivateKey:
    """The key; the token is asked for its public part now, and for each signature later.

    Args:
        pin: the token's PIN; None for the one at `pin-source`, or else for none.

    Raises:
        SigningKeyError: the URI, the module, the token, the PIN or the key cannot be used.
        MissingExtraError: the extra `release` is not installed.
    """
    parts = TokenUri.parse(uri)
    if pin is None and parts.pin_source is not None:
        pin = read_small(Path(parts.pin_source), 1 << 16, "file with the PIN").decode("utf-8", "replace").split("\n")[0]
    return _TokenKey(parts, pin)


class _TokenKey(ec.EllipticCurvePrivateKey):
    """The token's key in the type that `cryptography` uses. It only signs, with SHA-256."""

    def __init__(self, uri: TokenUri, pin: str | None) -> None:
        self._uri, self._pin = uri, pin
        with release_libraries():
            from pkcs11 import ObjectClass
            from pkcs11.util.ec import encode_ec_public_key
        with self._object(ObjectClass.PUBLIC_KEY) as found:
            public = load_der_public_key(encode_ec_public_key(found))
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
            raise SigningKeyError("the token's key is of another kind", expected="EC P-256 (secp256r1)")
        self._public = public
        with self._object(ObjectClass.PRIVATE_KEY):
            pass  # a wrong PIN is reported now, and not after hours of work

    def public_key(self) -> ec.EllipticCurvePublicKey:
        return self._public

    @property
    def curve(self) -> ec.EllipticCurve:
        return self._public.curve

    @property
    def key_size(self) -> int:
        return self._public.key_size

    def sign(self, data: Any, signature_algorithm: ec.EllipticCurveSignatureAlgorithm) -> bytes:
        if not isinstance(signature_algorithm, ec.ECDSA) or not isinstance(signature_algorithm.algorithm, SHA256):
            raise SigningKeyError("a token's key signs with ECDSA and SHA-256 only")
        from pkcs11 import Mechanism, ObjectClass
        from pkcs11.util.ec import encode_ecdsa_signature

        with self._object(ObjectClass.PRIVATE_KEY) as found:
            return encode_ecdsa_signature(found.sign(hashlib.sha256(data).digest(), mechanism=Mechanism.ECDSA))

    @contextmanager
    def _object(self, kind: Any) -> Iterator[Any]:
        """One key of the pair, in a new session."""
        import pkcs11

        uri = self._uri
        try:
            token = pkcs11.lib(uri.module).get_token(token_label=uri.token, token_serial=_bytes(uri.serial))
            with token.open(user_pin=self._pin) as session:
                yield session.get_key(object_class=kind, key_type=pkcs11.KeyType.EC, label=uri.label, id=uri.id)
        except (pkcs11.PKCS11Error, RuntimeError, OSError) as error:
            raise SigningKeyError(
                "the key on the token cannot be used",
                file=uri.module,
                expected=f"the key {printable(uri.label or (uri.id or b'').hex(), 80)}, on the token "
                f"{printable(uri.token or uri.serial or '–', 80)}",
                found=f"{type(error).__name__} {printable(str(error), 200)}".strip(),
                advice="Check the URI and the PIN; pkcs11-tool --list-objects --login shows the keys of a token",
            ) from error

    def exchange(self, algorithm: ec.ECDH, peer_public_key: ec.EllipticCurvePublicKey) -> NoReturn:
        raise _stays()

    def private_numbers(self) -> NoReturn:
        raise _stays()

    def private_bytes(self, encoding: Any, format: Any, encryption_algorithm: Any) -> NoReturn:
        raise _stays()

    def __copy__(self) -> _TokenKey:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _TokenKey:
        return self


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8")


def _malformed(found: str) -> SigningKeyError:
    return SigningKeyError("the PKCS#11 URI cannot be used", expected=_EXAMPLE, found=found)


def _stays() -> SigningKeyError:
    return SigningKeyError("the private key cannot leave the token")
