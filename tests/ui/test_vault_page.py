"""Handlers of the page Vault for commitments, timestamps and the signing identity."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import sqlite3
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

import irwm
from irwm.errors import IrwmError
from irwm.ownership import Commitment
from irwm.ownership.timestamp import request
from irwm.report.numbers import WHY_CAPPED
from tests.jobs.recipients import put_in_vault
from tests.ownership.authority import Authority, make_authority
from tests.ui.handlers import PASSPHRASE, SESSION, Pages, told, value
from ui.components.uploads import browser_folder
from ui.services.stamps import MOST_BYTES, ManyStampFiles, commitments, own_request


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
    assert "Test Timestamps" in stamp.authority
    assert ("Trusted: verified up to a root" if with_root else "Not verified: no root certificate") in out["stamps"]
    assert "Timestamped at" in str(value(out["stamp-notice"]))


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
    assert "3 timestamps were filed" in said
    assert "2 of 5 files" in said
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


@dataclass(frozen=True)
class Dated:
    """Keys in the vault, by id, with the request to an authority about each and its response."""

    keys: dict[str, irwm.Key]
    asked: dict[str, bytes]
    answers: dict[str, bytes]


@pytest.fixture
def dated(pages: Pages, tiny_path: Path, authority: Authority) -> Dated:
    model = irwm.open_checkpoint(tiny_path)
    made = [irwm.generate_key(model, owner="Example Labs", recipient=name) for name in ("Ada", "Ben", "Cobalt")]
    keys = dict(zip(put_in_vault(pages.vault, made), made, strict=True))
    asked = {id: own_request(commitment.digest) for id, commitment in commitments(pages.vault, keys)}
    return Dated(keys, asked, {id: authority.answer(query) for id, query in asked.items()})


def from_folders(*files: tuple[str, bytes]) -> list[str]:
    """Files as Gradio passes them: each in its own folder, so several may have one name."""
    paths = []
    for name, content in files:
        path = browser_folder() / secrets.token_hex(8) / name
        path.parent.mkdir()
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def stamp_upload(pages: Pages, *files: tuple[str, bytes]) -> tuple[dict[str, Any], str]:
    """The values that the page returns for an upload of these files, and its message."""
    out = pages.call("stamp-response", "upload", from_folders(*files), None)
    return out, str(value(out["stamp-notice"]))


def test_responses_with_the_same_name_are_all_filed_and_their_keys_named(pages: Pages, dated: Dated) -> None:
    _, said = stamp_upload(pages, *(("response.tsr", answer) for answer in dated.answers.values()))
    assert {stamp.key_id: stamp.response for stamp in pages.vault.timestamps()} == dated.answers
    for key in dated.keys.values():
        assert f"→ {key.recipient} · {key.commitment[:12]}" in said


def test_refused_responses_with_the_same_name_are_all_listed(pages: Pages, dated: Dated, authority: Authority) -> None:
    foreign = authority.answer(own_request("ab" * 32))
    _, said = stamp_upload(pages, ("response.tsr", foreign), *((f"{n}.tsr", b"none") for n in range(7)))
    assert "8 of 8 files" in said
    assert all(f"{n}.tsr" in said for n in range(7))
    assert said.count("response.tsr") == 1


def test_message_names_the_key_or_the_refused_file_of_a_single_response(pages: Pages, dated: Dated) -> None:
    id, key = next(iter(dated.keys.items()))
    _, said = stamp_upload(pages, ("one.tsr", b"no response"))
    assert "one.tsr" in said
    _, said = stamp_upload(pages, ("one.tsr", dated.answers[id]))
    assert "one.tsr" in said
    assert key.commitment[:12] in said


def test_archive_of_requests_is_emptied_once_a_time_stamp_is_filed(pages: Pages, dated: Dated) -> None:
    assert pages.call("pack-requests", "click", "")["stamp-requests"].visible is True
    answer = next(iter(dated.answers.values()))
    for content, emptied in ((b"no response", False), (answer, True), (answer, False)):
        out, _ = stamp_upload(pages, ("one.tsr", content))
        for part in (out["stamp-requests"], out["stamp-requests-notice"]):
            assert (getattr(part, "visible", None) is False and not value(part)) is emptied


@pytest.mark.parametrize("name", ["root.pem", "root.crt"])
def test_certificate_that_cannot_be_used_is_named_and_nothing_is_filed(pages: Pages, dated: Dated, name: str) -> None:
    out, said = stamp_upload(
        pages, (name, b"no certificate"), *((f"{id}.tsr", answer) for id, answer in dated.answers.items())
    )
    assert told(out) == ["stamp-notice"]
    assert name in said
    assert "root certificate" in said.partition('class="advice"')[2]
    assert not pages.vault.timestamps(), "they would stay unchecked"


@pytest.mark.parametrize("name", ["root.pem", "root.crt", "ROOT.CER"])
@pytest.mark.parametrize("der", [False, True])
def test_certificates_of_any_usual_ending_and_form_are_read(
    pages: Pages, dated: Dated, authority: Authority, name: str, der: bool
) -> None:
    root = authority.root
    if der:
        root = x509.load_pem_x509_certificate(root).public_bytes(Encoding.DER)
    stamp_upload(pages, (name, root), *(("response.tsr", answer) for answer in dated.answers.values()))
    assert [stamp.trusted for stamp in pages.vault.timestamps()] == [True] * 3


def test_a_file_that_does_not_fit_stops_no_other(pages: Pages, dated: Dated) -> None:
    first, *others = dated.keys
    document = next(commitment for _, commitment in commitments(pages.vault, others))
    unusable = (("large.tsr", b"\0" * (MOST_BYTES + 1)), ("letter.txt", b"a letter"))
    waiting = (*((f"{id}.tsq", dated.asked[id]) for id in others), ("waiting.json", document.to_bytes()))
    _, said = stamp_upload(pages, *unusable, *waiting, ("first.tsr", dated.answers[first]))
    assert [stamp.key_id for stamp in pages.vault.timestamps()] == [first]
    assert "2 of 3 files" in said
    assert all(name in said for name, _ in unusable)
    assert "3 requests or commitments" in said
    _, said = stamp_upload(pages, *waiting)
    assert "notice-fault" in said, "there is no response at all"


def test_requests_go_with_the_responses_over_their_digest(
    pages: Pages, dated: Dated, tmp_path: Path, authority: Authority
) -> None:
    id, digest = next((id, commitment.digest) for id, commitment in commitments(pages.vault, dated.keys))
    asked = {name: request(digest) for name in ("a", "b")}
    foreign = request("ab" * 32)
    files = [(f"{name}.tsq", query) for name, query in asked.items()]
    files += [(f"{name}.tsr", authority.answer(query)) for name, query in asked.items()]
    files += [("c.tsr", dated.answers[list(dated.keys)[1]]), ("c.tsq", foreign)]
    given = ManyStampFiles.of(map(Path, from_folders(*files)))
    assert [files.request for _, files in given.stamps] == [*asked.values(), None]
    assert given.strays == 1
    stamp_upload(pages, *files)
    assert [stamp.request for stamp in pages.vault.timestamps(id)] == list(asked.values())


@pytest.mark.parametrize("column", ["body", "meta"])
def test_damaged_keys_are_counted_where_they_are_left_out(pages: Pages, dated: Dated, column: str) -> None:
    lost, *_ = dated.keys
    with contextlib.closing(sqlite3.connect(pages.vault.path)) as db, db:
        db.execute(f"UPDATE keys SET {column} = zeroblob(length({column})) WHERE id = ?", [lost])
    out = pages.call("pack-requests", "click", "")
    note = str(value(out["stamp-requests-notice"]))
    assert "2 requests" in note
    assert "1 key is damaged" in note
    assert "requests-2.zip" in str(value(out["stamp-requests"]))
    with zipfile.ZipFile(io.BytesIO(offered(out["stamp-requests"]))) as packed:
        assert len(packed.namelist()) == 4
    _, said = stamp_upload(pages, *(("response.tsr", answer) for answer in dated.answers.values()))
    assert {stamp.key_id for stamp in pages.vault.timestamps()} == set(dated.keys) - {lost}
    assert "1 damaged key" in said
    nothing = pages.call("pack-requests", "click", "")
    assert nothing["stamp-requests"].visible is False
    assert "1 key is damaged" in str(value(nothing["stamp-requests-notice"]))


def test_a_response_is_filed_once(pages: Pages, dated: Dated, authority: Authority) -> None:
    first, second, _ = dated.answers.values()
    _, said = stamp_upload(pages, ("one.tsr", first), ("copy.tsr", first))
    assert len(pages.vault.timestamps()) == 1
    assert "1 response was already filed" in said
    _, said = stamp_upload(pages, ("one.tsr", first), ("two.tsr", second))
    assert [stamp.response for stamp in pages.vault.timestamps()] == [first, second]
    assert "1 timestamp was filed. 1 response was already filed" in said
    for _ in range(2):
        stamp_upload(pages, ("one.tsr", first), ("root.pem", authority.root))
    assert [stamp.trusted for stamp in pages.vault.timestamps(next(iter(dated.keys)))] == [False, True], (
        "the root proves more than what was filed"
    )


def test_a_filed_response_to_another_request_is_known_without_that_request(
    pages: Pages, dated: Dated, authority: Authority
) -> None:
    digest = next(commitment.digest for _, commitment in commitments(pages.vault, dated.keys))
    query = request(digest)
    answer = authority.answer(query)
    stamp_upload(pages, ("one.tsr", answer), ("one.tsq", query))
    out, said = stamp_upload(pages, ("one.tsr", answer))
    assert not told(out)
    assert "1 response was already filed" in said
    assert len(pages.vault.timestamps()) == 1


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
    assert "less than 1 in 10<sup>30</sup> (log10 of the probability = \u221288.4123)" in about
    assert WHY_CAPPED not in about, "the table above says it"
    assert "&lt;7&gt;" in about
    assert "log10" not in pages.call("note-release", "change", small.id)["about-release"]
    assert WHY_CAPPED not in pages.call("vault-releases-search", "change", "8")["vault-releases"].value


NEW = "another four plain words"


def test_new_passphrase_reseals_all_locks_other_browsers_and_names_earlier_damage(pages: Pages, key) -> None:
    id, made = key
    pages.context.sessions.unlock("another browser", PASSPHRASE)
    out = pages.call("change-passphrase", "click", PASSPHRASE, NEW, NEW)
    assert "Earlier backups can still be opened with the old passphrase" in out["passphrase-changed"]
    assert "Records resealed: 1." in out["passphrase-changed"]
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
    assert "were already damaged: 1." in again["passphrase-changed"]


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
