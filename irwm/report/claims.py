"""Claims (a place of a document, its value, and the expected value), and the fields that have no claim."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from irwm.errors import IrwmError
from irwm.report import schema
from irwm.report.checks import IDENTITY, LOG
from irwm.report.document import ReportError
from irwm.report.reproduction import Difference, same
from irwm.report.structure import plain
from irwm.report.value_states import Stated

# The place of a value, the value, and what it should be: a value, or in words what it must be.
Claim = tuple[str, Any, Any]
# Too small to be of any use to a forger: one in a hundred thousand is larger.
_ABSOLUTE = 1e-9
_DIGEST = re.compile("[0-9a-f]{64}")
# Exceptions of claims that cannot be made. RuntimeError: a rule did not find what it looks for in a generator.
IMPOSSIBLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, IrwmError)


# Inputs of every kind of document, given by its signer.
CASE = Stated(
    "the case, and the time when its examination ended",
    "there is only the examiner’s word for this",
    ("case*", "created_utc"),
)
PARTICULARS = Stated("further details", "there is only the examiner’s word for this", ("extra*",))
VERSIONS = Stated("the software versions", "only the computer that made the report can show this", ("versions*",))
SIGNER = Stated(
    "who signed the report",
    "only the signer’s published key can show this",
    ("status.custody.identity",),
    (IDENTITY,),
    carries=True,
)
CUSTODY = Stated(
    "the state of the audit log when the report was signed",
    "only the log itself can show this",
    ("status.custody.audit_head", "status.custody.audit_entries"),
    (LOG,),
    carries=True,
)
# The checks that show `SIGNER` and `CUSTODY`.
SHOWN_OF_SIGNATURE: Mapping[str, tuple[str, ...]] = {IDENTITY: SIGNER.fields, LOG: CUSTODY.fields}
# Bytes of a small file that may be read more than once.
_SPARE = 1 << 20
# The fields of an item (`irwm.report.items.ItemDescription`) that its files show.
_OF_ITEM = (
    "family", "dtype", "vocab_size", "hidden_size", "tied", "heads", "kv_heads", "head_dim", "fingerprint",
    "bytes_total", "files*", "other_files*", "notes*", "answers*", "source", "source.files[].name",
    "source.files[].bytes", "source.files[].ranges[].start", "source.files[].ranges[].stop",
    "source.files[].ranges[].sha256", "source.files", "source.files[].ranges",
)  # fmt: skip
# What only the server that an item was read from can show.
_OF_SOURCE = (
    "source.address", "source.server", "source.commit", "source.files[].sha256", "source.files[].etag",
    "source.files[].ranges[].utc",
)  # fmt: skip


def item_fields(*places: str) -> tuple[str, ...]:
    """The fields of the items at these places that their files show: all except their names."""
    return tuple(f"{place}.{name}" for place in places for name in _OF_ITEM)


def source_fields(*places: str) -> tuple[str, ...]:
    """The fields of the items at these places that only their server shows."""
    return tuple(f"{place}.{name}" for place in places for name in _OF_SOURCE)


def wrong(claims: Iterable[Claim]) -> Iterator[Difference]:
    """The claims that do not hold."""
    for where, recorded, expected in claims:
        if type(recorded) is type(expected) and recorded == expected:  # true for nearly all; fast
            continue
        if not same(plain(recorded), plain(expected), absolute=_ABSOLUTE):
            yield Difference(where, recorded, expected)


def contradicted(claims: Iterable[Claim], problem: str, assigned: set[str] | None = None) -> list[Difference]:
    """The claims that do not hold; raises ReportError with this problem if the claims cannot be made.

    Args:
        assigned: receives the places of the claims.
    """
    found: list[Difference] = []
    try:
        found.extend(wrong(claims if assigned is None else _noted(claims, assigned)))
    except IMPOSSIBLE as error:
        if found:  # the error is reported already; the rest cannot be computed because of it
            return found
        raise ReportError(
            problem,
            found=f"{type(error).__name__}: {error}".rstrip("."),
            advice="Ask the signer for the report as it was signed",
        ) from error
    return found


def _noted(claims: Iterable[Claim], assigned: set[str]) -> Iterator[Claim]:
    for claim in claims:
        assigned.add(claim[0])
        yield claim


def each(where: str, recorded: Any, expected: Any) -> Iterator[Claim]:
    """Claims about every value inside `expected`, which is the complete expected value of `recorded`."""
    yield from _each(where, recorded, plain(expected))


def _each(where: str, recorded: Any, expected: Any) -> Iterator[Claim]:
    if not expected and type(recorded) is type(expected):  # empty: no inner claims
        yield where, recorded, expected
    elif isinstance(expected, dict) and isinstance(recorded, Mapping):
        for name in dict.fromkeys((*expected, *recorded)):
            if name not in expected or name not in recorded:
                yield f"{where}.{name}", recorded.get(name, "missing"), expected.get(name, "absent")
            else:
                yield from _each(f"{where}.{name}", recorded[name], expected[name])
    elif isinstance(expected, list) and isinstance(recorded, Sequence) and not isinstance(recorded, str):
        if len(expected) != len(recorded):
            yield where, f"a list of length {len(recorded)}", f"a list of length {len(expected)}"
        for i, (one, other) in enumerate(zip(recorded, expected, strict=False)):
            yield from _each(f"{where}[{i}]", one, other)
    else:
        yield where, recorded, expected


def must(holds: bool, where: str, value: Any, words: str) -> Iterator[Claim]:
    """A claim that fails unless `holds`; `words` say what the value must be."""
    if not holds:
        yield where, "nothing" if value is None else value, words


def one_of(where: str, value: Any, known: Collection[str]) -> Iterator[Claim]:
    """A claim that a value is one of these words."""
    yield from must(value in known, where, value, f"one of {', '.join(known)}")


def present_and_count(where: str, present: int, count: int, most: float = math.inf) -> Iterator[Claim]:
    """Claims about the positions that could be ranked, of at most this many, and those of them that count."""
    yield from within(f"{where}.present", present, 0, most)
    yield from within(f"{where}.count", count, 0, present)


def within(where: str, value: float, least: float = 0, most: float = math.inf) -> Iterator[Claim]:
    """A claim that a number is in a range."""
    words = f"at least {least}" if most == math.inf else f"a number from {least} to {most}"
    yield from must(least <= value <= most, where, value, words)


def at_least(least: int, where: str, recorded: Mapping[str, object], *names: str) -> Iterator[Claim]:
    """Claims that these parts of an object are numbers of at least this size."""
    for name in names:
        value = recorded[name]
        yield from must(isinstance(value, int) and value >= least, f"{where}.{name}", value, f"at least {least}")


def equal(where: str, recorded: Mapping[str, object], expected: Mapping[str, object], *names: str) -> Iterator[Claim]:
    """Claims that these parts of two objects are equal; without names all parts of `expected`."""
    for name in names or expected:
        yield f"{where}.{name}", recorded[name], expected[name]


def digest(where: str, value: str) -> Iterator[Claim]:
    yield from must(_DIGEST.fullmatch(value) is not None, where, value, "a SHA-256 hash in hexadecimal digits")


def item(where: str, recorded: schema.Item, *, answers: bool = False) -> Iterator[Claim]:
    """An item: its numbers are possible, and the sizes of its files add up to its total.

    Args:
        answers: the item may be known only by its answers.
    """
    if not answers:
        yield f"{where}.answers", recorded["answers"], None
    yield from at_least(1, where, recorded, "vocab_size", "hidden_size")
    yield from at_least(0, where, recorded, "heads", "kv_heads", "head_dim", "bytes_total")
    yield from digest(f"{where}.fingerprint", recorded["fingerprint"])
    names = [file["name"] for file in recorded["files"]]
    if names:
        size = sum(file["bytes"] for file in recorded["files"])
        yield f"{where}.bytes_total", recorded["bytes_total"], size
    every = [*names, *(file["name"] for file in recorded["other_files"])]
    yield from must(len(set(every)) == len(every), f"{where}.files", every, "a list of files with distinct names")
    for among, files in (("files", recorded["files"]), ("other_files", recorded["other_files"])):
        for i, file in enumerate(files):
            yield from within(f"{where}.{among}[{i}].bytes", file["bytes"])
            if file["sha256"] != "":
                yield from digest(f"{where}.{among}[{i}].sha256", file["sha256"])
    if recorded["source"] is not None:
        yield from _source(f"{where}.source", recorded, recorded["source"])


def is_plain_name(name: str) -> bool:
    """Whether a file's name leads to no place outside its folder."""
    return not {"", ".", ".."} & set(name.split("/")) and "\\" not in name and ":" not in name


