"""Input from other parties: reports with pages and signatures, timestamps, backups, names, lists of recipients.

Their checks run in the fuzzer's own process, without the limits that a child process has in the app.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import shutil
import sqlite3
import zipfile
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import irwm
from irwm.checkpoint.recorded import RecordedAnswers, read_answers, read_header, write_answers
from irwm.ownership import Commitment
from irwm.ownership.timestamp import read_response, request
from irwm.release.manifest import verify_manifest
from irwm.report import ItemDescription, KeyInfo, dispute, finding_document, installed_versions, lab, to_json
from irwm.report.audit_log import check_log
from irwm.report.document import from_json, schema_of
from irwm.report.html import render_html
from irwm.report.signature_file import announced, read_signature, sign_report
from irwm.report.verify import verify_report
from irwm.report.verify_drawings import check_page
from storage import Cost, Vault
from storage.backup import inspect, restore
from storage.case_archive import export_case
from tests.checkpoint.test_recorded import answers as recorded_answers
from tests.fuzz.target import FOLDER, Target, written
from tests.ownership.authority import make_authority
from tests.report.signers import Signatory
from tools.small_models import write_llama
from ui.services.recipients import read_file, read_list

PASSPHRASE = "correct horse battery staple"
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)
NONCE = 7
# Cases of one vault before it is replaced: each export reads the whole log.
MOST_CASES = 50


@cache
def _document() -> dict[str, Any]:
    """A valid document, as small as possible."""
    model = irwm.open_checkpoint(write_llama(FOLDER / "examined"))
    params = irwm.Parameters(positions=3, constraints=2, required_positions=2, permutations=99)
    key = irwm.generate_key(model, params, secret=bytes(32), owner="us")
    item = ItemDescription.of(model)
    made = finding_document(
        irwm.detect(model, model, key),
        suspect=item,
        original=item,
        key_info=KeyInfo.of(key),
        case={},
        created_utc="2026-01-01T00:00:00Z",
        tool_versions=installed_versions(),
    )
    return announced(made, Signatory().signer())


def _signature() -> bytes:
    signatory = Signatory()
    signatory.rotate()
    files = {"r.json": to_json(_document())}
    return sign_report(files, signatory.signer())


def verifier(content: bytes) -> None:
    """A whole report of three parts, one after another: an edit of a valid document, the page, the signature."""
    edit, page, signature = (*content.split(b"\n--\n", 2), b"", b"")[:3]
    document = json.loads(to_json(_document()))
    with contextlib.suppress(ValueError, RecursionError, LookupError, TypeError):
        *steps, to = json.loads(edit)
        part = document
        for step in steps[:-1]:
            part = part[step]
        part[steps[-1]] = to
    try:
        data = to_json(document)
    except (ValueError, RecursionError):
        data = edit
    written("report/r.json", data)
    written("report/r.html", page)
    written("report/r.signature.json", signature)
    found = verify_report(FOLDER / "report" / "r.json", identity="ab" * 32)
    assert not found.established, "nobody signed this"


def report_json(content: bytes) -> None:
    for read in (from_json, dispute.from_json, lab.from_json):
        with contextlib.suppress(irwm.IrwmError):
            read(content)
    schema_of(content)


@cache
def _drawn() -> str:
    return render_html(_document(), "r.json")


def report_html(content: bytes) -> None:
    check = check_page(_document(), content, "r.json", lambda document, name: _drawn())
    assert not check.ok, "no page is as short as these inputs"


def signature(content: bytes) -> None:
    read_signature(content).holds()


@cache
def _asked() -> tuple[bytes, str, bytes, bytes]:
    """A request, its digest, the answer of an authority, and the authority's root."""
    authority = make_authority(FOLDER / "authority")
    digest = "ab" * 32
    query = request(digest, NONCE)
    return query, digest, authority.answer(query), authority.root


def timestamp(content: bytes) -> None:
    query, digest, _, root = _asked()
    read_response(query, content, digest, root)


def commitment(content: bytes) -> None:
    Commitment.from_bytes(content)


@cache
def _backup() -> bytes:
    """A vault with one case in it, as small as SQLite makes it."""
    home = FOLDER / "backed-up"
    vault = Vault.create(home, PASSPHRASE, CHEAP)
    vault.add_case("a case")
    vault.lock()
    with contextlib.closing(sqlite3.connect(vault.path)) as db:
        db.execute("PRAGMA journal_mode=DELETE").fetchall()
        db.execute("VACUUM")
    return Path(vault.path).read_bytes()


def backup(content: bytes) -> None:
    """Inspects a backup with its passphrase and restores it; the restored vault may or may not open."""
    file, home = written("backup.sqlite3", content), FOLDER / "restored"
    shutil.rmtree(home, ignore_errors=True)
    with contextlib.suppress(irwm.IrwmError):
        inspect(file, PASSPHRASE)
    restore(file, home)
    vault = Vault.open(home)
    vault.unlock(PASSPHRASE)
    vault.check()
    vault.cases()


_NUMBERS = itertools.count()


@lru_cache(maxsize=1)
def _vault(number: int) -> Vault:
    """A vault that is replaced before its log grows long."""
    shutil.rmtree(FOLDER / "cases", ignore_errors=True)
    return Vault.create(FOLDER / "cases", PASSPHRASE, CHEAP)


