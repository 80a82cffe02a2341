"""Invariant-based robust weights watermark for language models.

The folder tree is the paper: `invariant` (Algorithm 1), `keys` and `derivation`, `condition`, `values` and
`insertion` (Algorithm 2), `alignment` (Permutation_Recover, and rotations and moved rows beyond it), `statistic` and
`detection` (Algorithm 3), `basis`, `noise` and `embedding_bytes` (Algorithms 4 and 5), `tracing` (who leaked a copy,
beyond Algorithm 6), `probability` (equations 1 to 3); `attention`, `lineage`, `finding` and `verdict` say what a
detection means. `checkpoint` opens and publishes files, `families` knows where each model family keeps its weights,
`attacks` are what a thief would do, `attacks.equivalence` without changing what the model computes.

Everything here is pure: no pages, no database, no clock, no global random state.

What is offered here is imported when it is first used: a process that only opens a vault needs neither torch nor the
seconds and the memory that it takes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irwm import attacks
    from irwm.alignment import Alignment, align
    from irwm.checkpoint import Checkpoint, open_checkpoint
    from irwm.errors import IrwmError
    from irwm.evidence.detection import detect, detect_each
    from irwm.evidence.finding import Finding, Reading
    from irwm.evidence.lineage import Lineage
    from irwm.keys.key import Key, decoy_key, generate_key
    from irwm.release.insertion import Release, insert
    from irwm.release.manifest import Manifest
    from irwm.scheme.odds import random_user_probability, success_probability, wrong_user_probability
    from irwm.scheme.parameters import Parameters, many_recipients
    from irwm.tracing.result import Trace, Tracing
    from irwm.tracing.trace import trace

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "Checkpoint",
    "Finding",
    "IrwmError",
    "Key",
    "Lineage",
    "Manifest",
    "Parameters",
    "Reading",
    "Release",
    "Trace",
    "Tracing",
    "align",
    "attacks",
    "decoy_key",
    "detect",
    "detect_each",
    "generate_key",
    "insert",
    "many_recipients",
    "open_checkpoint",
    "random_user_probability",
    "success_probability",
    "trace",
    "wrong_user_probability",
]

# Where each of them lives.
_HOMES = {
    "Alignment": "alignment",
    "Checkpoint": "checkpoint",
    "Finding": "evidence.finding",
    "IrwmError": "errors",
    "Key": "keys.key",
    "Lineage": "evidence.lineage",
    "Manifest": "release.manifest",
    "Parameters": "scheme.parameters",
    "Reading": "evidence.finding",
    "Release": "release.insertion",
    "Trace": "tracing",
    "Tracing": "tracing",
    "align": "alignment",
    "decoy_key": "keys.key",
    "detect": "evidence.detection",
    "detect_each": "evidence.detection",
    "generate_key": "keys.key",
    "insert": "release.insertion",
    "many_recipients": "scheme.parameters",
    "open_checkpoint": "checkpoint",
    "random_user_probability": "scheme.odds",
    "success_probability": "scheme.odds",
    "trace": "tracing",
    "wrong_user_probability": "scheme.odds",
}


def __getattr__(name: str) -> Any:
    """A public name, or a module of this package."""
    if name in _HOMES:
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        try:
            found = import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":  # the module is there and lacks something else
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
