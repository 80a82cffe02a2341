"""Keys that sign: which are accepted, and what an error says about the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from irwm.attestation import open_signing_key
from irwm.attestation.token import TokenUri
from irwm.errors import MissingExtraError, SigningKeyError
from irwm.extras import release_libraries

KEY = ec.generate_private_key(ec.SECP256R1())


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, password: str = "") -> bytes:
    sealed = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed)


def test_encrypted_key_opens_with_the_first_line_of_the_secret_file(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(pem(KEY, "pass word"))
    (tmp_path / "secret").write_text("pass word\nsecond line\n")
    opened = open_signing_key(str(tmp_path / "key.pem"), str(tmp_path / "secret"))
    assert opened.public_key() == KEY.public_key()


@pytest.mark.parametrize(
    ("content", "secret", "said"),
    [
        (lambda: pem(KEY, "pass word"), "", "encrypted, but no password was given"),
        (lambda: pem(KEY), "pass word", "not encrypted, but a password was given"),
        (lambda: pem(KEY, "pass word"), "4711-wrong", "its password is wrong"),
        (lambda: b"no key", "", "not a private key"),
        (lambda: pem(ec.generate_private_key(ec.SECP384R1())), "", "Actual: secp384r1"),
        (lambda: pem(ed25519.Ed25519PrivateKey.generate()), "", "Expected: EC P-256"),
    ],
)
def test_other_key_files_are_refused(tmp_path: Path, content: Callable[[], bytes], secret: str, said: str) -> None:
    (tmp_path / "key.pem").write_bytes(content())
    (tmp_path / "secret").write_text(secret)
    with pytest.raises(SigningKeyError, match=re.escape(said)) as refused:
        open_signing_key(str(tmp_path / "key.pem"), str(tmp_path / "secret") if secret else "")
    assert refused.value.file == str(tmp_path / "key.pem")
    assert not secret or secret not in str(refused.value)


def test_pkcs11_uri_is_read_with_its_escapes() -> None:
    found = TokenUri.parse(
        "pkcs11:token=My%20token;serial=12;object=a%3Bb;id=%01%ff?module-path=/x.so&pin-source=file:///run/pin"
    )
    assert found == TokenUri("/x.so", "My token", "12", "a;b", b"\x01\xff", "/run/pin")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("pkcs11:object=a?module-path=/x.so&pin-value=4711", "the PIN is in the PKCS#11 URI"),
        ("pkcs11:object=a", "no module-path, or one that is not absolute"),
        ("pkcs11:object=a?module-path=x.so", "no module-path, or one that is not absolute"),
        ("pkcs11:token=a?module-path=/x.so", "neither object nor id"),
        ("pkcs11:object=a?module-path=/x.so?pin-value=4711", "the PIN is in the PKCS#11 URI"),
        ("pkcs11:object=a?module-path=/x.so&pin-source=4711", "a pin-source that is not the full path"),
        ("pkcs11:object=a;slot=1?module-path=/x.so", "unknown or occurs twice: slot"),
        ("pkcs11:object=a;object=b?module-path=/x.so", "unknown or occurs twice: object"),
    ],
)
def test_other_uris_are_refused_without_their_pin(uri: str, said: str) -> None:
    with pytest.raises(SigningKeyError, match=re.escape(said)) as refused:
        TokenUri.parse(uri)
    assert "4711" not in str(refused.value)


def test_missing_module_is_named() -> None:
    with pytest.raises(SigningKeyError, match="cannot be used") as refused:
        open_signing_key("pkcs11:token=t;object=signing?module-path=/no/such/module.so")
    assert refused.value.file == "/no/such/module.so"


def test_missing_library_is_reported_with_the_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"FILE\.whl\[release\]") as missing, release_libraries():
        import no_such_library  # noqa: F401
    assert missing.value.found == "no usable no_such_library"