def case_archive(content: bytes) -> None:
    """Text from others goes into a case, one line each: title, note, an item and its file, a report's file.

    The archive holds its own list of digests, and unpacks only into its own folder.
    """
    title, note, item, file, report, *_ = (*content.decode("utf-8", "replace").split("\n"), "", "", "", "", "")
    vault, out = _vault(next(_NUMBERS) // MOST_CASES), FOLDER / "archive"
    shutil.rmtree(out, ignore_errors=True)
    case = vault.add_case(title, note)
    for add in (
        lambda: vault.add_item(case.id, item, {file: (7, "ab" * 32)}),
        lambda: vault.add_note(case.id, note, added_by=title),
        lambda: vault.add_run(case.id, {"verdict": note}, item, "found", files={report: content}),
    ):
        with contextlib.suppress(irwm.IrwmError):
            add()
    path = FOLDER / "case.zip"
    path.unlink(missing_ok=True)
    export_case(vault, case.id, path)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        archive.extractall(out)
    assert all(not name.startswith("/") and ".." not in name.split("/") and "\\" not in name for name in names), names
    check = verify_manifest(out)
    assert check.ok, check


def recipients(content: bytes) -> None:
    read_list(read_file(content, "list.csv")).require()


@cache
def _served() -> irwm.Checkpoint:
    return irwm.open_checkpoint(write_llama(FOLDER / "served"))


def answers(content: bytes) -> None:
    """Recorded answers, and the output head that follows from them."""
    file = written("answers.safetensors", content)
    read_header(file)
    found = read_answers(file, _served())
    irwm.suspect_from_answers(found.log_probabilities, _served(), found.token_ids)


def answers_archive(content: bytes) -> None:
    """The same as an archive of NumPy."""
    found = read_answers(written("answers.npz", content), _served())
    irwm.suspect_from_answers(found.log_probabilities, _served(), found.token_ids)


def report_archive(content: bytes) -> None:
    """A report and its files in one ZIP."""
    assert not verify_report(written("report.zip", content), identity="ab" * 32).established, "nobody signed this"


def audit_log(content: bytes) -> None:
    """The export of a log, searched for a report's head."""
    assert not check_log(written("log.jsonl", content), "ab" * 32, 1).ok, "no log has this head"


def _verifier_seeds() -> list[bytes]:
    files = [{"name": "<script>", "bytes": 1, "sha256": ""}]
    edits: list[list[Any]] = [["evaluation", "log10_p", -200.0], ["items", "suspect", "files", files]]
    return [b"\n--\n".join((json.dumps(edit).encode(), _drawn().encode()[:500], _signature())) for edit in edits]


def _json_seeds() -> list[bytes]:
    whole = {"schema": {"name": "irwm-finding", "version": 1}, "verdict": {"word": "found"}, "items": {}, "key": {}}
    return [json.dumps(whole).encode(), to_json(_document())]


def _html_seeds() -> list[bytes]:
    page = _drawn()
    figures = page.find('id="figure-data"')
    return [page.encode()[:8000], page[max(0, figures - 200) : figures + 7000].encode(), b"<script" * 1000]


def _case_seeds() -> list[bytes]:
    return ["Leak of Jänner\nseen on a forum\nthe forum's file\n../süß.gguf\nreport.html".encode(), b"a\nb\nc\nd\n../e"]


def _recipient_seeds() -> list[bytes]:
    lists = ["Example, Inc.\nBolt Ltd\n", 'recipient,note\n"Bolt, Ltd",early\n', 'sep=;\nname;note\n";=1";x\n']
    return [each.encode() for each in (*lists, "name\tnote\na\tb\n")]


def _commitment_seeds() -> list[bytes]:
    model = irwm.open_checkpoint(write_llama(FOLDER / "committed"))
    return [Commitment.of(irwm.generate_key(model, secret=bytes(32), owner="us")).to_bytes()]


def _enough() -> RecordedAnswers:
    """The fewest answers and tokens that determine a head of 64 entries."""
    few = recorded_answers()
    rng = np.random.default_rng(0)
    table = -rng.random((66, 130), dtype=np.float32)
    return replace(few, log_probabilities=table, token_ids=rng.permutation(600)[:130], prompt_of=np.zeros(66, np.int64))


def _answers_seeds() -> list[bytes]:
    path = FOLDER / "seed.safetensors"
    path.unlink(missing_ok=True)
    write_answers(path, _enough())
    return [path.read_bytes()]


def _answers_archive_seeds() -> list[bytes]:
    stream, enough = io.BytesIO(), _enough()
    assert enough.token_ids is not None
    np.savez(stream, log_probabilities=enough.log_probabilities, token_ids=enough.token_ids)
    return [stream.getvalue()]


def _report_archive_seeds() -> list[bytes]:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("r.json", to_json(_document()))
        archive.writestr("r.signature.json", _signature())
    return [stream.getvalue()]


def _log_seeds() -> list[bytes]:
    home = FOLDER / "logged"
    shutil.rmtree(home, ignore_errors=True)
    return [Vault.create(home, PASSPHRASE, CHEAP).exported_log()]


RECEIVED = {
    # The page is drawn for each input, which takes a tenth of a second or more.
    "verifier": Target(verifier, _verifier_seeds, changed=1),
    "report_json": Target(report_json, _json_seeds, largest=1 << 16, changed=20),
    "report_html": Target(report_html, _html_seeds, changed=5),
    "signature": Target(signature, lambda: [_signature()], changed=50),
    "timestamp": Target(timestamp, lambda: [_asked()[2]]),
    "commitment": Target(commitment, _commitment_seeds),
    "backup": Target(backup, lambda: [_backup()], largest=1 << 18, changed=10),
    "case_archive": Target(case_archive, _case_seeds, changed=5),
    "recipients": Target(recipients, _recipient_seeds),
    "answers": Target(answers, _answers_seeds, largest=1 << 16),
    "answers_archive": Target(answers_archive, _answers_archive_seeds, largest=1 << 16),
    "report_archive": Target(report_archive, _report_archive_seeds, largest=1 << 16, changed=20),
    "audit_log": Target(audit_log, _log_seeds),
}
