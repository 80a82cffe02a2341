"""Faults with reports (FAULTS 57 to 59, 66, 67, 76): logs, clocks, garbage, signers; `report/test_verify.py` has 56."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import irwm
from irwm.errors import SignatureError
from irwm.report.signature_file import Signer
from irwm.report.verify import Verification, verify_report
from irwm.report.write import write_document
from irwm.signing import Signature, verify
from storage import Cost, Vault
from tests.report.conftest import complete
from tools.small_models import write_llama
from tools.waiting import PATIENCE

PASSPHRASE = "correct horse battery staple"
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)
# The clock was wrong when the report was signed (59): a report holds with any date.
LATE = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """A release, examined, and its report signed by a real vault whose clock says 2099."""
    root = tmp_path_factory.mktemp("case")
    model = irwm.open_checkpoint(write_llama(root / "original"))
    key = irwm.generate_key(model, secret=b"\x01" * 32, owner="Acme Labs", recipient="Northwind")
    release = irwm.insert(model, key, root / "release")
    suspect = irwm.open_checkpoint(release.path)
    world = {"copy": suspect, "model": model, "key": key}
    document = complete(world, case={"Case": "56 to 59"}, created_utc="2099-01-01T00:00:00Z").document
    vault = Vault.create(root / "home", PASSPHRASE, cost=CHEAP, now=lambda: LATE)
    vault.identity()
    vault.rotate_identity()
    vault.rotate_identity()
    identity = vault.identity()
    signer = Signer(vault.sign, identity.first_public_key, "2099-01-01T00:00:00Z", vault.audit_head, vault.audit_count)
    write_document(root / "report", document, signer=signer)
    (root / "audit-log.jsonl").write_bytes(vault.exported_log())
    return {
        "log": root / "audit-log.jsonl",
        "vault": vault,
        "signer": signer,
        "model": model,
        "key": key,
        "suspect": suspect,
        "document": document,
        "report": root / "report",
    }


@pytest.fixture
def report(case: dict, tmp_path: Path) -> Path:
    return shutil.copytree(case["report"], tmp_path / "report")


def failed(outcome: Verification) -> dict[str, str]:
    return {check.name: check.said for check in outcome.checks if check.ok is False}


def test_fault_57_a_log_whose_tail_was_cut_does_not_hold_the_head_that_the_report_prints(report, case):
    status = json.loads((report / "report.json").read_bytes())["status"]["custody"]
    check = case["vault"].verify_audit(status["audit_head"])
    assert check.ok
    assert check.entries > status["audit_entries"]  # the signature itself is logged after the head that it names
    assert not case["vault"].verify_audit("0" * 63 + "1").ok


@pytest.mark.parametrize(
    ("statements", "broken"),
    [
        (("DELETE FROM audit WHERE seq > 3",), 4),
        (("DELETE FROM audit WHERE seq > 3", "UPDATE audit_state SET count = 3"), None),
        (
            (
                "UPDATE audit SET seq = -1 WHERE seq = 2",
                "UPDATE audit SET seq = 2 WHERE seq = 3",
                "UPDATE audit SET seq = 3 WHERE seq = -1",
            ),
            2,
        ),
        (("UPDATE audit SET event = 'nothing' WHERE seq = 2",), 2),
    ],
    ids=["cut", "cut with its count", "reordered", "changed"],
)
def test_fault_57_a_log_cut_reordered_or_changed_after_the_report_is_detected(case, tmp_path, statements, broken):
    head = json.loads((case["report"] / "report.json").read_bytes())["status"]["custody"]["audit_head"]
    home = shutil.copytree(case["vault"].home, tmp_path / "home")
    with contextlib.closing(sqlite3.connect(home / "vault.sqlite3")) as conn, conn:
        for statement in statements:
            conn.execute(statement)
    locked = Vault.open(home)
    checks = [locked.verify_audit(head)]
    locked.unlock(PASSPHRASE)
    checks.append(locked.verify_audit(head))
    for check in checks:
        assert not check.ok
        assert broken in (None, check.broken)


def test_fault_57_report_reveals_an_older_vault_with_its_witness(case, tmp_path):
    vault = Vault.create(tmp_path / "home", PASSPHRASE, cost=CHEAP)
    vault.add_case("before")
    shutil.copytree(vault.home, tmp_path / "older")
    vault.identity()
    signer = Signer(vault.sign, vault.identity().first_public_key, "2026-03-01", vault.audit_head, vault.audit_count)
    write_document(tmp_path / "report", case["document"], signer=signer)
    head = json.loads((tmp_path / "report" / "report.json").read_bytes())["status"]["custody"]["audit_head"]
    assert vault.verify_audit(head).ok
    shutil.rmtree(vault.home)
    (tmp_path / "older").rename(vault.home)
    older = Vault.open(vault.home)
    assert older.verify_audit().ok, "alone it is valid, and so is its witness"
    assert "earlier report" in older.verify_audit(head).reason


def test_fault_59_times_of_the_far_future_are_kept_as_they_are(report):
    pdf = (report / "report.pdf").read_bytes()
    assert b"2099-01-01T00:00:00" in pdf


@pytest.mark.slow
def test_fault_59_reports_signed_by_a_clock_that_jumps_are_ordered_by_the_log(case, tmp_path):
    clock = [datetime(2026, 3, 1, tzinfo=UTC)]
    vault = Vault.create(tmp_path / "home", PASSPHRASE, cost=CHEAP, now=lambda: clock[0])
    first, custody = vault.identity().first_public_key, []
    for year in (2099, 1971, 2026):
        # With the clock in another time zone, the same moment is written.
        clock[0] = datetime(year, 1, 1, 1, tzinfo=timezone(timedelta(hours=13)))
        time = clock[0].astimezone(UTC).isoformat().replace("+00:00", "Z")
        signer = Signer(vault.sign, first, time, vault.audit_head, vault.audit_count)
        write_document(tmp_path / str(year), case["document"], signer=signer)
        outcome = verify_report(tmp_path / str(year), identity=first)
        assert failed(outcome) == {}
        assert f"{year - 1}-12-31T12:00:00" in {check.name: check.said for check in outcome.checks}["signature"]
        custody.append(json.loads((tmp_path / str(year) / "report.json").read_bytes())["status"]["custody"])
    counts = [status["audit_entries"] for status in custody]
    assert counts == sorted(set(counts))
    assert all(vault.verify_audit(status["audit_head"]).ok for status in custody)
    entries = vault.audit_log()
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.time[:4] for entry in entries[-3:]] == ["2098", "1970", "2025"]
    assert all(entry.time.endswith("Z") for entry in entries)


MIB = 1 << 20
# Bytes of memory that garbage may take, mostly for the libraries. `benchmarks.garbage` measures the time.
MOST_MEMORY = 400 * MIB
COMMAND = """
import resource, subprocess, sys
ended = subprocess.run([sys.executable, "-m", "irwm", "verify", *sys.argv[1:]], capture_output=True, text=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, ended.returncode)
print(ended.stdout)
"""


def measured(path: Path) -> tuple[int, int, str]:
    """The most bytes of any of its processes, exit code and output of the command on a file."""
    command = [sys.executable, "-c", COMMAND, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    first, _, rest = said.partition("\n")
    memory, code = first.split()
    return int(memory), int(code), rest


@pytest.mark.fault(67)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.json", lambda: b"[" + b"[]," * (21 * MIB) + b"[]]"),
        ("r.json", lambda: b"[" + b"[]," * (10 * MIB) + b"[]]"),
        ("r.json", lambda: b"[" * (31 * MIB)),
        ("r.json", lambda: b'"' + b"a" * (31 * MIB) + b'"'),
        ("r.json", lambda: b"9" * (31 * MIB)),
        ("r.signature.json", lambda: b'{"a":' * (12 * MIB)),
        ("r.html", lambda: b"<script" * (9 * MIB)),
        ("r.pdf", lambda: b"%PDF-1.7 " * (7 * MIB)),
    ],
)
def test_garbage_files_take_little_memory(tmp_path: Path, name: str, content) -> None:
    (tmp_path / name).write_bytes(content())
    memory, code, said = measured(tmp_path / name)
    assert code in (1, 2), said
    assert memory < MOST_MEMORY


PAGE_BYTES = 8 * MIB


@pytest.mark.fault(66)
@pytest.mark.parametrize(
    "opened", ["<script", "<script>", '<script type="application/json" id="figure-data">', "<", "</"]
)
def test_a_page_of_opened_tags_is_compared_in_one_pass(report: Path, opened: str) -> None:
    """A search that goes back over the page for each tag hangs here: its steps grow with the square of the size."""
    (report / "report.html").write_text(opened * (PAGE_BYTES // len(opened)), encoding="utf-8")
    assert "page" in failed(verify_report(report))


@pytest.mark.fault(58)
@pytest.mark.fault(76)
def test_only_a_report_signed_by_the_expected_identity_passes(case: dict, report: Path) -> None:
    first = case["signer"].identity
    brought = {"suspect": case["suspect"], "original": case["model"], "key": case["key"], "audit_log": case["log"]}
    honest = verify_report(report, identity=first, **brought)
    assert honest.exit_code == 0, "the clock was wrong when it was signed"
    assert [check.name for check in honest.checks if not check.ok] == []
    nobody_said = verify_report(report, **brought)
    assert (nobody_said.ok, nobody_said.exit_code) == (True, 2)
    assert nobody_said.open == ("the expected signer was not given",)
    assert verify_report(report, identity="ab" * 32).exit_code == 1
    write_document(report.parent / "plain", case["document"])
    unsigned = verify_report(report.parent / "plain", **brought)
    assert (unsigned.ok, unsigned.exit_code) == (True, 2)
    assert unsigned.open == ("it is not signed",)


@pytest.mark.fault(76)
@pytest.mark.parametrize("key", [
    "01" + "00" * 31,
    "00" * 32,
    "ec" + "ff" * 30 + "7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
    "01" + "00" * 30 + "80",
])  # fmt: skip
def test_signature_key_of_small_order_is_refused(key: str) -> None:
    """Under the neutral point, and the others of order 8 at most, a signature of zeros fits one message in eight."""
    for signature in ("01" + "00" * 63, "00" * 64, key + "00" * 32):
        for message in range(16):
            with pytest.raises(SignatureError):
                verify(bytes([message]), Signature(key, signature))
