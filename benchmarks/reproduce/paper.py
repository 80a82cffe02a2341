"""The paper's numbers: arXiv 2507.08288, section 5 and appendix D, copied from its tables. Its figures are blank in the
source.

Model names are the paper's.
"""

from __future__ import annotations

from statistics import fmean

MODELS = ("Gemma-2B", "Phi3-4B", "Llama3-8B")
LENGTHS = (5, 10, 15, 20)

# Table 1: whether methods serve one owner and many recipients, and which attacks they resist, in the columns Sin.,
# Mul., FT, Prun., Quan., Perm., Scal., Revers., Col.
OURS = "Ours"
RESISTS = {
    "EmMark": (True, True, True, False, True, False, False, False, False),
    "Fernandez": (True, True, True, True, True, False, True, True, False),
    OURS: (True,) * 9,
}

# Section 5.3, computed with equations 1 to 3.
WORKED = (
    ("survival .8, l = 50, ρ = 30, β = .2", 0.9996, 0.00007),
    ("survival .7, l = 50, ρ = 28, β = .2", 0.9877, 0.002),
)

# Table "Watermark detection results with fine-tuning": (model, t) -> samples -> single and multi, each 1, 10, 20 %.
# Each model has two blocks of rows without a t; the text names 10 and 20, in this order.
FINE_TUNING: dict[tuple[str, int], dict[str, tuple[int, int, int, int, int, int]]] = {
    ("Gemma-2B", 10): {
        "10k": (94, 96, 100, 100, 94, 100),
        "50k": (88, 92, 96, 100, 88, 94),
        "100k": (48, 74, 78, 22, 66, 76),
    },
    ("Gemma-2B", 20): {
        "10k": (88, 100, 100, 60, 64, 64),
        "50k": (60, 80, 92, 60, 72, 76),
        "100k": (40, 72, 76, 66, 72, 82),
    },
    ("Phi3-4B", 10): {
        "10k": (100, 100, 100, 100, 100, 100),
        "50k": (100, 100, 100, 100, 100, 100),
        "100k": (100, 100, 100, 100, 100, 100),
    },
    ("Phi3-4B", 20): {
        "10k": (100, 100, 100, 100, 100, 100),
        "50k": (100, 100, 100, 100, 100, 100),
        "100k": (44, 78, 84, 28, 60, 80),
    },
    ("Llama3-8B", 10): {
        "10k": (100, 100, 100, 100, 100, 100),
        "50k": (100, 100, 100, 100, 100, 100),
        "100k": (90, 90, 100, 88, 94, 100),
    },
    ("Llama3-8B", 20): {
        "10k": (100, 100, 100, 100, 100, 100),
        "50k": (100, 100, 100, 100, 100, 100),
        "100k": (58, 58, 76, 68, 78, 82),
    },
}

