"""Ownership (the paper's "Multiple Claims"): commitments and their dates, what a search could forge, disputes.

commitment   the public document of a key
timestamp    an authority's signed date of a document (RFC 3161);  cms, its structures and its signature
key_search   how far a search for a key could have forged the evidence
dispute      the tests of two or more claims;  rules, who of two claimants can show what
"""

from __future__ import annotations

from irwm.ownership.commitment import Commitment, CommitmentError
from irwm.ownership.dispute import Claim, Outcome, Test, decide, resolve
from irwm.ownership.key_search import Standing, standing
from irwm.ownership.rules import Ruling
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
