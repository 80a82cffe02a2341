"""Checkpoints on servers: the same verdicts as from disk, few bytes, and every fault of a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

import irwm
from irwm.__main__ import main
from irwm.checkpoint.remote import headers, listing, mirror, store, web
from irwm.checkpoint.remote.address import is_address, parse
from irwm.checkpoint.remote.servers import require_allowed
from irwm.errors import IrwmError, NotACheckpointError, ParameterError, RemoteError, ServerUnavailableError
from tests.conftest import Marked
from tools.hub import ADDRESS, REPOSITORY, Hub, put
from tools.small_models import write_llama


@pytest.mark.parametrize(
    "text",
    [
        "hf://name",
        "hf://a/b@",
        "hf://a b/c",
        "https://host",
        "s3://",
        "https://user:secret@host/x.safetensors",
        "hf://",
    ],
)
def test_incomplete_addresses_are_refused(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(text)
    assert "secret" not in str(caught.value)


def test_parts_of_an_address() -> None:
    found = parse("hf://acme/model@v1.0/checkpoints/last")
    assert (found.path, found.revision, found.inside, found.name) == ("acme/model", "v1.0", "checkpoints/last", "model")
    assert parse("s3://bucket/a/b/").name == "b"
    assert parse("https://host/a/b.safetensors?token=1").text == "https://host/a/b.safetensors"
    assert is_address("HF://a/b")
    assert not is_address(Path("hf://a/b"))
    assert not is_address("models/hf")


def test_suspect_on_the_hub_gives_the_same_numbers_as_on_disk(hub: Hub, release_of: Callable[[str], Marked]) -> None:
    model, key, path = release_of("demo")
    put(hub, path)
    hub.large = 10_000
    here = irwm.detect(irwm.open_checkpoint(path), model, key)
    suspect = irwm.open_checkpoint(ADDRESS)
    there = irwm.detect(suspect, model, key)
    assert there.verdict == here.verdict == "found"
    assert there.log10_p == here.log10_p
    np.testing.assert_array_equal(there.ranks, here.ranks)
    assert there.lineage == here.lineage
    assert suspect.fingerprint == irwm.open_checkpoint(path).fingerprint
    assert any(hub.commit in note for note in suspect.notes)
    # The token goes to the hub alone.
    assert {bool(request.authorization) for request in hub.requests if request.path.startswith("/api/models")} == {True}
    assert {request.authorization for request in hub.requests if request.path.startswith("/signed/")} == {""}


def test_only_the_needed_tensors_are_read_and_each_once(hub: Hub, demo_path: Path, monkeypatch) -> None:
    put(hub, demo_path)
    monkeypatch.setattr(mirror, "GAP", 0)
    suspect = irwm.open_checkpoint(ADDRESS)
    opened = hub.bytes_sent
    assert opened < 2 * mirror.BLOCK + sum(file.stat().st_size for file in demo_path.glob("*.json"))
    rows = suspect.embedding([5, 6, 1000])
    # The server must not learn which rows are marked.
    embedding = suspect.vocab_size * suspect.hidden_size * 2
    assert embedding <= hub.bytes_sent - opened <= embedding + 2 * mirror.BLOCK
    read = hub.bytes_sent
    again = irwm.open_checkpoint(ADDRESS)
    torch.testing.assert_close(again.embedding([6]), rows[1:2], rtol=0, atol=0)
    assert hub.bytes_sent == read
    known = mirror.mirror_of(again.shards[0])
    assert known is not None
    with open(demo_path / again.shards[0].name, "rb") as stream:
        for fetched in known[0].reads:
            if fetched.file == again.shards[0].name:
                stream.seek(fetched.start)
                assert mirror.hashlib.sha256(stream.read(fetched.stop - fetched.start)).hexdigest() == fetched.sha256


def test_only_public_samples_show_the_server_which_rows_are_read(hub: Hub, tmp_path: Path) -> None:
    path = write_llama(tmp_path / "model", vocab_size=40_000, hidden_size=64)
    put(hub, path)
    rows = torch.arange(20_000, 20_100)
    whole, here = (path / "model.safetensors").stat().st_size, irwm.open_checkpoint(path)
    suspect = irwm.open_checkpoint(ADDRESS)
    assert torch.equal(suspect.sample(rows), here.sample(rows))
    assert torch.equal(here.sample(rows), here.embedding(rows))
    assert hub.bytes_sent < whole / 20
    assert torch.equal(suspect.embedding(rows), here.embedding(rows))
    assert hub.bytes_sent > 40_000 * 64 * 4, "all rows, since a key may have chosen these"


def test_reads_stay_at_the_commit_although_the_branch_moves(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    hub.commit = "e" * 40
    with pytest.raises(RemoteError, match="no such file"):
        suspect.embedding([1])
    moved = irwm.open_checkpoint(ADDRESS)
    assert moved.path != suspect.path
    assert moved.embedding([1]).shape == (1, moved.hidden_size)


def test_file_that_changes_under_the_same_commit_is_an_error(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    weights = hub.folder / suspect.shards[0].name
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(RemoteError, match="changed"):
        suspect.embedding()


def no_ranges(handler: Any, file: Path, start: int, stop: int) -> bool:
    content = file.read_bytes()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)
    return True


def answers(status: int, **headers: str) -> Callable[[Any, Path, int, int], bool]:
    def fault(handler: Any, file: Path, start: int, stop: int) -> bool:
        handler.send_json({"error": "x"}, status, {name.replace("_", "-"): value for name, value in headers.items()})
        return True

    return fault


def another_range(handler: Any, file: Path, start: int, stop: int) -> bool:
    handler.send_range(file, start + 1, stop, file.stat().st_size)
    return True


def compressed(handler: Any, file: Path, start: int, stop: int) -> bool:
    handler.send_json({}, 200, {"Content-Encoding": "gzip"})
    return True


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (answers(403), "denied access"),
        (answers(401), "login"),
        (answers(416), "shorter"),
        (answers(503), "reported an error"),
        (answers(429, Retry_After="86400"), "86400 seconds"),
        (another_range, "wrong range"),
        (compressed, "compressed"),
    ],
)
def test_faults_of_a_server_are_typed_errors(hub: Hub, demo_path: Path, fault: Any, said: str) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    hub.fault = fault
    with pytest.raises(RemoteError, match=said) as caught:
        suspect.embedding()
    assert caught.value.file
    assert caught.value.advice
    hub.fault = None
    assert suspect.embedding().shape == (suspect.vocab_size, suspect.hidden_size)


def endless(handler: Any, file: Path, start: int, stop: int) -> bool:
    handler.redirect(302, handler.path, {})
    return True


def unusable(handler: Any, file: Path, start: int, stop: int) -> bool:
    handler.redirect(302, "http://[::1/weights?signature=quuxholm", {})
    return True


def slow(handler: Any, file: Path, start: int, stop: int) -> bool:
    handler.send_range(file, start, stop, file.stat().st_size, most=10)
    return True


def test_redirects_that_do_not_end_or_lead_nowhere_are_errors(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    for fault, said in ((endless, "too many times"), (unusable, "unusable address")):
        hub.fault = fault
        with pytest.raises(RemoteError, match=said) as caught:
            suspect.embedding()
        assert "quuxholm" not in str(caught.value), "a signature is a secret"
    # TLS servers are not available in tests, so the rule itself is tested.
    with pytest.raises(RemoteError, match="unencrypted"):
        web._redirected("https://host/a", "http://host/b", "b", 1)


def test_server_that_sends_too_slowly_is_unavailable(hub: Hub, demo_path: Path, monkeypatch) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    hub.fault = slow
    monkeypatch.setattr(web, "_WITHIN_SECONDS", -1)
    with pytest.raises(ServerUnavailableError, match="too slowly"):
        suspect.embedding()


def test_server_without_ranges_is_not_read_from_far_behind(hub: Hub, demo_path: Path, monkeypatch) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    hub.fault = no_ranges
    monkeypatch.setattr(web, "MOST_SKIPPED", 1000)
    with pytest.raises(RemoteError, match="cannot send parts"):
        suspect.embedding()


def test_server_without_ranges_is_read_from_its_beginning(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    hub.fault = no_ranges
    expected = irwm.open_checkpoint(demo_path).embedding([0, 4000])
    torch.testing.assert_close(irwm.open_checkpoint(ADDRESS).embedding([0, 4000]), expected, rtol=0, atol=0)


def test_broken_connections_are_resumed_where_they_broke(hub: Hub, demo_path: Path, monkeypatch) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    before = hub.bytes_sent

    def breaks(handler: Any, file: Path, start: int, stop: int) -> bool:
        handler.send_range(file, start, stop, file.stat().st_size, most=400_000)
        return True

    hub.fault = breaks
    expected = irwm.open_checkpoint(demo_path).embedding()
    torch.testing.assert_close(suspect.embedding(), expected, rtol=0, atol=0)
    assert hub.bytes_sent - before < 1.1 * expected.numel() * 2 + 2 * mirror.BLOCK


def test_rate_limits_are_waited_for(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    refused: list[int] = []

    def limited(handler: Any, file: Path, start: int, stop: int) -> bool:
        if len(refused) < 3:
            refused.append(start)
            return answers(429, Retry_After="0")(handler, file, start, stop)
        return False

    hub.fault = limited
    assert suspect.embedding([3]).shape == (1, suspect.hidden_size)
    assert len(refused) == 3


@pytest.mark.parametrize(
    "path", ["../../etc/cron.d/x", "/etc/passwd", "a//b", "a/../b", "a\\b", "C:x", "n\u202eame", ""]
)
def test_names_that_lead_out_of_the_folder_are_refused(hub: Hub, monkeypatch, path: str, cache: Path) -> None:
    entry = {"type": "file", "oid": "0" * 40, "size": 3, "path": path}
    monkeypatch.setattr(Hub, "tree", lambda self, folder: [entry])
    with pytest.raises(RemoteError, match="name"):
        irwm.open_checkpoint(ADDRESS)
    assert not cache.exists()


def test_missing_repository_and_empty_one(hub: Hub) -> None:
    with pytest.raises(RemoteError, match="no such file"):
        irwm.open_checkpoint("hf://acme/other")
    with pytest.raises(RemoteError, match="no such file or folder"):
        irwm.open_checkpoint(ADDRESS)
    (hub.folder / "README.md").write_text("nothing here")
    with pytest.raises(NotACheckpointError):
        irwm.open_checkpoint(ADDRESS)


def test_only_allowed_servers_are_asked(hub: Hub, demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(hub, demo_path)
    for allowed in ("", "example.com", "7.0.0.1"):
        monkeypatch.setenv("IRWM_SERVERS", allowed)
        for address in (ADDRESS, f"{hub.store}/signed/{REPOSITORY}/model.safetensors", "s3://bucket/demo"):
            with pytest.raises(RemoteError, match="not allowed"):
                irwm.open_suspect(address)
    assert hub.requests == []
    # The second server has the same name and another port; a redirect to another name is refused before it is asked.
    monkeypatch.setenv("IRWM_SERVERS", "example.com 127.0.0.1")
    hub.store = hub.store.replace("127.0.0.1", "localhost")
    with pytest.raises(RemoteError, match="localhost"):
        irwm.open_suspect(ADDRESS)
    assert not any(request.path.startswith("/signed/") for request in hub.requests)


def test_hosts_below_an_allowed_one_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "hf.co s3://models")
    for server in ("hf.co", "cas.xethub.HF.co", "s3://models"):
        require_allowed(server, "a file")
    for server in ("hf.co.example.com", "xhf.co", "s3://models2", "s3://evil.hf.co", ""):
        with pytest.raises(RemoteError):
            require_allowed(server, "a file")


def test_command_reads_an_address(hub: Hub, release_of: Callable[[str], Marked], tmp_path: Path, capsys) -> None:
    model, key, path = release_of("demo")
    put(hub, path)
    (tmp_path / "key").write_bytes(key.to_bytes())
    assert main(["detect", ADDRESS, "--original", str(model.path), "--key", str(tmp_path / "key")]) == 0
    assert ": found" in capsys.readouterr().out


def test_unreachable_server(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RemoteError, match="could not be reached"):
        irwm.open_checkpoint(ADDRESS)


def test_placeholder_is_never_read_as_weights(hub: Hub, demo_path: Path) -> None:
    """A program that knows nothing of mirrors finds zeros, and fails."""
    put(hub, demo_path)
    path = irwm.open_checkpoint(ADDRESS).path
    read = "import sys; from safetensors import safe_open; safe_open(sys.argv[1], 'np')"
    done = subprocess.run(
        [sys.executable, "-c", read, str(path / "model.safetensors")], capture_output=True, check=False
    )
    assert done.returncode != 0
    moved = shutil.copytree(path, hub.folder.parent / "copied")
    with pytest.raises(IrwmError):
        irwm.open_checkpoint(moved)


def test_another_process_uses_what_was_read(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    irwm.open_checkpoint(ADDRESS).embedding()
    before = len(hub.requests)
    code = "import irwm, sys; print(float(irwm.open_checkpoint(sys.argv[1]).embedding().sum()))"
    environment = os.environ | {"HF_ENDPOINT": hub.address}
    run = [sys.executable, "-c", code, ADDRESS]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) == float(irwm.open_checkpoint(demo_path).embedding().sum())
    assert {request.path.split("/")[1] for request in hub.requests[before:]} == {"api"}


def test_removed_mirror_is_made_again(hub: Hub, demo_path: Path, cache: Path) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    rows = suspect.embedding([7])
    shutil.rmtree(next(cache.iterdir()))
    with pytest.raises(IrwmError):
        suspect.embedding([8])
    again = irwm.open_checkpoint(ADDRESS)
    torch.testing.assert_close(again.embedding([7]), rows, rtol=0, atol=0)


def test_old_mirrors_make_room(hub: Hub, demo_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(hub, demo_path)
    first = irwm.open_checkpoint(ADDRESS)
    first.embedding()
    monkeypatch.setattr(mirror, "MOST_BYTES", 0)
    monkeypatch.setattr(mirror, "_KEPT_NS", 0)
    hub.commit = "e" * 40
    irwm.open_checkpoint(ADDRESS)
    assert not first.path.exists()


@pytest.mark.parametrize("count", [1, 2])
def test_weights_on_a_web_server(hub: Hub, demo_path: Path, count: int) -> None:
    put(hub, demo_path)
    name = "model.safetensors"
    if count > 1:
        name = split(hub.folder, count)
    suspect = irwm.open_checkpoint(f"{hub.store}/signed/{REPOSITORY}/{name}")
    torch.testing.assert_close(suspect.embedding(), irwm.open_checkpoint(demo_path).embedding(), rtol=0, atol=0)
    with pytest.raises(RemoteError, match="no such file"):
        irwm.open_checkpoint(f"{hub.store}/signed/{REPOSITORY}/other.safetensors")


def split(folder: Path, count: int) -> str:
    """Replaces the weights of a folder by several shards; returns the name of their index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {}
    for number in range(count):
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        part = {tensor: tensors[tensor] for tensor in sorted(tensors)[number::count]}
        save_file(part, folder / name, metadata={"format": "pt"})
        places |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return "model.safetensors.index.json"


