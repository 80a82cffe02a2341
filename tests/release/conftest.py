"""Fixtures of the release tests: the same models that the checkpoint tests open."""

from tests.checkpoint.conftest import folder, model, public_folder, sharded

__all__ = ["folder", "model", "public_folder", "sharded"]
