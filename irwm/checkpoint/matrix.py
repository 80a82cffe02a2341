"""A matrix of which rows can be read: an embedding, an output head, or the rows of some MLPs."""

from __future__ import annotations

from typing import Protocol

import torch

from irwm.checkpoint.rows import Rows


class Matrix(Protocol):
    """What reading a fingerprint needs of a `Checkpoint`, whose matrix is its embedding."""

    @property
    def vocab_size(self) -> int:
        """The number of rows."""

    @property
    def hidden_size(self) -> int:
        """The number of columns."""

    def __hash__(self) -> int:
        """Equal only to itself."""

    def embedding(self, rows: Rows = None) -> torch.Tensor:
        """(n, hidden_size) float32 rows; None for all."""
