"""Ownership (the paper's "Multiple Claims"): commitments and their dates, what a search could forge, disputes."""

from __future__ import annotations

from irwm.ownership.search import Standing, standing

__all__ = ["Standing", "standing"]
