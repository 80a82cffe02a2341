"""Handlers of the page Vault for commitments, time-stamps and the signing identity."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.errors import IrwmError
from irwm.ownership import Commitment
from irwm.report.numbers import WHY_CAPPED
from tests.jobs.recipients import put_in_vault
from tests.ownership.authority import Authority, make_authority
from tests.ui.handlers import PASSPHRASE, SESSION, Pages, told, value
from ui.components.uploads import browser_folder
from ui.services.stamps import StampFiles, StampFilesError, own_request


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority") / "here")


@pytest.fixture
def key(pages: Pages, tiny_path: Path) -> tuple[str, irwm.Key]:
    """A key in the vault: its id, and the key."""
    made = irwm.generate_key(irwm.open_checkpoint(tiny_path), owner="Example Labs", recipient="Early access 7")
    (id,) = put_in_vault(pages.vault, [made])
    return id, made


def offered(part: Any) -> bytes:
    found = value(part)
    return Path(found["path"] if isinstance(found, dict) else found).read_bytes()


def upload(**files: bytes) -> list[str]:
    """Files as Gradio passes them: in the browser's folder."""
    folder = browser_folder() / "posted"
    folder.mkdir(exist_ok=True)
    paths = [folder / name.replace("_", ".") for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_bytes(content)
    return [str(path) for path in paths]


def test_commitment_is_exported_with_its_time_stamp_request(pages: Pages, key) -> None:
    id, made = key
    out = pages.call("commit-key", "change", id)
    document = Commitment.from_bytes(offered(out["commitment"]))
    assert document.opens(made)
    assert json.loads(offered(out["commitment"]))["version"] == 2
    assert made.secret.hex().encode() not in offered(out["commitment"])
    assert b"Early access 7" not in offered(out["commitment"])
    assert offered(out["stamp-request"]) == own_request(document.digest)
    again = pages.call("commit-key", "change", id)
    assert offered(again["commitment"]) == offered(out["commitment"]), "a later export must equal the dated one"
    assert "commitment exported" in [entry.event for entry in pages.vault.audit_log()]


@pytest.mark.parametrize("with_root", [True, False])
def test_a_response_is_checked_offline_and_kept(pages: Pages, key, authority: Authority, with_root: bool) -> None:
    id, _ = key
    query = offered(pages.call("commit-key", "change", id)["stamp-request"])
    files = {"response_tsr": authority.answer(query)} | ({"root_pem": authority.root} if with_root else {})
    out = pages.call("stamp-response", "upload", upload(**files), id)
    (stamp,) = pages.vault.timestamps(id)
    assert stamp.trusted is with_root
    assert "Test Time-stamps" in stamp.authority
    assert ("Trusted: checked to a root" if with_root else "Not checked: no root was given") in out["stamps"]
    assert "existed at" in str(value(out["stamp-notice"]))


def test_what_is_no_time_stamp_of_this_commitment_is_refused(pages: Pages, key, authority: Authority) -> None:
    another = upload(response_tsr=authority.answer(own_request("ab" * 32)))
    for files in (another, upload(letter_txt=b"Dear Sirs"), ["/etc/passwd"]):
        out = pages.call("stamp-response", "upload", files, key[0])
        assert told(out) == ["stamp-notice"]
    assert not pages.vault.timestamps(key[0])


def test_time_stamps_of_many_keys_are_requested_and_filed_together(
    pages: Pages, key, tiny_path: Path, authority: Authority
) -> None:
    model, vault = irwm.open_checkpoint(tiny_path), pages.vault
    more = [irwm.generate_key(model, owner="Example Labs", recipient=name) for name in ("Ada", "Ben", "Cobalt")]
    ids = [key[0], *put_in_vault(vault, more)]
    out = pages.call("pack-requests", "click", "")
    with zipfile.ZipFile(io.BytesIO(offered(out["stamp-requests"]))) as packed:
        given = {name: packed.read(name) for name in packed.namelist()}
    stems = {Path(name).stem for name in given}
    assert set(given) == {stem + ending for stem in stems for ending in (".json", ".tsq")}
    assert len(stems) == 4
    answers = {stem: authority.answer(given[f"{stem}.tsq"]) for stem in sorted(stems)}
    *most, last = answers
    foreign = authority.answer(own_request("ab" * 32))
    files = {f"{stem}_tsr": answers[stem] for stem in most}
    posted = upload(**files, another_tsr=foreign, letter_tsr=b"no response", root_pem=authority.root)
    out = pages.call("stamp-response", "upload", posted, None)
    said = str(value(out["stamp-notice"]))
    assert "3 time-stamps were filed" in said
    assert "2 of 5 responses" in said
    assert all(name in said for name in ("another.tsr", "letter.tsr"))
    for stamp in vault.timestamps():
        document = Commitment.from_bytes(stamp.commitment_document)
        assert document.opens(irwm.Key.from_bytes(vault.key_bytes(stamp.key_id)))
        assert stamp.trusted
    dated = {stamp.key_id for stamp in vault.timestamps()}
    assert len(dated) == 3
    (left,) = set(ids) - dated
    again = pages.call("pack-requests", "click", "")
    with zipfile.ZipFile(io.BytesIO(offered(again["stamp-requests"]))) as packed:
        assert sorted(packed.namelist()) == [f"{last}.json", f"{last}.tsq"], "a dated key needs no other date"
    assert "notice-fault" not in str(value(again["stamp-requests-notice"]))
    pages.call("stamp-response", "upload", upload(**{f"{last}_tsr": answers[last]}), ids[0])
    assert vault.timestamps(left), "a response is filed with its own key, not with the one on the page"
    assert pages.call("pack-requests", "click", "")["stamp-requests"].visible is False
    assert pages.call("pack-requests", "click", "no such key")["stamp-requests"].visible is False


def test_requests_go_with_the_responses_of_their_name(tmp_path: Path) -> None:
    for name in ("a.tsr", "a.tsq", "b.tsr", "root.pem"):
        (tmp_path / name).write_bytes(name.encode())
    given = StampFiles.of_each(sorted(tmp_path.iterdir()))
    assert (given["a.tsr"].request, given["b.tsr"].request) == (b"a.tsq", None)
    assert {files.roots for files in given.values()} == {b"root.pem\n"}
    alone = StampFiles.of_each([tmp_path / "b.tsr", tmp_path / "a.tsq"])
    assert alone["b.tsr"].request == b"a.tsq", "of one response the names do not matter"
    (tmp_path / "c.tsq").write_bytes(b"c")
    with pytest.raises(StampFilesError):
        StampFiles.of_each(sorted(tmp_path.iterdir()))


def test_identity_is_created_by_the_button_and_replaced_only_after_a_second_one(pages: Pages) -> None:
    assert "No identity yet" in pages.call("keep-identity", "click")["identity"]
    assert not pages.vault.identities()
    made = pages.call("make-identity", "click")
    before = pages.vault.identity()
    assert before.public_key in made["identity"]
    pages.call("rotate-identity", "click")
    assert pages.vault.identity() == before
    out = pages.call("confirm-rotate", "click")
    after = pages.vault.identity()
    assert after.number == before.number + 1
    for known in (before, after):
        assert known.public_key in out["identity"], "others know the first public key"


def test_a_key_is_opened_to_a_folder_only_with_the_passphrase(pages: Pages, key) -> None:
    id, made = key
    folder = pages.root / "for the expert"
    folder.mkdir()
    refused = pages.call("open-key", "click", id, str(folder), "another passphrase")
    assert told(refused) == ["open-key-passphrase-notice"]
    for wrong, where in (((None, str(folder)), "open-key-notice"), ((id, "/etc"), "path-open-key-note")):
        assert told(pages.call("open-key", "click", *wrong, PASSPHRASE)) == [where]
    assert not list(folder.iterdir())
    out = pages.call("open-key", "click", id, str(folder), PASSPHRASE)
    (file,) = folder.iterdir()
    assert irwm.Key.from_bytes(file.read_bytes()) == made
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.secret.hex() not in str(out)
    assert "key opened" in [entry.event for entry in pages.vault.audit_log()]
    again = pages.call("open-key", "click", id, str(folder), PASSPHRASE)
    assert "not overwritten" in str(value(again["open-key-notice"]))


def test_a_note_on_a_key_or_a_release_is_changed_shown_and_found(pages: Pages, key) -> None:
    id, _ = key
    assert value(pages.call("note-key", "change", id)["note-key-text"]) == ""
    out = pages.call("note-key-save", "click", id, "  left the company in March ", 0)
    assert "saved" in out["note-key-said"]
    assert value(pages.call("note-key", "change", id)["note-key-text"]) == "left the company in March"
    table = pages.call("vault-keys-search", "change", "march")["vault-keys"]
    assert "left the company in March" in str(table.value)
    again = pages.call("note-key-save", "click", id, "left the company in March", 1)
    assert "note is unchanged" in again["note-key-said"]
    assert len(pages.vault.labels("keys", id)) == 1
    pages.call("note-key-save", "click", id, "", 1)
    assert pages.vault.find_keys().records[0].label == ""
    release = pages.vault.add_release(id, "/releases/copy-7", {"model.safetensors": "ab" * 32}, {})
    pages.call("note-release-save", "click", release.id, "<b>shipped</b> on a disk", 0)
    found = pages.call("vault-releases-search", "change", "shipped disk")
    assert "shipped" in str(found["vault-releases"].value)
    assert [choice[1] for choice in found["note-release"].choices] == [release.id]


def test_note_needs_a_record_and_a_valid_length(pages: Pages, key) -> None:
    id, _ = key
    for wrong in ((None, "x"), ("0" * 16, "x"), (id, "x" * 501)):
        assert "notice-fault" in pages.call("note-key-save", "click", *wrong, 0)["note-key-said"]
    assert not pages.vault.labels("keys", id)


def test_capped_odds_are_explained_and_exact_in_the_row_and_in_full_view(pages: Pages, key) -> None:
    read_back = {"count": 50, "present": 50, "log10_p": -91.5, "log10_risk": -88.4123}
    release = pages.vault.add_release(key[0], "/releases/<7>", {"model.safetensors": "ab" * 32}, read_back)
    small = pages.vault.add_release(key[0], "/releases/8", {}, read_back | {"log10_risk": -4.0})
    table = pages.call("vault-releases-search", "change", "")["vault-releases"].value
    assert 'title="log10 = \u221288.4123"' in table
    assert "/releases/&lt;7&gt;" in table
    assert table.count(WHY_CAPPED) == 1
    about = pages.call("note-release", "change", release.id)["about-release"]
    assert "less than 1 in 10<sup>30</sup> (log10 = \u221288.4123)" in about
    assert WHY_CAPPED not in about, "the table above says it"
    assert "&lt;7&gt;" in about
    assert "log10" not in pages.call("note-release", "change", small.id)["about-release"]
    assert WHY_CAPPED not in pages.call("vault-releases-search", "change", "8")["vault-releases"].value


NEW = "another four plain words"


def test_new_passphrase_reseals_all_locks_other_browsers_and_names_earlier_damage(pages: Pages, key) -> None:
    id, made = key
    pages.context.sessions.unlock("another browser", PASSPHRASE)
    out = pages.call("change-passphrase", "click", PASSPHRASE, NEW, NEW)
    assert "Earlier backups still open with the old passphrase" in out["passphrase-changed"]
    assert "Records sealed again: 1." in out["passphrase-changed"]
    assert [out[field] for field in ("present-passphrase", "new-passphrase", "new-passphrase-again")] == ["", "", ""]
    assert pages.vault.key_bytes(id) == made.to_bytes(), "this browser stays unlocked"
    with pytest.raises(IrwmError):
        pages.context.sessions.vault("another browser").keys()
    assert not pages.context.sessions.is_open("another browser")
    pages.lock()
    pages.context.sessions.unlock(SESSION, NEW)
    assert pages.vault.check().ok
    with contextlib.closing(sqlite3.connect(pages.vault.path)) as db, db:
        db.execute("UPDATE keys SET body = x'00'")
    again = pages.call("change-passphrase", "click", NEW, PASSPHRASE, PASSPHRASE)
    assert "Already damaged before: 1." in again["passphrase-changed"]


def test_a_refused_passphrase_is_an_error_at_its_field(pages: Pages) -> None:
    for old, new, again, where in (
        ("another passphrase", NEW, NEW, "present-passphrase-notice"),
        (PASSPHRASE, "password1234", "password1234", "new-passphrase-notice"),
        (PASSPHRASE, "aaaaaaaaaaaa", "aaaaaaaaaaaa", "new-passphrase-notice"),
        (PASSPHRASE, NEW, "something else", "new-passphrase-notice"),
    ):
        assert told(pages.call("change-passphrase", "click", old, new, again)) == [where]
    assert "passphrase changed" not in [entry.event for entry in pages.vault.audit_log()]


def test_passphrase_change_is_refused_while_a_task_writes(pages: Pages, key) -> None:
    jobs = pages.context.jobs.opened(pages.vault.jobs_keys_to_seal())
    task = jobs.create("protect", "Protect for 400 recipients", {})
    jobs.start(task.id, os.getpid())
    out = pages.call("change-passphrase", "click", PASSPHRASE, NEW, NEW)
    assert told(out) == ["passphrase-notice"]
    assert "Protect for 400 recipients" in str(value(out["passphrase-notice"]))
    assert "passphrase changed" not in [entry.event for entry in pages.vault.audit_log()]
    jobs.finish(task.id, "done")
    verify = jobs.create("verify", "Verify a report", {})
    jobs.start(verify.id, os.getpid())
    assert "were changed" in pages.call("change-passphrase", "click", PASSPHRASE, NEW, NEW)["passphrase-changed"]