@pytest.mark.parametrize("kind", ["gguf", "pytorch", "shards"])
def test_formats_that_another_process_parses(hub: Hub, demo_path: Path, kind: str, monkeypatch) -> None:
    put(hub, demo_path)
    monkeypatch.setattr(headers, "PREFIXES", (2048, 1 << 19, 1 << 27))
    monkeypatch.setattr(mirror, "GAP", 0)
    weights = hub.folder / "model.safetensors"
    if kind == "shards":
        split(hub.folder, 2)
    elif kind == "pytorch":
        torch.save(load_file(weights), hub.folder / "pytorch_model.bin")
        weights.unlink()
    else:
        shutil.copy(irwm.attacks.to_gguf(demo_path, hub.folder.parent / "gguf", "F16"), hub.folder)
        weights.unlink()
    suspect = irwm.open_checkpoint(ADDRESS)
    opened = hub.bytes_sent
    torch.testing.assert_close(suspect.embedding(), irwm.open_checkpoint(demo_path).embedding(), rtol=0, atol=1e-2)
    assert opened < sum(file.stat().st_size for file in hub.folder.iterdir()) / 2


def test_objects_in_a_store(cache: Path, demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    system.pipe({f"/bucket/demo/{file.name}": file.read_bytes() for file in demo_path.iterdir() if file.is_file()})
    monkeypatch.setattr(store, "file_system", lambda scheme: system)
    try:
        suspect = irwm.open_checkpoint("s3://bucket/demo")
        torch.testing.assert_close(suspect.embedding(), irwm.open_checkpoint(demo_path).embedding(), rtol=0, atol=0)
        with pytest.raises(RemoteError):
            irwm.open_checkpoint("s3://bucket/other")
    finally:
        system.rm("/bucket", recursive=True)


def test_listing_survives_its_file() -> None:
    files = (listing.RemoteFile("a", 1, "u", "e", "s"),)
    found = listing.Listing("hf://a/b", "hf", "host", "c" * 40, "b@cccc", "", files)
    assert listing.Listing.of_json(found.to_json()) == found
    assert json.loads(found.to_json())["commit"] == "c" * 40


def test_ranges_are_joined() -> None:
    assert mirror.joined([(5, 9), (0, 3), (3, 4), (20, 20)]) == [(0, 4), (5, 9)]
    assert mirror.joined([(5, 9), (0, 3)], gap=2) == [(0, 9)]


def test_a_failed_download_is_an_error_and_not_another_verdict(hub: Hub, release_of: Callable[[str], Marked]) -> None:
    """Without the tokenizer the rows would be paired by content, and the suspect would be read in another way."""
    model, key, path = release_of("demo")
    put(hub, path)
    suspect = irwm.open_checkpoint(ADDRESS)
    suspect.embedding()
    refuse = answers(403)

    def only_tokenizers(handler: Any, file: Path, start: int, stop: int) -> bool:
        return "tokenizer" in file.name and refuse(handler, file, start, stop)

    hub.fault = only_tokenizers
    with pytest.raises(RemoteError):
        irwm.detect(suspect, model, key)


def test_two_openers_of_one_address_get_one_mirror(hub: Hub, demo_path: Path, cache: Path) -> None:
    put(hub, demo_path)
    listed = listing.listing_of(parse(ADDRESS))
    with ThreadPoolExecutor(8) as pool:
        found = {made.folder for made in pool.map(lambda _: mirror.made(listed), range(8))}
    assert found == {next(cache.iterdir())}
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("left", ["without its listing", "with a lock only"])
def test_the_remains_of_a_removed_mirror_are_replaced(hub: Hub, demo_path: Path, cache: Path, left: str) -> None:
    put(hub, demo_path)
    irwm.open_checkpoint(ADDRESS)
    (folder,) = cache.iterdir()
    if left == "with a lock only":
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / mirror.LOCK).touch()
    else:
        (folder / mirror.LISTING).unlink()
    assert irwm.open_checkpoint(ADDRESS).embedding([1]).shape[0] == 1


