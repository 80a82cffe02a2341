"""A small release, and keys that sign it: in a file, and on a token in software."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from irwm.attestation import public_pem
from irwm.checkpoint import open_checkpoint
from irwm.release import publish
from tools.small_models import write_llama

PIN = "4711-4711"
CARD = "---\nlicense: apache-2.0\nbase_model: example-labs/base\n---\n# A model\n"


@dataclass(frozen=True)
class KeyFiles:
    """A private key, and its public key, in PEM files."""

    private: Path
    public: Path


def write_key(folder: Path, key: ec.EllipticCurvePrivateKey) -> KeyFiles:
    folder.mkdir(exist_ok=True)
    files = KeyFiles(folder / "key.pem", folder / "public.pem")
    files.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    files.public.write_bytes(public_pem(key.public_key()))
    return files


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return write_key(tmp_path / "keys", ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a card, and a signature that holds for it alone. Shared: copy it before any change."""
    folder = write_llama(tmp_path_factory.mktemp("attestation") / "original")
    (folder / "README.md").write_text(CARD)
    (folder / "model.sig").write_text("{}")
    return folder


@pytest.fixture
def release(original: Path, tmp_path: Path) -> Path:
    """A release without a signature."""
    return publish(open_checkpoint(original), tmp_path / "release", {}).path


@dataclass(frozen=True)
class Token:
    """A token with one key pair."""

    uri: str
    pin_file: Path


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Token:
    """A SoftHSM token. Its module reads the environment, so use it in a separate process."""
    if shutil.which("softhsm2-util") is None:
        pytest.skip("softhsm2-util is missing: sh tools/need_tools.sh softhsm2-util")
    places = (Path(base) / "softhsm" / "libsofthsm2.so" for base in ("/usr/lib", "/usr/lib64", "/usr/local/lib"))
    module = next((path for path in places if path.exists()), None)
    if module is None:
        pytest.skip("libsofthsm2.so is in none of the usual folders")
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm2.conf").write_text(f"directories.tokendir = {tmp_path / 'tokens'}\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "softhsm2.conf"))
    key = ec.generate_private_key(ec.SECP256R1())
    pem = write_key(tmp_path / "imported", key).private
    for command in (
        ("--init-token", "--free", "--label", "release", "--pin", PIN, "--so-pin", "12345678"),
        ("--import", pem, "--token", "release", "--label", "signing", "--id", "a1b2", "--pin", PIN),
    ):
        subprocess.run(["softhsm2-util", *command], check=True, capture_output=True, env=os.environ)
    pem.unlink()
    (tmp_path / "pin").write_text(f"{PIN}\n")
    return Token(f"pkcs11:token=release;object=signing?module-path={module}", tmp_path / "pin")
