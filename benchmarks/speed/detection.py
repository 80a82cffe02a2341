"""Detection on a suspect of 8B geometry: undisguised, and rotated with its rows reordered."""

from __future__ import annotations

import tempfile
from typing import Any

from benchmarks.speed.claim import GIB, MIB, SECRET, Bench, Figure, median, seconds
from benchmarks.speed.task import measured

NAME, TITLE = "detection", "Detection"
MOST_SECONDS, MOST_MEMORY = 3.0, 1.5 * GIB
MOST_DISGUISED_SECONDS, MOST_DISGUISED_MEMORY = 120.0, 4 * GIB
# Headers, config and the index, beyond the rows and the layer-0 tensors.
MOST_SURPLUS = 1.05


def detect(model: str, suspect: str, key: str) -> dict[str, Any]:
    """Detect from the files to the verdict, with a key from the vault, and count the bytes read from each side."""
    import irwm
    from benchmarks.speed.counting import counted

    with counted() as bytes_of:
        original, other = irwm.open_checkpoint(model), irwm.open_checkpoint(suspect)
        found = irwm.detect(other, original, irwm.Key.from_bytes(bytes.fromhex(key)))
    return {
        "verdict": found.verdict, "count": found.count, "undone": list(found.alignment.undone),
        "suspect_bytes": bytes_of(suspect), "model_bytes": bytes_of(model),
    }  # fmt: skip


def prepare(model: str) -> dict[str, Any]:
    """Return the key's bytes and the bytes a detection needs: rows of key and samples once, layer 0's q, k and norm.

    One sample of rows is public, for the alignment. The other follows from the key's secret, and shows whether the
    aligned rows are close to the original's.
    """
    import numpy as np

    import irwm
    from irwm.alignment.least_squares import COMPARED_ROWS
    from irwm.alignment.rows import draw, sample_size

    original = irwm.open_checkpoint(model)
    key = irwm.generate_key(original, secret=SECRET)
    choices = key.choices()
    sample = draw(original.vocab_size, sample_size(original.hidden_size))
    secret = draw(original.vocab_size, COMPARED_ROWS, key.derivation.sample_key())
    tokens = choices.query_tokens, choices.reference_tokens
    rows = np.unique(np.concatenate((choices.marked_rows, *tokens, sample, secret)))
    layout = original.layout
    norm = layout.input_norm.weight if layout.input_norm else None
    assert not isinstance(norm, tuple)
    small = [ref for ref in (layout.q, layout.k, norm) if ref is not None]
    table = original.tensors[layout.embedding.name]
    needed = rows.size * table.nbytes // original.vocab_size + sum(original.tensors[ref.name].nbytes for ref in small)
    return {"key": key.to_bytes().hex(), "needed": int(needed), "embedding": table.nbytes}


STEPS = {"detect": detect, "prepare": prepare}


def measure(bench: Bench) -> dict[str, Any]:
    model = str(bench.model())
    about = measured(NAME, "prepare", bench.threads, model=model)
    key = about.pop("key")
    result: dict[str, Any] = {"needed": about["needed"], "embedding": about["embedding"]}
    for name, path in (("plain", bench.release()), ("disguised", bench.disguised())):
        result[name] = []
        for _ in range(bench.repeats):
            result[name].append(measured(NAME, "detect", bench.threads, model=model, suspect=str(path), key=key))
            bench.say(f"  {name}: {result[name][-1]}")
    with tempfile.TemporaryDirectory() as empty:  # the original's hash is not cached here
        arguments = {"model": model, "suspect": str(bench.release()), "key": key}
        result["first"] = measured(NAME, "detect", bench.threads, {"XDG_CACHE_HOME": empty}, **arguments)
    bench.say(f"  first: {result['first']}")
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    plain, disguised, needed = result["plain"], result["disguised"], result["needed"]
    asked, ours = (max(run[f"{side}_bytes"] for run in plain) for side in ("suspect", "model"))
    took = median(plain, "seconds")
    return [
        Figure(
            "detection on an undisguised suspect, after the imports",
            f"below {MOST_SECONDS:.0f} s",
            seconds(plain),
            took < MOST_SECONDS and all(run["verdict"] == "found" for run in plain),
        ),
        Figure(
            "bytes read of the suspect and of the original, relative to the needed rows, q and k",
            f"at most {MOST_SURPLUS} ×",
            f"{asked / needed:.2f} × and {ours / needed:.2f} ×: {asked / MIB:.0f} and {ours / MIB:.0f} "
            f"of {needed / MIB:.0f} MiB",
            max(asked, ours) <= MOST_SURPLUS * needed,
        ),
        Figure("peak memory", "below 1.5 GiB", _peak(plain), max(r["peak"] for r in plain) < MOST_MEMORY),
        Figure(
            "detection on a suspect that is rotated, scaled and has its rows reordered, without a tokenizer",
            f"below {MOST_DISGUISED_SECONDS:.0f} s",
            seconds(disguised, digits=1),
            median(disguised, "seconds") < MOST_DISGUISED_SECONDS and disguised[0]["verdict"] == "found",
        ),
        Figure("peak memory of that", "below 4 GiB", _peak(disguised), disguised[0]["peak"] < MOST_DISGUISED_MEMORY),
    ]


def details(result: dict[str, Any]) -> list[str]:
    plain, first = result["plain"], result["first"]
    return [
        f"Starting Python and importing took {median(plain, 'started'):.1f} s more. The kernel's count of all bytes "
        f"that the process read (`rchar`), including lazily imported modules, was "
        f"{max(run['read'] for run in plain) / MIB:.0f} MiB. The state of the page cache is not controlled: only a "
        "first run with the files on a slow disk waits for the disk.",
        f"A key is bound to its original's whole embedding ({result['embedding'] / MIB:.0f} MiB). Its hash is cached "
        "as long as the file does not change (docs/security.md); it was computed with the key. Without a cached hash "
        f"the first detection took {first['seconds']:.1f} s and read "
        f"{first['model_bytes'] / MIB:.0f} MiB of the original.",
        "Undone on the disguised suspect: " + "; ".join(result["disguised"][0]["undone"]) + ".",
    ]


def _peak(runs: list[dict[str, Any]]) -> str:
    return f"{max(run['peak'] for run in runs) / MIB:.0f} MiB"
