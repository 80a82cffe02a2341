"""`model.sig`: what `model_signing` accepts, and what it covers."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from irwm.attestation import model_signer, open_signing_key, sign_release
from irwm.checkpoint import open_checkpoint
from irwm.errors import AttestationError, CancelledError, NotACheckpointError, OutputExistsError, ParameterError
from irwm.release import publish, read_manifest, verify_manifest
from irwm.release.selection import select_files
from tests.attestation.commands import irwm, verifies
from tests.attestation.conftest import KeyFiles, Token


def resources(signature: bytes) -> dict[str, str]:
    """The SHA-256 of each file that a signature covers."""
    payload = json.loads(base64.b64decode(json.loads(signature)["dsseEnvelope"]["payload"]))
    return {each["name"]: each["digest"] for each in payload["predicate"]["resources"]}


def test_release_signed_while_published_is_accepted_by_model_signing(
    original: Path, keys: KeyFiles, tmp_path: Path
) -> None:
    sign = model_signer(open_signing_key(str(keys.private)))
    released = publish(open_checkpoint(original), tmp_path / "release", {}, sign=sign)
    assert verifies(released.path, keys.public)
    content = (released.path / "model.sig").read_bytes()
    assert released.signature == hashlib.sha256(content).hexdigest()
    assert released.bytes_written == sum(file.stat().st_size for file in released.path.iterdir())
    manifest = hashlib.sha256((released.path / "SHA256SUMS").read_bytes()).hexdigest()
    assert resources(content) == {**released.manifest.files, "SHA256SUMS": manifest}
    assert verify_manifest(released.path).ok


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "README.md", "SHA256SUMS"])
def test_model_signing_rejects_a_changed_file(release: Path, keys: KeyFiles, name: str) -> None:
    sign_release(release, open_signing_key(str(keys.private)))
    assert verifies(release, keys.public)
    (release / name).write_bytes((release / name).read_bytes() + b"\n")
    assert not verifies(release, keys.public)


@pytest.mark.slow
def test_command_signs_a_finished_release(release: Path, keys: KeyFiles, tmp_path: Path) -> None:
    words = "sign", release, "--key", keys.private
    assert irwm(*words, "--public-key", tmp_path / "out.pem").splitlines() == [
        f"Written: {release / 'model.sig'}",
        f"Written: {tmp_path / 'out.pem'}",
    ]
    assert verifies(release, tmp_path / "out.pem")
    assert "already signed" in irwm(*words, status=2)


def test_token_signs_a_release(release: Path, token: Token, tmp_path: Path) -> None:
    words = "sign", release, "--key", token.uri, "--public-key", tmp_path / "public.pem"
    (tmp_path / "wrong").write_text("0000\n")
    said = irwm(*words, "--secret-file", tmp_path / "wrong", status=2)
    assert "the key on the token cannot be used" in said
    assert "PinIncorrect" in said
    irwm(*words, "--secret-file", token.pin_file)
    assert verifies(release, tmp_path / "public.pem")


def test_no_file_is_read_for_the_signature_of_a_finished_release(release: Path, keys: KeyFiles) -> None:
    """The hashes are those of the manifest, also for a file that is gone."""
    (release / "model.safetensors").unlink()
    content = sign_release(release, open_signing_key(str(keys.private))).read_bytes()
    assert resources(content)["model.safetensors"] == read_manifest(release).files["model.safetensors"]


def test_signature_of_the_original_is_not_copied(original: Path, release: Path) -> None:
    model = open_checkpoint(original)
    assert not (release / "model.sig").exists()
    assert select_files(model).left_out == ("model.sig",)
    with pytest.raises(ParameterError, match="is not valid for a release"):
        select_files(model, ["model.sig"])


def test_signature_next_to_a_single_file_is_not_copied(original: Path, tmp_path: Path) -> None:
    released = publish(open_checkpoint(original / "model.safetensors"), tmp_path / "alone", {})
    assert released.left_out == ("model.sig",)
    assert not (released.path / "model.sig").exists()


def test_failing_signature_leaves_no_release(original: Path, tmp_path: Path) -> None:
    def sign(*_: object) -> bytes:
        raise CancelledError("the token was removed")

    with pytest.raises(CancelledError):
        publish(open_checkpoint(original), tmp_path / "out", {}, sign=sign)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_file_and_the_next_step(release: Path, keys: KeyFiles, tmp_path: Path) -> None:
    key = open_signing_key(str(keys.private))
    with pytest.raises(NotACheckpointError, match="SHA256SUMS"):
        sign_release(tmp_path, key)
    manifest = release / "SHA256SUMS"
    manifest.write_bytes(manifest.read_bytes().replace(b"  ", b" *"))
    with pytest.raises(AttestationError, match="form that this program writes") as wrong:
        sign_release(release, key)
    assert wrong.value.file == str(manifest)
    assert "model_signing" in (wrong.value.advice or "")
    (release / "model.sig").write_text("")
    with pytest.raises(OutputExistsError):
        sign_release(release, key)


def test_files_that_model_signing_ignores_are_not_signed(original: Path, keys: KeyFiles, tmp_path: Path) -> None:
    shutil.copytree(original, tmp_path / "model", ignore=shutil.ignore_patterns("model.sig"))
    (tmp_path / "model" / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    sign = model_signer(open_signing_key(str(keys.private)))
    released = publish(open_checkpoint(tmp_path / "model"), tmp_path / "out", {}, sign=sign, also=[".gitattributes"])
    assert ".gitattributes" in released.manifest.files
    assert ".gitattributes" not in resources((released.path / "model.sig").read_bytes())
    assert verifies(released.path, keys.public)
