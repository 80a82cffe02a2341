"""Ownership (the paper's "Multiple Claims"): commitments and their dates, what a search could forge, disputes."""

from __future__ import annotations

from irwm.ownership.commitment import Commitment, CommitmentError
from irwm.ownership.dispute import Claim, Outcome, Test, decide, resolve
from irwm.ownership.rules import Ruling
from irwm.ownership.search import Standing, standing
from irwm.ownership.timestamp import Timestamp, TimestampError, read_response, request

__all__ = [
    "Claim",
    "Commitment",
    "CommitmentError",
    "Outcome",
    "Ruling",
    "Standing",
    "Test",
    "Timestamp",
    "TimestampError",
    "decide",
    "read_response",
    "request",
    "resolve",
    "standing",
]