def test_a_note_that_was_cut_short_costs_its_bytes_only(hub: Hub, demo_path: Path, cache: Path) -> None:
    put(hub, demo_path)
    irwm.open_checkpoint(ADDRESS)
    (folder,) = cache.iterdir()
    notes = (folder / mirror.READS).read_bytes()
    (folder / mirror.READS).write_bytes(notes[:-10])
    mirror._shared.cache_clear()
    expected = irwm.open_checkpoint(demo_path).embedding()
    torch.testing.assert_close(irwm.open_checkpoint(ADDRESS).embedding(), expected, rtol=0, atol=0)


def test_a_cache_that_is_a_link_is_followed(hub: Hub, demo_path: Path, cache: Path, tmp_path: Path) -> None:
    put(hub, demo_path)
    (tmp_path / "other disk").mkdir()
    cache.parent.mkdir(parents=True)
    cache.symlink_to(tmp_path / "other disk")
    mirror._real.cache_clear()
    expected = irwm.open_checkpoint(demo_path).embedding([5])
    torch.testing.assert_close(irwm.open_checkpoint(ADDRESS).embedding([5]), expected, rtol=0, atol=0)


def test_more_than_fits_is_refused_before_it_is_read(hub: Hub, demo_path: Path, monkeypatch) -> None:
    put(hub, demo_path)
    suspect = irwm.open_checkpoint(ADDRESS)
    before = hub.bytes_sent
    monkeypatch.setattr(mirror, "MOST_OF_ONE", 1_000_000)
    with pytest.raises(RemoteError, match="not enough space"):
        suspect.embedding()
    assert hub.bytes_sent == before


