"""Fixtures of the release tests: the same models as in the checkpoint tests."""

from tests.checkpoint.conftest import folder, model, public_folder, sharded

__all__ = ["folder", "model", "public_folder", "sharded"]
