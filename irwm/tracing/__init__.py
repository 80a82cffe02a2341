"""Tracing by noise: which recipients' copies a leaked model was made from, however many conspired.

The noise that hides a mark (Algorithm 4) is itself a fingerprint spread over the whole embedding, and adds up over
hundreds of thousands of numbers. `differences` reads what the suspect differs from the original by, in the release's
basis; `scores` sums the sign pattern of each recipient over it; `trace` turns sums into names and error rates.
"""

from irwm.tracing.result import Trace, Tracing
from irwm.tracing.trace import trace, trace_each

__all__ = ["Trace", "Tracing", "trace", "trace_each"]
