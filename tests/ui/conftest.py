"""Fixtures of the tests of pages and server; they live in `serving.py`, so that other folders can import them."""

from tests.ui.serving import chromium, running_app, visit

__all__ = ["chromium", "running_app", "visit"]
