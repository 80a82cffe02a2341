"""Hand-written documents of labs, from which figures and tables are drawn without running an attack."""

from __future__ import annotations

from typing import Any

from irwm import Parameters
from irwm.attacks.catalogue import ATTACKS
from irwm.report.document import plain
from irwm.report.lab import LIMITATIONS, SCHEMA, VERSION
from irwm.report.lab_rows import WAY_WORDS

ITEM = {
    "name": "demo", "family": "llama", "dtype": "BF16", "vocab_size": 4096, "hidden_size": 256, "tied": True,
    "heads": 4, "kv_heads": 2, "head_dim": 64, "fingerprint": "ab" * 32, "bytes_total": 10, "notes": [],
    "other_files": [], "answers": None, "source": None,
    "files": [{"name": "model.safetensors", "bytes": 10, "sha256": "cd" * 32}],
}  # fmt: skip


def row(
    attack: str, value: float | str, *, role: str = "attack", verdict: str = "found", change: float | None = 0.1,
    present: int = 50, ran: bool = True, traced: dict[str, Any] | None = None, reason: str = "",
) -> dict[str, Any]:  # fmt: skip
    """A row; half of the positions count where the mark is not found."""
    known = ATTACKS.get(attack)
    count = 0 if not present else 48 if verdict == "found" else 9
    ways = [
        {
            "statistic": statistic, "invariant": invariant, "verdict": verdict, "count": count, "present": present,
            "share": count / present if present else None,
            "top": [max(0, count - 8), max(0, count - 4), count, min(count + 1, present)],
            "log10_p": -40.0, "log10_p_count": -30.0,
            "log10_risk": -39.7 if verdict == "found" else 0.0, "rule_met": verdict == "found",
            "tensors_read": 1, "places": 1,
        }
        for statistic, invariant in WAY_WORDS
    ]  # fmt: skip
    utility = {
        "tokens": 1023, "perplexity_reference": 30.0, "perplexity": None if change is None else 30.0 * (1 + change),
        "change": change, "change_error": 0.01, "kl": 0.02, "kl_error": 0.001, "top1": 0.9, "compared": 1023,
        "similarity": None, "reason": "",
    }  # fmt: skip
    for name in ("perplexity", "change"):
        if utility[name] == float("inf"):
            utility[name] = "infinity"
    return {
        "role": role, "attack": attack, "value": value,
        "label": known.label if known else "Not attacked" if role == "release" else "Unmarked original",
        "strength": known.label_of(value) if known else "", "group": known.group if known else "",
        "symbol": known.symbol if known else "", "keeps_function": bool(known and known.keeps_function),
        "verdict": verdict if ran else None, "log10_risk": ways[0]["log10_risk"] if ran else None,
        "ways": ways if ran else [], "traced": traced, "utility": utility if ran else None, "proof": None,
        "rests_on": "mark",
        "reason": reason or ("" if ran else "it has no such layer"), "seconds": 1.0,
    }  # fmt: skip


def crafted(rows: list[dict[str, Any]], *, complete: bool = True, noise: int = 0) -> dict[str, Any]:
    parameters = Parameters(noise_coordinates=noise, scale="auto" if noise else 1000.0)
    mark = {
        "mode": "many" if noise else "single", "parameters": parameters.to_dict(), "release": ITEM, "unmeasured": "",
        "key": {"commitment": "ef" * 32, "owner": "Example Labs", "recipient": "", "scale": 1.0,
                "model_fingerprint": "ab" * 32},
        "rows": rows,
    }  # fmt: skip
    return plain(
        {
            "schema": {"name": SCHEMA, "version": VERSION}, "created_utc": "2026-01-02T03:04:05+00:00",
            "status": {"signed": False, "court_ready": False, "note": "Not signed."}, "case": {"Case": "Trials"},
            "rehearsal": True, "complete": complete, "trials": len(rows) + 3,
            "settings": {
                "text": {"name": "t.txt", "characters": 9, "sha256": "00" * 32}, "tokens": 1024, "seed": 0,
                "companions_sha256": "00" * 32,
            },
            "original": ITEM, "marks": [mark], "versions": {"irwm": "1"}, "extra": {"Device": "cpu"},
            "limitations": LIMITATIONS,
        }
    )  # fmt: skip