# Tables 3 to 5, accuracy in %: vanilla, then single t = 5, 10, 15, 20, then multi t = 5, 10, 15, 20.
BENCHMARKS = ("ceval", "mmlu", "WiC", "WSC", "COPA", "CB", "BoolQ", "piqa", "MultiRC", "hellaswag")
FIDELITY: dict[str, tuple[tuple[float, ...], ...]] = {
    "Llama3-8B": (
        (52.23, 52.23, 52.23, 52.23, 52.23, 52.71, 51.9, 51.8, 52.41),
        (68.27, 68.27, 68.27, 68.25, 68.25, 68.32, 68.17, 68.08, 68.24),
        (36.83, 37.15, 37.15, 37.15, 37.15, 39.5, 38.09, 37.3, 38.24),
        (23.08, 23.08, 23.08, 23.08, 23.08, 25.96, 23.08, 24.04, 24.04),
        (93, 93, 93, 93, 93, 94, 94, 96, 94),
        (62.5, 62.5, 62.5, 62.5, 62.5, 60.71, 60.71, 62.5, 58.93),
        (84.37, 84.34, 84.34, 84.34, 84.34, 84.1, 84.46, 84.04, 84.25),
        (78.4, 78.35, 78.35, 78.35, 78.35, 78.07, 78.4, 78.24, 78.67),
        (81.75, 81.68, 81.64, 81.66, 81.66, 82.22, 81.77, 81.64, 81.42),
        (75.17, 75.21, 75.2, 75.2, 75.2, 75, 75.35, 75.23, 75.35),
    ),
    "Phi3-4B": (
        (41.39, 41.65, 41.65, 41.65, 41.74, 42.01, 41.54, 41.88, 41.88),
        (69.44, 70.47, 70.42, 70.49, 70.49, 70.57, 70.52, 70.43, 70.43),
        (60.66, 65.20, 65.20, 65.20, 65.20, 65.20, 65.05, 65.52, 65.52),
        (62.50, 65.38, 65.38, 65.38, 65.38, 65.38, 64.42, 65.38, 65.38),
        (97.00, 98.00, 98.00, 98.00, 98.00, 97.00, 98.00, 98.00, 98.00),
        (66.07, 71.43, 71.43, 71.43, 71.43, 67.86, 71.43, 71.43, 73.21),
        (85.35, 84.77, 84.77, 84.77, 84.77, 84.74, 84.77, 84.77, 84.86),
        (79.00, 83.46, 83.51, 83.46, 83.51, 83.35, 83.35, 83.19, 83.19),
        (83.11, 77.39, 77.33, 77.33, 77.31, 77.27, 77.43, 77.62, 77.62),
        (77.79, 79.41, 79.42, 79.42, 79.42, 79.24, 79.31, 79.39, 79.39),
    ),
    "Gemma-2B": (
        (31.97, 31.97, 31.97, 31.97, 31.97, 33.98, 30.17, 30.79, 30.79),
        (35.25, 35.25, 35.25, 35.24, 35.24, 34.76, 33.79, 34.99, 34.99),
        (0.31, 0.31, 0.31, 0.31, 0.31, 0.00, 20.38, 0.16, 0.16),
        (0.96, 0.96, 0.96, 0.96, 0.96, 0.00, 28.85, 0.96, 0.96),
        (80.00, 80.00, 80.00, 80.00, 80.00, 79.00, 77.00, 75.00, 75.00),
        (42.86, 42.86, 42.86, 42.86, 42.86, 39.29, 39.29, 39.29, 42.86),
        (4.95, 4.95, 4.95, 4.95, 4.95, 0.21, 10.52, 5.75, 5.75),
        (57.62, 57.62, 57.62, 57.62, 57.62, 57.02, 56.15, 56.20, 56.20),
        (38.72, 38.72, 38.72, 38.72, 38.72, 38.59, 38.30, 37.97, 37.97),
        (36.67, 36.67, 36.67, 36.67, 36.67, 35.98, 33.88, 35.71, 35.71),
    ),
}
# The means that the paper prints. Some are not the means of its columns.
PRINTED_MEANS: dict[str, tuple[float, ...]] = {
    "Llama3-8B": (65.56, 65.581, 65.576, 65.576, 65.578, 66.059, 65.593, 65.887, 65.555),
    "Phi3-4B": (72.23, 73.72, 73.71, 73.71, 73.72, 73.37, 73.62, 73.58, 73.95),
    "Gemma-2B": (32.93, 32.93, 32.93, 32.93, 32.93, 35.25, 31.91, 36.83, 32.04),
}


def differences(model: str) -> tuple[float, float]:
    """Return the least and greatest difference, in points, of a marked model's benchmarks from its original's."""
    apart = [marked - vanilla for vanilla, *all_marked in FIDELITY[model] for marked in all_marked]
    return min(apart), max(apart)


def falling() -> list[str]:
    """Return rows of the fine-tuning table with impossible shares: those in the top 1, 10 and 20 % can only grow."""
    return [
        f"{model}, t = {t}, {samples} samples, {mode}: {' / '.join(f'{share} %' for share in part)}"
        for (model, t), by in FINE_TUNING.items()
        for samples, shares in by.items()
        for mode, part in (("single", shares[:3]), ("multi", shares[3:]))
        if list(part) != sorted(part)
    ]


def means(model: str) -> list[float]:
    """Return the mean over the ten benchmarks of each column, computed from the table."""
    return [fmean(column) for column in zip(*FIDELITY[model], strict=True)]
