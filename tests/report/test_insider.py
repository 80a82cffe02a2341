"""A person with the signing identity cannot alter a report unnoticed: the change is found, or listed as stated."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.checkpoint.files import listed
from irwm.evidence.detection import judge_opened
from irwm.report.audit_log import check_log
from irwm.report.checks import KEY, LOG, ORIGINAL, SUSPECT, Verification
from irwm.report.verify import verify_report
from tests.report.conftest import Examined, complete, failed
from tests.report.insiders import BENDS, World, rebuilt
from tests.report.signers import ENTRIES, HEAD, Signatory, log_of, sign_alone


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "audit-log.jsonl"
    path.write_bytes(log_of())
    return path


def everything(of: Examined, log: Path) -> dict[str, Any]:
    """All inputs that a reader can bring."""
    return {"suspect": of.suspect, "original": of.model, "key": of.key, "audit_log": log}


def checked(folder: Path, brought: Mapping[str, Any]) -> Verification:
    return verify_report(folder, identity=Signatory().first, **brought)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "needs"), [("suspect", SUSPECT), ("original", ORIGINAL), ("key", KEY), ("audit_log", LOG)]
)
def test_without_one_of_them_it_is_not_established(
    whole: Examined, log: Path, tmp_path: Path, name: str, needs: str
) -> None:
    brought = {key: value for key, value in everything(whole, log).items() if key != name}
    without = checked(sign_alone(tmp_path / "r", whole.document), brought)
    assert without.exit_code == 2
    assert needs in without.needed


@pytest.mark.fault(89)
@pytest.mark.sweep
@pytest.mark.parametrize("bend", BENDS)
def test_an_insiders_alteration_never_passes(
    whole: Examined, world: World, log: Path, tmp_path: Path, bend: str
) -> None:
    make, code = BENDS[bend]
    folder, brought = sign_alone(tmp_path / "r", make(whole, world)), everything(whole, log)
    alone = checked(folder, {})
    assert alone.ok, "the document must be consistent, or this test shows nothing"
    assert alone.exit_code == 2
    outcome = checked(folder, brought)
    assert outcome.exit_code == code, outcome.result


@pytest.mark.fault(89)
def test_invented_audit_log_head_does_not_pass(whole: Examined, log: Path, tmp_path: Path) -> None:
    folder, brought = (
        sign_alone(tmp_path / "r", whole.document, replace(Signatory().signer(), audit_head="ab" * 32)),
        everything(whole, log),
    )
    outcome = checked(folder, brought)
    assert set(failed(outcome)) == {"log"}


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:9],
        lambda lines: [*lines[:5], *lines[6:]],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: [*lines[:5], lines[5].replace(b"unlocked", b"copied"), *lines[6:]],
        lambda lines: [*lines[:5], b"{}\n", *lines[6:]],
        lambda lines: lines[1:],
        lambda lines: [],
    ],
    ids=["cut", "gap", "order", "edited", "no entry", "no header", "empty"],
)
def test_an_audit_log_that_was_changed_is_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(log_of())
    assert check_log(path, HEAD, ENTRIES).ok
    path.write_bytes(b"".join(change(log_of().splitlines(keepends=True))))
    assert check_log(path, HEAD, ENTRIES).ok is False


def test_a_key_that_was_tried_but_not_mentioned_is_detected(
    whole: Examined, world: World, log: Path, tmp_path: Path
) -> None:
    folder = sign_alone(tmp_path / "r", whole.document)
    outcome = checked(folder, everything(whole, log) | {"keys": [world["other"]]})
    assert outcome.exit_code == 2
    assert {check.name for check in outcome.checks if check.ok is None} == {"page", "pdf", "choices"}


@pytest.mark.fault(89)
def test_not_found_must_mention_weights_that_were_not_read(world: World, log: Path, tmp_path: Path) -> None:
    """A suspect's folder holds a file that is not read, so no key is ruled out; the insider omits it."""
    folder = shutil.copytree(world["model"].path, tmp_path / "suspect")
    (folder / "more.gguf").write_bytes(b"GGUF" + bytes(30))
    suspect = irwm.open_suspect(folder, world["model"])
    assert suspect.unread == ("more.gguf",)
    honest = complete(world | {"copy": suspect})
    said = judge_opened(honest.finding, listed(suspect.unread))
    assert (honest.finding.verdict, said.verdict) == ("not found", "inconclusive")
    true = Examined(suspect, honest.model, honest.key, said, honest.particulars, rebuilt(honest, said))
    brought = everything(true, log)
    assert checked(sign_alone(tmp_path / "true", true.document), brought).exit_code == 0
    bent = checked(sign_alone(tmp_path / "bent", honest.document), brought)
    assert set(failed(bent)) == {"examination"}


@pytest.mark.fault(89)
def test_unread_weights_that_do_not_exist_cannot_be_invented(world: World, log: Path, tmp_path: Path) -> None:
    honest = complete(world | {"copy": world["model"]})
    said = judge_opened(honest.finding, "more.gguf")
    assert (honest.finding.verdict, said.verdict) == ("not found", "inconclusive")
    outcome = checked(sign_alone(tmp_path / "r", rebuilt(honest, said)), everything(honest, log))
    assert outcome.exit_code == 2, outcome.result
    assert any("more.gguf" in check.said for check in outcome.checks if check.ok is None)


@pytest.mark.fault(89)
def test_a_report_without_hashes_is_not_established(whole: Examined, log: Path, tmp_path: Path) -> None:
    bare = replace(
        whole.particulars["suspect"], files=tuple(replace(f, sha256="") for f in whole.particulars["suspect"].files)
    )
    outcome = checked(sign_alone(tmp_path / "r", rebuilt(whole, suspect=bare)), everything(whole, log))
    assert outcome.exit_code == 2
    assert {check.name for check in outcome.checks if check.ok is None} == {"page", "pdf", "suspect"}
