"""Invariant-based robust weights watermark for language models.

The subpackages, from the lowest layer up; each imports only those above it in this list:

    errors       one tree of errors
    canonical    JSON that is hashed or signed
    signing      signatures of a vault's identity, and the hash chain of its audit log
    families     where each model family keeps its weights
    checkpoint   opens files
    running      runs models, to measure what a mark or an attack costs
    scheme       the paper: invariant (Algorithm 1), condition and solution (Algorithm 2), statistic (Algorithm 3),
                 noise and basis (Algorithm 4), probabilities (equations 1 to 3), and how choices follow from a secret
    keys         a key, and the check that it belongs to its original
    alignment    brings a suspect back into the original's coordinates (Permutation_Recover, rotations, moved rows)
    evidence     detection (Algorithm 3), lineage, verdict, and how strong the evidence is
    tracing      identifies who leaked a copy (beyond Algorithm 6)
    ownership    commitments, time-stamps and disputes
    explore      the effect and the cost of a setting, before anything is written
    release      insertion (Algorithms 2 and 5) and publishing
    attacks      what an attacker would do; `attacks.equivalence` without changing what the model computes
    report       the finding as a signed document, its rendering, and its verifier; built on the public API

Everything here is pure: no pages, no database, no clock, no global random state.

Public names are imported on first use: a process that only opens a vault does not spend the time and memory that torch
needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irwm import attacks
    from irwm.alignment import Alignment, align
    from irwm.checkpoint import Checkpoint, open_checkpoint
    from irwm.checkpoint.answers import suspect_from_answers
    from irwm.checkpoint.candidates import find_checkpoints
    from irwm.checkpoint.recorded import Answers, read_answers
    from irwm.checkpoint.suspects import open_suspect
    from irwm.errors import IrwmError
    from irwm.evidence.detection import detect, detect_each
    from irwm.evidence.examination import Examination
    from irwm.evidence.finding import Finding, Reading
    from irwm.evidence.lineage import Lineage
    from irwm.keys.key import Key, decoy_key, generate_key
    from irwm.release.insertion import Release, insert
    from irwm.release.manifest import Manifest
    from irwm.scheme.parameters import Parameters, many_recipients, one_owner
    from irwm.scheme.probabilities import random_user_probability, success_probability, wrong_user_probability
    from irwm.tracing.recognition import trace
    from irwm.tracing.result import Trace, Tracing

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "Answers",
    "Checkpoint",
    "Examination",
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
    "find_checkpoints",
    "generate_key",
    "insert",
    "many_recipients",
    "one_owner",
    "open_checkpoint",
    "open_suspect",
    "random_user_probability",
    "read_answers",
    "success_probability",
    "suspect_from_answers",
    "trace",
    "wrong_user_probability",
]

# The module that defines each public name.
_HOMES = {
    "Alignment": "alignment",
    "Answers": "checkpoint.recorded",
    "Checkpoint": "checkpoint",
    "Examination": "evidence.examination",
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
    "find_checkpoints": "checkpoint.candidates",
    "generate_key": "keys.key",
    "insert": "release.insertion",
    "many_recipients": "scheme.parameters",
    "one_owner": "scheme.parameters",
    "open_checkpoint": "checkpoint",
    "open_suspect": "checkpoint.suspects",
    "random_user_probability": "scheme.probabilities",
    "read_answers": "checkpoint.recorded",
    "success_probability": "scheme.probabilities",
    "suspect_from_answers": "checkpoint.answers",
    "trace": "tracing",
    "wrong_user_probability": "scheme.probabilities",
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
            if error.name != f"{__name__}.{name}":  # the module exists, but one of its imports failed
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
