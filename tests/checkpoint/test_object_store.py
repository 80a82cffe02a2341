"""Checkpoints in the buckets of a real S3 server (moto), through s3fs: the numbers are those from disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from moto.moto_api._internal import moto_api_backend
from moto.server import ThreadedMotoServer

import irwm
from irwm.checkpoint.remote.hosted import hosted
from irwm.errors import RemoteError
from tests.command.commands import Desk
from tests.conftest import Marked

BUCKET = "models"


@pytest.fixture
def bucket(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The file system of a server with one empty bucket, which processes that are started later reach too. The
    credentials are in the file of the store's own tools: jobs do not get them from variables."""
    home = cache.parents[2] / "user"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text("[default]\naws_access_key_id = me\naws_secret_access_key = secret\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("IRWM_SERVERS", f"s3://{BUCKET}")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    system = fsspec.filesystem("s3")
    try:
        system.mkdir(BUCKET)
        yield system
    finally:
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        server.stop()
        moto_api_backend.reset()  # all servers of a process share their buckets


def put(system: Any, folder: Path, name: str) -> str:
    """Uploads a checkpoint; returns its address."""
    for file in folder.rglob("*"):
        if file.is_file():
            system.pipe_file(f"{BUCKET}/{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())
    return f"s3://{BUCKET}/{name}"


def test_suspect_in_a_bucket_gives_the_same_numbers_as_on_disk(
    bucket: Any, release_of: Callable[[str], Marked]
) -> None:
    model, key, path = release_of("demo")
    here = irwm.detect(irwm.open_checkpoint(path), model, key)
    suspect = irwm.open_checkpoint(put(bucket, path, "demo"))
    there = irwm.detect(suspect, model, key)
    assert there.verdict == here.verdict == "found"
    assert (there.log10_p, there.lineage) == (here.log10_p, here.lineage)
    np.testing.assert_array_equal(there.ranks, here.ranks)
    assert suspect.fingerprint == irwm.open_checkpoint(path).fingerprint


def test_missing_objects_and_wrong_credentials_are_typed_errors(
    bucket: Any, demo_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = put(bucket, demo_path, "demo")
    with pytest.raises(RemoteError):
        irwm.open_checkpoint(f"s3://{BUCKET}/other")
    monkeypatch.setenv("IRWM_SERVERS", "s3://elsewhere")
    with pytest.raises(RemoteError, match="allowed"):
        irwm.open_checkpoint(address)
    monkeypatch.setenv("IRWM_SERVERS", f"s3://{BUCKET} s3://nobody")
    with pytest.raises(RemoteError):
        irwm.open_checkpoint("s3://nobody/model")
    (Path.home() / ".aws" / "credentials").unlink()
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(RemoteError, match="could not be read"):
        irwm.open_checkpoint(address)


def test_object_that_changes_after_it_was_listed_is_an_error(bucket: Any, demo_path: Path) -> None:
    suspect = irwm.open_checkpoint(put(bucket, demo_path, "demo"))
    content = bytearray((demo_path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    bucket.pipe_file(f"{BUCKET}/demo/model.safetensors", bytes(content))
    with pytest.raises(RemoteError, match="changed"):
        suspect.embedding()


def test_models_of_a_bucket_and_their_versions(bucket: Any, demo_path: Path) -> None:
    put(bucket, demo_path, "all/a")
    for name in ("all/b/deep/x.gguf", "all/b/deep/y.gguf", "all/b/notes.txt"):
        bucket.pipe_file(f"{BUCKET}/{name}", b"x")
    before = {each.name: each for each in hosted(f"s3://{BUCKET}/all")}
    assert {name: each.address for name, each in before.items()} == {
        "a": f"s3://{BUCKET}/all/a",
        "b/deep/x.gguf": f"s3://{BUCKET}/all/b/deep/x.gguf",
        "b/deep/y.gguf": f"s3://{BUCKET}/all/b/deep/y.gguf",
    }
    bucket.pipe_file(f"{BUCKET}/all/b/deep/y.gguf", b"y")
    after = {each.name: each.version for each in hosted(f"s3://{BUCKET}/all")}
    assert [name for name, version in after.items() if version != before[name].version] == ["b/deep/y.gguf"]


@pytest.mark.slow
def test_watch_of_a_bucket(bucket: Any, tmp_path: Path, demo_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    desk = Desk.made(tmp_path)
    shutil.copytree(demo_path, desk.work / "model")
    words = ("protect", "model", "copy", "--owner", "Labs", "--recipient", "Ada", "--utility", "no", "--quiet")
    assert desk.here(capfd, *words).status == 0
    put(bucket, desk.work / "copy", "suspects/copy")
    assert os.environ["IRWM_SERVERS"] == f"s3://{BUCKET}"
    answered = desk.here(capfd, "watch", f"s3://{BUCKET}/suspects", "--quiet")
    assert answered.status == 0, answered.said
    rows = answered.answer["result"]["rows"]
    assert [(row["name"], row["result"]["word"], row["result"]["whose"]) for row in rows] == [
        ("copy", "found", ["Ada"])
    ]
    assert rows[0]["result"]["bytes"] > 0
    again = desk.here(capfd, "watch", f"s3://{BUCKET}/suspects", "--quiet")
    assert again.answer["result"]["counts"] == {}
