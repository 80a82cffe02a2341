"""Fixtures of the tests of pages and server, which other folders import from the same module."""

from tools.running_app import chromium, running_app, visit

__all__ = ["chromium", "running_app", "visit"]
