"""A suspect on a server: found without a download, and the report names address and commit."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import irwm
from irwm.checkpoint.remote.opening import local_path
from irwm.report import from_json, recognition_words
from irwm.report.consistency import contradictions
from irwm.report.verify_examination import check_item, wrong_in_item
from storage import Jobs, Vault
from tests.conftest import Marked
from tests.jobs.recipients import put_in_vault, request, run_here, succeeded
from tools.hub import ADDRESS, TOKEN, Hub, put

SECRETS = (TOKEN.encode(), b"signature=abc")


def test_suspect_on_a_server_is_found_by_its_address(
    hub: Hub,
    release_of: Callable[[str], Marked],
    vault: Vault,
    jobs: Jobs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, key, path = release_of("demo")
    put(hub, path)
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    keys = put_in_vault(vault, [key])
    job = succeeded(run_here("investigate", request(model.path, keys, suspect=str(local_path(ADDRESS))), vault, jobs))
    assert [row["verdict"] for row in job.result["rows"]] == ["found"]
    document = from_json(jobs.files(job.id).read(job.result["json"]))
    suspect = document["items"]["suspect"]
    (weights,) = [file for file in suspect["files"] if file["name"] == "model.safetensors"]
    assert weights["sha256"] == "", "not all of it was read"
    assert weights["bytes"] == (path / "model.safetensors").stat().st_size
    source = suspect["source"]
    assert (source["address"], source["commit"]) == (ADDRESS, hub.commit)
    assert {"model.safetensors", "config.json"} <= {file["name"] for file in source["files"]}
    page = jobs.files(job.id).read(job.result["html"]).decode()
    assert ADDRESS in page
    assert hub.commit in page
    assert "not hashed" not in page
    # The hub's token and the signatures of its addresses are in no report, no job, no log and no mirror.
    assert any(request.authorization == f"Bearer {TOKEN}" for request in hub.requests)
    assert any("/signed/" in request.path for request in hub.requests)
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert not any(word in file.read_bytes() for word in SECRETS), file
    for name in (job.result["html"], job.result["json"]):
        assert not any(word in jobs.files(job.id).read(name) for word in SECRETS)
    assert "no file versions" not in page
    unversioned = copy.deepcopy(source)
    unversioned["files"][0]["etag"] = ""
    assert "no file versions" in recognition_words.parts_read(unversioned)

    assert contradictions(document) == []
    for wrong in (
        {"name": "../../etc/passwd"},
        {"name": "/etc/passwd"},
        {"ranges": [{**source["files"][0]["ranges"][0], "start": 9, "stop": 9}]},
        {"ranges": [{**source["files"][0]["ranges"][0], "stop": 1 << 60}]},
        {"ranges": source["files"][0]["ranges"] * 3000},
    ):
        altered = copy.deepcopy(document)
        altered["items"]["suspect"]["source"]["files"][0] |= wrong
        assert contradictions(altered) != [], wrong

    # A reader has the same files on a disk; one byte of a part that was read is then changed.
    local = shutil.copytree(path, tmp_path / "copy")
    assert wrong_in_item(suspect, irwm.open_checkpoint(local)) == []
    assert check_item(suspect, "suspect", irwm.open_checkpoint(local)).ok is True
    (read,) = [file for file in source["files"] if file["name"] == "model.safetensors"]
    with open(local / "model.safetensors", "r+b") as stream:
        stream.seek(read["ranges"][-1]["stop"] - 1)
        (last,) = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([last ^ 1]))
    assert "parts read that differ" in " ".join(wrong_in_item(suspect, irwm.open_checkpoint(local)))
    without = copy.deepcopy(suspect)
    without["source"]["files"] = [file for file in source["files"] if file["name"] != "model.safetensors"]
    assert check_item(without, "suspect", irwm.open_checkpoint(path)).ok is None
