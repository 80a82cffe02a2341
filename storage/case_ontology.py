"""A case in CASE and UCO, the ontologies in which forensic tools exchange cases, as JSON-LD (caseontology.org).

    Investigation               the case
    InvestigativeAction         each receipt of an item, and each run, with its time, person and tool
    ProvenanceRecord            each item, and the files of each run, with a number within the case
    File                        each file, with size and SHA-256
    Annotation                  each note, and the verdict of each run

Identifiers are derived from those of the vault's records, so that two exports of a case name the same thing alike.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from storage.case_file import CaseFile
from storage.records import FileDigest, ItemRecord, RunEntry

NAME = "case.jsonld"
_UCO = "https://ontology.unifiedcyberontology.org/uco/"
CONTEXT = {
    "case-investigation": "https://ontology.caseontology.org/case/investigation/",
    **{f"uco-{part}": f"{_UCO}{part}/" for part in ("action", "core", "identity", "observable", "tool", "types")},
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
TOOL = "IRWM Studio"
Node = dict[str, Any]


def as_json_ld(case: CaseFile, findings: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The case as JSON-LD.

    Args:
        findings: the finding of each run by its id, without those that are damaged.
    """
    graph = _Graph(case.vault)
    items = {item: graph.item(number, item) for number, item in enumerate(case.items, start=1)}
    for number, run in enumerate(case.runs, start=1):
        graph.run(number, run, findings.get(run.id, {}), items)
    parts = list(graph.nodes)
    whole = graph.add(
        "case-investigation:Investigation",
        case.case.id,
        {
            "uco-core:name": case.case.title,
            "uco-core:description": case.case.note,
            "uco-core:startTime": _time(case.case.created),
            "uco-core:object": [{"@id": part} for part in parts],
        },
    )
    for note in case.notes:
        graph.annotate(note.id, note.text, [whole], note.created, note.added_by)
    document = {"@context": CONTEXT, "@graph": list(graph.nodes.values())}
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