def _source(where: str, recorded: schema.Item, source: schema.Source) -> Iterator[Claim]:
    """Parts of files of the item, within their sizes, and read once or nearly so."""
    sizes = {file["name"]: file["bytes"] for file in (*recorded["files"], *recorded["other_files"])}
    names = [file["name"] for file in source["files"]]
    yield from must(len(set(names)) == len(names), f"{where}.files", names, "a list of files with distinct names")
    for i, file in enumerate(source["files"]):
        here = f"{where}.files[{i}]"
        yield from must(
            is_plain_name(file["name"]), f"{here}.name", file["name"], "the name of a file in the item's folder"
        )
        yield f"{here}.bytes", file["bytes"], sizes.get(file["name"], file["bytes"])
        if file["sha256"] != "":
            yield from digest(f"{here}.sha256", file["sha256"])
        for j, part in enumerate(file["ranges"]):
            at = f"{here}.ranges[{j}]"
            yield from within(f"{at}.start", part["start"], 0, part["stop"] - 1)
            yield from within(f"{at}.stop", part["stop"], 1, file["bytes"])
            yield from digest(f"{at}.sha256", part["sha256"])
        total = sum(part["stop"] - part["start"] for part in file["ranges"])
        # Ranges that are close together are read in one request, even if some of their bytes are known.
        most = 2 * file["bytes"] + _SPARE
        yield from must(total <= most, f"{here}.ranges", total, f"at most {most} bytes in total")
