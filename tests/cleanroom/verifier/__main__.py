"""python -m verifier KEY ORIGINAL SUSPECT REPORT [--signature FILE] [--written]"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .checks import (
    Place,
    check_controls,
    check_items,
    check_key,
    check_marks,
    check_odds,
    check_standing,
    check_tracing,
)
from .keys import Key, strict_json
from .ledger import Ledger
from .models import Checkpoint, decode
from .neurons import Neurons, neurons_of
from .signatures import check_signature
from .written import Original


def check_written(ledger: Ledger, originals: dict[str, Original], neurons: Neurons | None, release: Checkpoint) -> None:
    """For the owner's release: the bytes that it must hold."""
    model = next(iter(originals.values())).model
    changed = {o.name for o in originals.values()}
    for name, original in originals.items():
        mine = original.written_matrix()
        stored = np.frombuffer(release.raw(release.matrix(name)), mine.dtype).reshape(mine.shape)
        marked = original.key.tokens[2]
        off = int((mine[marked] != stored[marked]).sum())
        ledger.holds(f"written: marked rows' bytes in the {name}", off == 0, f"{off} numbers differ")
        # Added noise of 16-bit numbers may be computed in float32 (key-format.md, Rounding).
        off, most = int((mine != stored).sum()), mine.size // 2000 if mine.itemsize == 2 else 0
        near = most == 0 or within_rounding(original.written_rows(), stored, release.tensors[release.matrix(name)][1])
        ledger.holds(f"written: all rows' bytes in the {name}", off <= most and near, f"{off} numbers differ")
    for name, (_, mine) in ({} if neurons is None else neurons.written()).items():
        stored = np.frombuffer(release.raw(name), mine.dtype).reshape(mine.shape)
        off, most = int((mine != stored).sum()), mine.size // 2000 if mine.itemsize == 2 else 0
        ledger.holds(f"written: bytes of {name}", off <= most, f"{off} numbers differ")
        changed.add(name)
    others = set(model.tensors) - changed
    same = set(model.tensors) == set(release.tensors) and all(model.raw(n) == release.raw(n) for n in others)
    ledger.holds("written: every other tensor is the original's", same)


def within_rounding(exact: np.ndarray, stored: np.ndarray, dtype: str) -> bool:
    """Whether stored numbers are within half a unit, plus float32's rounding of their row, of the exact ones."""
    size = np.maximum(np.abs(exact), np.sqrt(np.square(exact).mean(axis=1, keepdims=True)))
    bits = stored.view("<u2")
    value, larger = (decode(each.tobytes(), dtype).astype(np.float64).reshape(exact.shape) for each in (bits, bits + 1))
    return bool((np.abs(value - exact) <= np.abs(larger - value) / 2 + 2.0**-22 * size).all())


def control_failed(test: dict[str, Any]) -> bool:
    """reading.md, The verdict: it found a mark, or judged what cannot be judged."""
    wrong: bool = test["verdict"] != test["expected"]
    return wrong and (test["verdict"] == "found" or test["expected"] == "inconclusive")


def main() -> int:
    """Checks one report; 0 only if everything agrees."""
    parser = argparse.ArgumentParser(prog="verifier", description="Checks a signed report from the public pages alone.")
    for name in ("key", "original", "suspect", "report"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--signature", type=Path)
    parser.add_argument("--written", action="store_true", help="the suspect is the owner's release: compare its bytes")
    given = parser.parse_args()
    ledger = Ledger()
    path = given.report
    if path.is_dir():
        path = next(each for each in path.glob("report*.json") if not each.name.endswith(".signature.json"))
    data = path.read_bytes()
    report = strict_json(data)
    ledger.check("report: schema", report["schema"], {"name": "irwm-report", "version": 22})
    ledger.holds(
        "report: canonical spelling", data == (json.dumps(report, ensure_ascii=True, indent=1) + "\n").encode()
    )
    signature = given.signature or path.with_suffix(".signature.json")
    if signature.exists():
        check_signature(ledger, signature, report, path.parent)
    else:
        ledger.holds("signature", not report["status"]["signed"], "the report says that it is signed")
    key = Key(given.key.read_bytes())
    model, suspect = Checkpoint(given.original), Checkpoint(given.suspect)
    check_items(ledger, report, suspect, model)
    originals = check_key(ledger, key, model, report)
    neurons = neurons_of(key, model)
    if neurons is not None:
        ledger.check("neurons: fingerprint of the original", neurons.fingerprint(), neurons.key.fingerprint)
    places = {
        n: Place(o, suspect, report["alignment"]["embedding_tensor"] if n == report["place"] else None)
        for n, o in originals.items()
    }
    word = check_marks(ledger, report, key, places, neurons, suspect)
    rests_on = "mark"
    if report["tracing"]:
        traced = check_tracing(ledger, report, places, neurons, key, word)
        if traced != word or report["tracing"]["named"]:
            word, rests_on = traced, "tracing"
    if any(map(control_failed, report["self_tests"])):
        word, rests_on = "inconclusive", "mark"
    ledger.check("verdict: word", word, report["verdict"]["word"])
    ledger.check("verdict: rests on", rests_on, report["verdict"]["rests_on"])
    check_odds(ledger, report)
    check_standing(ledger, report)
    check_controls(ledger, report, places, key)
    if given.written:
        check_written(ledger, originals, neurons, suspect)
    print(f"{ledger.made - ledger.failed} of {ledger.made} comparisons agree")
    return 1 if ledger.failed else 0


if __name__ == "__main__":
    sys.exit(main())
