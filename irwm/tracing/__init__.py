"""Tracing by noise: the recipients from whose copies a leaked model was made, even if several copies were mixed.

Algorithm 6 recognises a user by the mark (`irwm.evidence.detect_each`). This goes further: the noise that hides a mark
(Algorithm 4) is itself a fingerprint of hundreds of thousands of numbers, spread over the whole embedding.

    recipients   from sums of signs (`irwm.evidence.fingerprint`) to names, with bounded odds of a wrong name
    result       the results of a tracing
"""

from irwm.tracing.recipients import RISK, trace, trace_each
from irwm.tracing.result import Trace, Tracing

__all__ = ["RISK", "Trace", "Tracing", "trace", "trace_each"]
