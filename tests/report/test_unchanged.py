"""The documents of six examinations are the same as before, word for word and number for number.

`data/reports.json` holds every word and number of each document; of the null distributions, which would take megabytes,
it holds the sums. Words, counts and verdicts are compared exactly, other numbers to five digits, since another
processor, or another number of threads, may sum in another order. The digests of the null distributions and the key's
commitment change with the last bit of a sum, so they are not compared.

After a deliberate change of the text of reports, write the file again and review the difference:

    IRWM_KEEP_REPORTS=1 python -m pytest tests/report/test_unchanged.py
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KEPT = Path(__file__).with_name("data") / "reports.json"
CASES = ("found", "not_found", "gone", "inconclusive", "disguised", "two_tensors")
# The versions of the programs are not part of the examination.
LEFT_OUT = ("versions",)
NOT_COMPARED = (".null.sha256", ".key.commitment")
# Longer lists of numbers are kept by their sums.
MOST_NUMBERS = 200


def condensed(value: Any) -> Any:
    """The document with long lists of numbers replaced by their count, sum and sum of squares."""
    if isinstance(value, dict):
        return {name: condensed(each) for name, each in value.items() if name not in LEFT_OUT}
    if isinstance(value, list):
        numbers = [each for each in value if isinstance(each, (int, float))]
        if len(numbers) > MOST_NUMBERS:
            return {"count": len(value), "sum": math.fsum(numbers), "squares": math.fsum(n * n for n in numbers)}
        return [condensed(each) for each in value]
    return value


def differences(kept: Any, now: Any, where: str = "") -> Iterator[str]:
    if isinstance(kept, dict) and isinstance(now, dict):
        for name in kept.keys() | now.keys():
            yield from differences(kept.get(name), now.get(name), f"{where}.{name}")
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for number, (one, other) in enumerate(zip(kept, now, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif isinstance(kept, float) and isinstance(now, (int, float)):
        if not math.isclose(kept, now, rel_tol=1e-5, abs_tol=1e-9):
            yield f"{where}: stored {kept!r}, now {now!r}"
    elif kept != now and not where.endswith(NOT_COMPARED):
        yield f"{where}: stored {kept!r}, now {now!r}"


@pytest.mark.parametrize("case", CASES)
def test_a_report_is_unchanged(request: pytest.FixtureRequest, case: str) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    now = json.loads(json.dumps(condensed(request.getfixturevalue(case).document)))
    found = list(differences(without_commitment(kept[case]), without_commitment(now)))
    if not os.environ.get("IRWM_KEEP_REPORTS"):
        assert found == []
    elif found:
        # `irwm verify` composes the sentences again: it would call an honest report of the old text contradictory.
        assert now["schema"]["version"] > kept[case]["schema"]["version"], "first raise the version of the schema"
        write(kept | {case: now})


def without_commitment(document: dict[str, Any]) -> dict[str, Any]:
    """The document with zeros for the digits of the commitment that its sentences quote."""
    digits = document["key"]["commitment"][:16]
    return json.loads(json.dumps(document).replace(digits, "0" * len(digits)))


def write(kept: dict[str, Any]) -> None:
    lines = (f"{json.dumps(case)}: {json.dumps(kept[case], sort_keys=True)}" for case in sorted(kept))
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