class _Graph:
    """The nodes so far, by their identifiers."""

    def __init__(self, vault: str) -> None:
        self._names = uuid.uuid5(uuid.NAMESPACE_URL, f"urn:irwm:vault:{vault}")
        self.nodes: dict[str, Node] = {}

    def add(self, kind: str, name: str, values: Node) -> str:
        """The identifier of a node of this type; empty values are left out."""
        id = f"urn:uuid:{uuid.uuid5(self._names, f'{kind} {name}')}"
        self.nodes[id] = {"@id": id, "@type": kind, **{key: value for key, value in values.items() if value}}
        return id

    def item(self, number: int, item: ItemRecord) -> str:
        """The record of an item's provenance."""
        files = self._files(item.id, item.files)
        record = self.add(
            "case-investigation:ProvenanceRecord",
            item.id,
            {
                "uco-core:name": item.name,
                "uco-core:description": item.note,
                "case-investigation:exhibitNumber": str(number),
                "uco-core:object": files,
            },
        )
        about = f"Received from {item.received_from}" if item.received_from else "Received"
        if item.seen_utc:
            about += f"; known to exist since {item.seen_utc}"
        self._act(
            item.id, "Item received", about, item.created, item.added_by, {"uco-action:result": [{"@id": record}]}
        )
        return record

    def run(self, number: int, run: RunEntry, finding: Mapping[str, Any], items: Mapping[ItemRecord, str]) -> None:
        """A run, its files and its verdict."""
        report = self.add(
            "case-investigation:ProvenanceRecord",
            run.id,
            {
                "uco-core:name": f"Run {number}",
                "case-investigation:exhibitNumber": f"run-{number}",
                "uco-core:object": self._files(run.id, run.files),
            },
        )
        suspects, originals, reviewed = (
            [record for item, record in items.items() if _is(item, finding, role)]
            for role in ("suspect", "original", "reviewed")
        )
        tool = self.add("uco-tool:AnalyticTool", f"{TOOL} {_version(finding)}", {
            "uco-core:name": TOOL, "uco-tool:version": _version(finding),
        })  # fmt: skip
        about = f"{run.suspect}: {run.verdict}"
        self._act(run.id, f"Run {number}", about, run.created, _examiner(finding), {
            "uco-action:instrument": [{"@id": tool}],
            "uco-action:object": [{"@id": record} for record in dict.fromkeys((*suspects, *originals, *reviewed))],
            "uco-action:result": [{"@id": report}],
        })  # fmt: skip
        self.annotate(run.id, run.verdict, [*suspects, *reviewed, report], run.created, "")

    def annotate(self, name: str, statement: str, about: Iterable[str], created: str, by: str) -> None:
        person = self._person(by)
        self.add("uco-core:Annotation", name, {
            "uco-core:statement": statement,
            "uco-core:object": [{"@id": each} for each in about],
            "uco-core:objectCreatedTime": _time(created),
            "uco-core:createdBy": person and {"@id": person},
        })  # fmt: skip

    def _act(self, name: str, title: str, about: str, ended: str, by: str, values: Node) -> None:
        person = self._person(by)
        self.add("case-investigation:InvestigativeAction", name, {
            "uco-core:name": title,
            "uco-core:description": about,
            "uco-action:endTime": _time(ended),
            "uco-action:performer": person and {"@id": person},
        } | values)  # fmt: skip

    def _person(self, name: str) -> str:
        return self.add("uco-identity:Person", name, {"uco-core:name": name}) if name else ""

    def _files(self, record: str, files: Mapping[str, FileDigest]) -> list[Node]:
        return [{"@id": self._file(record, name, file)} for name, file in sorted(files.items())]

    def _file(self, record: str, name: str, file: FileDigest) -> str:
        digest = {
            "@id": f"urn:uuid:{uuid.uuid5(self._names, f'hash {record} {name}')}",
            "@type": "uco-types:Hash",
            "uco-types:hashMethod": "SHA256",
            "uco-types:hashValue": {"@type": "xsd:hexBinary", "@value": file.sha256},
        }
        facets = {
            "uco-observable:FileFacet": {
                "uco-observable:fileName": name.rpartition("/")[2],
                "uco-observable:filePath": name,
                "uco-observable:sizeInBytes": file.bytes,
            },
            "uco-observable:ContentDataFacet": {
                "uco-observable:sizeInBytes": file.bytes,
                "uco-observable:hash": [digest],
            },
        }
        of_file = [
            {"@id": f"urn:uuid:{uuid.uuid5(self._names, f'{kind} {record} {name}')}", "@type": kind, **values}
            for kind, values in facets.items()
        ]
        return self.add(
            "uco-observable:File", f"{record} {name}", {"uco-core:name": name, "uco-core:hasFacet": of_file}
        )


def _time(utc: str) -> Node:
    return {"@type": "xsd:dateTime", "@value": utc}


def _is(item: ItemRecord, finding: Mapping[str, Any], role: str) -> bool:
    """Whether an item has every file of the finding's suspect or original, or is the reviewed report.

    Copies of one model share some files.
    """
    reviewed = [finding["reviewed"]] if role == "reviewed" and "reviewed" in finding else ()
    files = finding.get("items", {}).get(role, {}).get("files", reviewed)
    named = {file["sha256"] for file in files if file["sha256"]}
    return bool(named) and named <= {file.sha256 for file in item.files.values()}


def _version(finding: Mapping[str, Any]) -> str:
    versions = finding.get("versions")
    return str(versions.get("irwm", "")) if isinstance(versions, Mapping) else ""


def _examiner(finding: Mapping[str, Any]) -> str:
    if "reviewer" in finding:  # of a second examiner's review
        return str(finding["reviewer"])
    case = finding.get("case")
    return str(case.get("Examiner", "")) if isinstance(case, Mapping) else ""
