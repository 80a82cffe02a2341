"""Tracing by noise: which recipients' copies a leaked model was made from, however many of them were mixed.

Algorithm 6 recognises a user by the mark (`irwm.evidence.detect_each`). This goes further: the noise that hides a mark
(Algorithm 4) is itself a fingerprint of hundreds of thousands of numbers, spread over the whole embedding.

    recognition   from sums of signs (`irwm.evidence.fingerprint`) to names, with bounded odds of a wrong one
    result        what a tracing found
"""

from irwm.tracing.recognition import trace, trace_each
from irwm.tracing.result import Trace, Tracing

__all__ = ["Trace", "Tracing", "trace", "trace_each"]
