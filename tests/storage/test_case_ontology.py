"""The case in CASE and UCO: valid by the ontologies' own shapes, and complete."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from storage import Vault
from storage.case_archive import export_case

SUSPECT = {"model.safetensors": (7, "ab" * 32), "config.json": (3, "cd" * 32)}
FINDING = {
    "verdict": "found",
    "versions": {"irwm": "1.2.3"},
    "case": {"Examiner": "R. Weber"},
    "items": {
        "suspect": {
            "files": [
                {"name": "model.safetensors", "sha256": "ab" * 32},
                {"name": "config.json", "sha256": "cd" * 32},
                {"name": "tokenizer.json", "sha256": ""},
            ]
        },
        "original": {
            "files": [{"name": "model.safetensors", "sha256": "01" * 32}, {"name": "config.json", "sha256": "cd" * 32}]
        },
    },
}
ORIGINAL = {"model.safetensors": (7, "01" * 32), "config.json": (3, "cd" * 32)}
OTHER = {"model.safetensors": (7, "02" * 32), "config.json": (3, "cd" * 32)}


@pytest.fixture
def graph(vault: Vault, tmp_path: Path) -> tuple[Path, dict[str, dict[str, Any]]]:
    """The file in the archive of a case, and its nodes by identifier."""
    case = vault.add_case("Leak of Jänner", "seen on a forum")
    seen = "2026-01-31T12:00Z"
    vault.add_item(case.id, "the forum's file", SUSPECT, received_from="A. Lopez", added_by="R. Weber", seen_utc=seen)
    vault.add_item(case.id, "the original", ORIGINAL)
    vault.add_item(case.id, "another copy", OTHER)
    vault.add_run(case.id, FINDING, "the forum's file", "found", files={"report.json": b"{}"})
    vault.add_run(case.id, {"verdict": "not found"}, "control", "not found")
    vault.add_note(case.id, "Called the customer.", added_by="R. Weber")
    with zipfile.ZipFile(export_case(vault, case.id, tmp_path / "case.zip")) as archive:
        path = Path(archive.extract("case.jsonld", tmp_path))
    return path, {node["@id"]: node for node in json.loads(path.read_bytes())["@graph"]}


def of_type(nodes: dict[str, dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [node for node in nodes.values() if node["@type"].endswith(f":{kind}")]


def test_every_reference_leads_to_a_node(graph: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    _, nodes = graph
    for node in nodes.values():
        for value in node.values():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, dict) and list(each) == ["@id"]:
                    assert each["@id"] in nodes


def test_items_runs_and_notes_are_in_the_graph(graph: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    _, nodes = graph
    (investigation,) = of_type(nodes, "Investigation")
    assert (investigation["uco-core:name"], investigation["uco-core:description"]) == (
        "Leak of Jänner", "seen on a forum",
    )  # fmt: skip
    files = of_type(nodes, "File")
    assert sorted(file["uco-core:name"] for file in files) == [
        *["config.json"] * 3, *["model.safetensors"] * 3, "report.json",
    ]  # fmt: skip
    (hashed,) = files[0]["uco-core:hasFacet"][1]["uco-observable:hash"]
    assert hashed["uco-types:hashValue"]["@value"] == "cd" * 32
    (person,) = of_type(nodes, "Person")
    received, *_, first, second = of_type(nodes, "InvestigativeAction")
    assert received["uco-core:description"] == "Received from A. Lopez; known to exist since 2026-01-31T12:00Z"
    assert received["uco-action:performer"] == first["uco-action:performer"] == {"@id": person["@id"]}
    examined = [nodes[each["@id"]]["uco-core:name"] for each in first["uco-action:object"]]
    assert examined == ["the forum's file", "the original"], "the other copy has the same config.json"
    assert nodes[first["uco-action:instrument"][0]["@id"]]["uco-tool:version"] == "1.2.3"
    assert "uco-action:object" not in second
    said = {
        note["uco-core:statement"]: [nodes[each["@id"]]["uco-core:name"] for each in note["uco-core:object"]]
        for note in of_type(nodes, "Annotation")
    }
    assert said == {
        "found": ["the forum's file", "Run 1"],
        "not found": ["Run 2"],
        "Called the customer.": ["Leak of Jänner"],
    }


@pytest.mark.slow
def test_file_is_valid_case_and_uco(graph: tuple[Path, dict[str, dict[str, Any]]], tmp_path: Path) -> None:
    path, _ = graph
    command = [sys.executable, "-c", "from case_utils.case_validate import main; main()"]
    valid = subprocess.run([*command, str(path)], capture_output=True, text=True)
    assert (valid.returncode, valid.stdout.split()[:3]) == (0, ["Validation", "Report", "Conforms:"]), valid.stdout
    document = json.loads(path.read_text())
    for node in document["@graph"]:
        for facet in node.get("uco-core:hasFacet", ()):
            for digest in facet.get("uco-observable:hash", ()):
                digest["uco-types:hashValue"]["@value"] = "not a hash"
    (tmp_path / "wrong.jsonld").write_text(json.dumps(document))
    assert subprocess.run([*command, str(tmp_path / "wrong.jsonld")], capture_output=True).returncode == 1