@pytest.mark.parametrize("status", [403, 401, 416])
def test_neighbours_that_a_server_refuses_are_absent(hub: Hub, demo_path: Path, status: int) -> None:
    """A signature holds for one file."""
    put(hub, demo_path)
    refuse = answers(status)
    hub.fault = lambda handler, file, start, stop: file.suffix == ".json" and refuse(handler, file, start, stop)
    suspect = irwm.open_checkpoint(f"{hub.store}/signed/{REPOSITORY}/model.safetensors?signature=abc")
    assert suspect.config == {}
    assert suspect.vocab_size == 4096


@pytest.mark.parametrize("status", [408, 425])
def test_neighbours_that_a_server_may_deliver_later_are_not_absent(hub: Hub, demo_path: Path, status: int) -> None:
    """Without the tokenizer a suspect would be read in another way."""
    put(hub, demo_path)
    refuse = answers(status)
    hub.fault = lambda handler, file, start, stop: file.suffix == ".json" and refuse(handler, file, start, stop)
    with pytest.raises(RemoteError):
        irwm.open_checkpoint(f"{hub.store}/signed/{REPOSITORY}/model.safetensors?signature=abc")


def test_list_of_files_that_does_not_end_is_refused(hub: Hub, demo_path: Path) -> None:
    put(hub, demo_path)
    hub.page = 0
    with pytest.raises(RemoteError, match="no end"):
        irwm.open_checkpoint(ADDRESS)


