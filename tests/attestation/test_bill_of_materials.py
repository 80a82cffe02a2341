"""The bill of a release: valid CycloneDX, and nothing in it that is secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from irwm.attestation import BillDetails, bill_of_materials
from irwm.errors import AttestationError, CorruptCheckpointError, IrwmError
from irwm.release import read_manifest
from tests.attestation.commands import irwm

COMMITMENT = "ab" * 32


def valid(content: bytes) -> dict[str, Any]:
    """The bill, after a check against the schema."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode()) is None
    bill: dict[str, Any] = json.loads(content)
    return bill


def with_card(release: Path, lines: str) -> dict[str, Any]:
    """The model in the bill of a release with this front matter."""
    (release / "README.md").write_text(f"---\n{lines}\n---\n")
    bill = valid(bill_of_materials(release, BillDetails(base_model="org/given")))
    model: dict[str, Any] = bill["metadata"]["component"]
    return model


def test_bill_lists_the_files_base_model_licence_and_commitment(release: Path) -> None:
    bill = valid(bill_of_materials(release, BillDetails(commitment=COMMITMENT)))
    assert {each["name"]: each["hashes"] for each in bill["components"]} == {
        name: [{"alg": "SHA-256", "content": digest}] for name, digest in read_manifest(release).files.items()
    }
    model = bill["metadata"]["component"]
    assert (model["type"], model["name"]) == ("machine-learning-model", "release")
    assert [each["name"] for each in model["pedigree"]["ancestors"]] == ["example-labs/base"]
    assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert model["properties"] == [{"name": "irwm:mark:commitment", "value": COMMITMENT}]


def test_same_release_gives_the_same_bytes(release: Path) -> None:
    assert bill_of_materials(release) == bill_of_materials(release)


def test_recipient_is_named_on_request_only(release: Path) -> None:
    assert "properties" not in valid(bill_of_materials(release))["metadata"]["component"]
    named = valid(bill_of_materials(release, BillDetails(recipient="Early access 7")))["metadata"]["component"]
    assert named["properties"] == [{"name": "irwm:recipient", "value": "Early access 7"}]


@pytest.mark.parametrize(
    ("lines", "licences"),
    [
        ("license: mit", [{"license": {"id": "MIT"}}]),
        ("license: llama3.1", [{"license": {"name": "llama3.1"}}]),
        ("license: Apache-2.0 OR MIT", [{"expression": "Apache-2.0 OR MIT"}]),
        ("license: [mit, bsd-3-clause]", [{"license": {"name": "bsd-3-clause"}}, {"license": {"name": "mit"}}]),
        (
            "license: other\nlicense_name: my-own\nlicense_link: https://example.com/l",
            [{"license": {"name": "my-own", "url": "https://example.com/l"}}],
        ),
        ("license: other\nlicense_link: LICENSE", [{"license": {"name": "other"}}]),
        ("tags: [x]", None),
        ("license: {a: 1}", None),
    ],
)
def test_licences_of_a_card(release: Path, lines: str, licences: object) -> None:
    assert with_card(release, lines).get("licenses") == licences


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("base_model: org/a", ["org/a"]),
        ("base_model: [org/b, org/a]", ["org/a", "org/b"]),
        ("base_model:", ["org/given"]),
        ("x: 1", ["org/given"]),
    ],
)
def test_base_models_of_a_card_come_before_a_given_one(release: Path, lines: str, names: list[str]) -> None:
    assert sorted(each["name"] for each in with_card(release, lines)["pedigree"]["ancestors"]) == names


def test_malformed_input_is_named(release: Path) -> None:
    with pytest.raises(AttestationError, match="not the commitment of a key"):
        BillDetails(commitment="AB" * 32)
    with pytest.raises(AttestationError, match="control characters"):
        BillDetails(recipient="a\nb")
    with pytest.raises(CorruptCheckpointError, match="front matter") as refused:
        with_card(release, "a: [")
    assert refused.value.file == str(release / "README.md")
    (release / "SHA256SUMS").unlink()
    with pytest.raises(IrwmError, match="SHA256SUMS"):
        bill_of_materials(release)


@pytest.mark.slow
def test_command_writes_the_bill_and_overwrites_no_file(release: Path, tmp_path: Path) -> None:
    words = "bom", release, "--commitment", COMMITMENT, "--out", tmp_path / "bill.json"
    assert irwm(*words) == f"Written: {tmp_path / 'bill.json'}\n"
    assert (tmp_path / "bill.json").read_bytes() == bill_of_materials(release, BillDetails(commitment=COMMITMENT))
    assert "never overwritten" in irwm(*words, status=2)
