"""Checks a sweep's overview against the reports of its suspects, which are next to it and named by their SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from irwm.report import consistency, schema, stamps
from irwm.report.checks import FOLDER, KEY, KEYS
from irwm.report.claims import VERSIONS, Claim, contradicted, digest, each, equal, must, within
from irwm.report.document import from_json
from irwm.report.reproduction import Difference
from irwm.report.sweep import FOUND_AT, SCHEMA, VERSION, json_name, keys_digest, summary
from irwm.report.value_states import Stated

# The inputs of an overview; all other values follow from them and from its reports, which have their own inputs.
STATED = (
    VERSIONS,
    Stated("the folder’s name, and the case", "there is only the signer’s word for this", ("folder", "case_id")),
    Stated(
        "the suspects, and the parts of the folder that were left out",
        "only the folder can show this",
        ("suspects", "refused*", "too_deep*", "cut", "rows[].path"),
        (FOLDER,),
        carries=True,
    ),
    Stated(
        "the reasons why suspects could not be examined",
        "only reopening the same suspects can show this",
        ("rows[].error", "rows[].error.problem"),
        (FOLDER,),
        carries=True,
    ),
    Stated("the details of these reasons", "they may contain paths on the signer’s computer", ("rows[].error*",)),
    Stated(
        "the names, sizes and modification times of the suspects’ files",
        "only the files can show this",
        ("rows[].stamp*",),
    ),
    Stated("the number of keys available to try", "only the owner of the keys can show this", ("keys_held",)),
    Stated(
        "the keys that were tried",
        "only the opened keys can show this",
        ("keys_sha256",),
        (KEY,),
        carries=True,
    ),
)
# Which check computes which values again.
SHOWN: Mapping[str, tuple[str, ...]] = {
    FOLDER: ("suspects", "refused*", "too_deep*", "cut", "rows", "rows[].path", "rows[].error", "rows[].error.problem"),
    KEYS: ("keys_sha256",),
}


def contradictions(
    document: schema.Sweep, reports: Mapping[str, bytes], assigned: set[str] | None = None
) -> list[Difference]:
    """The values that do not follow from the reports of an overview; each report is checked too.

    Args:
        reports: the bytes of the existing reports, by their names in the rows.

    Raises:
        ReportError: a report cannot be read, or a value cannot be computed.
    """
    return contradicted(claims(document, reports), "the overview's numbers cannot be computed", assigned)


def missing(document: schema.Sweep, reports: Mapping[str, bytes]) -> list[str]:
    """The names of the missing reports."""
    return [row["json"] for row in document["rows"] if row["error"] is None and row["json"] not in reports]


def claims(document: schema.Sweep, reports: Mapping[str, bytes]) -> Iterator[Claim]:
    """The values of an overview that follow from its reports, recorded and expected."""
    yield from each("schema", document["schema"], {"name": SCHEMA, "version": VERSION})
    rows, suspects = document["rows"], document["suspects"]
    yield from within("keys", document["keys"], 1)
    if "keys_held" in document:  # overviews of earlier versions of this program do not have it
        yield from within("keys_held", document["keys_held"], document["keys"])
    yield from digest("keys_sha256", document["keys_sha256"])
    yield from digest("original", document["original"])
    yield from within("suspects", suspects, len(rows))
    yield "complete", document["complete"], len(rows) == suspects
    paths = [row["path"] for row in rows]
    yield from must(len(set(paths)) == len(paths), "rows", paths, "a list with no duplicate suspects")
    for i, row in enumerate(rows):
        where = f"rows[{i}]"
        yield f"{where}.json", row["json"], json_name(row["path"])
        if row["error"] is None and row["json"] in reports:
            yield from _row(where, row, document, reports[row["json"]])


def _row(where: str, row: schema.Swept, document: schema.Sweep, data: bytes) -> Iterator[Claim]:
    yield f"{where}.sha256", row["sha256"], hashlib.sha256(data).hexdigest()
    report = from_json(data)
    for each_wrong in (*consistency.contradictions(report), *stamps.contradictions(report)):
        yield f"{row['json']}: {each_wrong.where}", each_wrong.recorded, each_wrong.found
    said_of = {name: value for name, value in row.items() if name not in ("path", "stamp", "json", "error")}
    yield from each(where, said_of, summary(report))
    yield f"{where}.path", row["path"], report["extra"].get(FOUND_AT)
    yield "original", document["original"], report["items"]["original"]["fingerprint"]
    yield "keys", document["keys"], report["evaluation"]["keys_tried"]
    found, settings = report["tracing"], document["settings"]
    if found is not None and found["recipients"] == document["keys"] == len(found["ranked"]):
        yield "keys_sha256", document["keys_sha256"], keys_digest(one["commitment"] for one in found["ranked"])
    own: Mapping[str, object] = {**report["reading"], "seed": report["seed"]}
    read = report["supporting"][0] if report["supporting"] else own
    yield from equal("settings", settings, read, "statistic", "invariant", "seed")
