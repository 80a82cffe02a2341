"""Ownership (the paper's "Multiple Claims"): commitments and their dates, evidence forged by a search, disputes.

commitment   the public document of a key
timestamp    an authority's signed date of a document (RFC 3161);  cms, its structures and its signature
key_search   how much of the evidence a search for a key could have forged
dispute      the tests of two or more claims;  rules, the ruling between two claimants
"""

from __future__ import annotations

from irwm.ownership.commitment import Commitment, CommitmentError
from irwm.ownership.dispute import Claim, Outcome, decide, resolve
from irwm.ownership.key_search import standing
from irwm.ownership.timestamp import Timestamp, TimestampError, read_response, request

__all__ = [
    "Claim",
    "Commitment",
    "CommitmentError",
    "Outcome",
    "Timestamp",
    "TimestampError",
    "decide",
    "read_response",
    "request",
    "resolve",
    "standing",
]