def test_folder_is_never_cut_short(hub: Hub, demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are left out may be weights."""
    put(hub, demo_path)
    shutil.copytree(demo_path, hub.folder / "sub")
    monkeypatch.setattr(listing, "MOST_FILES", sum(file.is_file() for file in demo_path.rglob("*")) + 1)
    with pytest.raises(RemoteError, match="too many files"):
        irwm.open_checkpoint(f"{ADDRESS}/sub")


def test_servers_without_versions_are_never_mixed(hub: Hub, demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(hub, demo_path)
    monkeypatch.setattr(web, "_etag", lambda answer: "")
    address = f"{hub.store}/signed/{REPOSITORY}/model.safetensors"
    suspect = irwm.open_checkpoint(address)
    assert any("no version information" in note for note in suspect.notes)
    monkeypatch.setattr(listing, "_PROCESS", "another process")
    assert irwm.open_checkpoint(address).path != suspect.path


def test_recorded_answers_at_an_address_are_refused(hub: Hub) -> None:
    np.savez(hub.folder / "answers.npz", a=np.zeros(3))
    with pytest.raises(IrwmError, match="cannot be read from a server"):
        irwm.open_suspect(f"{ADDRESS}/answers.npz")


def test_revisions_with_slashes() -> None:
    assert parse("hf://a/b@refs/pr/1/sub").revision == "refs/pr/1"
    assert parse("hf://a/b@refs/pr/1/sub").inside == "sub"
    assert parse("hf://a/b@feature%2Fx").revision == "feature/x"
    for text in ("https://[::1/x", "https://host:abc/x"):
        with pytest.raises(ParameterError):
            parse(text)


def test_archive_with_a_hostile_list_downloads_little(hub: Hub, demo_path: Path) -> None:
    """Sixty entries named data.pkl, each of which claims 100 kB."""
    put(hub, demo_path)
    (hub.folder / "model.safetensors").unlink()
    with zipfile.ZipFile(hub.folder / "pytorch_model.bin", "w") as archive:
        for number in range(60):
            archive.writestr(f"a{number}/data.pkl", b"x" * 3_000_000)
    before = hub.bytes_sent
    with pytest.raises(IrwmError):
        irwm.open_checkpoint(ADDRESS)
    assert hub.bytes_sent - before < 20_000_000
