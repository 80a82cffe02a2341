"""Invariant-based robust weights watermark for language models.

The subpackages, from the lowest layer up; each imports only those above it in this list:

    errors       one tree of errors
    canonical    JSON that is hashed or signed
    signing      signatures of a vault's identity, and the hash chain of its audit log
    families     where each model family keeps its weights
    checkpoint   opens files
    inference    runs models, to measure what a mark or an attack costs
    scheme       the paper: invariant (Algorithm 1), condition and solution (Algorithm 2), statistic (Algorithm 3),
                 noise and basis (Algorithm 4), probabilities (equations 1 to 3), and how choices follow from a secret
    keys         a key, and the check that it belongs to its original
    alignment    brings a suspect back into the original's coordinates (Permutation_Recover, rotations, moved rows)
    evidence     detection (Algorithm 3), lineage, verdict, and how strong the evidence is
    tracing      identifies who leaked a copy (beyond Algorithm 6)
    answers      detection and tracing from text and log-probabilities, without the suspect's weights
    ownership    commitments, timestamps and disputes
    explore      the effect and the cost of a setting, before anything is written
    release      insertion (Algorithms 2 and 5) and publishing
    attacks      what an attacker would do; `attacks.equivalence` without changing what the model computes
    report       the finding as a signed document, its rendering, and its verifier; built on the public API

Everything here is pure: no pages, no database, no clock, no global random state.

Public names are imported on first use: a process that only opens a vault does not spend the time and memory that torch
needs. Type checkers read the imports below, and at runtime `__getattr__` finds the module of a name in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irwm.lazy import imported_on_use

if TYPE_CHECKING:
    from irwm import attacks as attacks
    from irwm.alignment import Alignment as Alignment
    from irwm.alignment import align as align
    from irwm.answers.answers import Answers as Answers
    from irwm.answers.prompts import ChosenPrompts as ChosenPrompts
    from irwm.answers.prompts import choose_prompts as choose_prompts
    from irwm.answers.recorded_responses import read_responses as read_responses
    from irwm.answers.responses import answers_from_responses as answers_from_responses
    from irwm.answers.tracing import detect_answers as detect_answers
    from irwm.answers.tracing import trace_answers as trace_answers
    from irwm.checkpoint import Checkpoint as Checkpoint
    from irwm.checkpoint import open_checkpoint as open_checkpoint
    from irwm.checkpoint.candidates import find_checkpoints as find_checkpoints
    from irwm.checkpoint.recorded import RecordedAnswers as RecordedAnswers
    from irwm.checkpoint.recorded import read_answers as read_answers
    from irwm.checkpoint.served_model import suspect_from_answers as suspect_from_answers
    from irwm.checkpoint.suspects import open_suspect as open_suspect
    from irwm.errors import IrwmError as IrwmError
    from irwm.evidence.descent import Branch as Branch
    from irwm.evidence.descent import Descent as Descent
    from irwm.evidence.descent import map_descent as map_descent
    from irwm.evidence.detection import detect as detect
    from irwm.evidence.detection import detect_each as detect_each
    from irwm.evidence.examination import Examination as Examination
    from irwm.evidence.finding import Finding as Finding
    from irwm.evidence.finding import Reading as Reading
    from irwm.evidence.lineage import Lineage as Lineage
    from irwm.evidence.originals import Comparison as Comparison
    from irwm.evidence.originals import compare_originals as compare_originals
    from irwm.keys.key import Key as Key
    from irwm.keys.key import decoy_key as decoy_key
    from irwm.keys.key import generate_key as generate_key
    from irwm.release.insertion import Release as Release
    from irwm.release.insertion import insert as insert
    from irwm.release.manifest import Manifest as Manifest
    from irwm.scheme.parameters import Parameters as Parameters
    from irwm.scheme.parameters import many_recipients as many_recipients
    from irwm.scheme.parameters import one_owner as one_owner
    from irwm.scheme.probabilities import random_user_probability as random_user_probability
    from irwm.scheme.probabilities import success_probability as success_probability
    from irwm.scheme.probabilities import wrong_user_probability as wrong_user_probability
    from irwm.tracing.recipients import trace as trace
    from irwm.tracing.result import Trace as Trace
    from irwm.tracing.result import Tracing as Tracing

__version__ = "0.1.0"

__getattr__, __dir__ = imported_on_use(__name__)
