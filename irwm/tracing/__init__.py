"""Tracing by noise: which recipients' copies a leaked model was made from, however many of them were mixed.

Algorithm 6 recognises a user by the mark (`irwm.evidence.detect_each`). This goes further: the noise that hides a mark
(Algorithm 4) is itself a fingerprint of hundreds of thousands of numbers, spread over the whole embedding.

    differences   how the suspect differs from the original, in the release's basis
    scores        the sum of each recipient's sign pattern over the differences
    recognition   from sums to names, with bounded odds of naming anybody wrongly
    result        what a tracing found
"""

from irwm.tracing.recognition import trace, trace_each
from irwm.tracing.result import Trace, Tracing

__all__ = ["Trace", "Tracing", "trace", "trace_each"]
