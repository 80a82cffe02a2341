"""Editing a state: tensors are replaced only here and never changed in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from irwm.attacks.equivalence.state import State
from irwm.errors import ParameterError
from irwm.families.schema import TensorRef

Change = Callable[[torch.Tensor], torch.Tensor]


class Draft:
    """A working copy of a state's dictionaries; the tensors themselves are shared until they are replaced."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.config = dict(state.config)
        self.tensors = dict(state.tensors)
        self.dtypes = dict(state.dtypes)

    def read(self, ref: TensorRef | str) -> torch.Tensor:
        """The tensor, or the rows of it that `ref` names; a matrix that is stored (in, out) comes as (out, in)."""
        if isinstance(ref, str):
            return self.tensors[ref]
        whole = self._turned(ref, self.tensors[ref.name])
        return whole if ref.rows is None else whole[slice(*ref.rows)]

    def write(self, ref: TensorRef | str, value: torch.Tensor) -> None:
        """Replaces the tensor that `read` returns, if need be by one with other rows."""
        if isinstance(ref, str):
            self.tensors[ref] = value
            return
        if ref.rows is not None:
            whole = self._turned(ref, self.tensors[ref.name])
            value = torch.cat([whole[: ref.rows[0]], value.to(whole.dtype), whole[ref.rows[1] :]])
        self.tensors[ref.name] = self._turned(ref, value)

    def _turned(self, ref: TensorRef, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.T if ref.transposed else tensor

    def change(self, refs: Iterable[TensorRef | str], change: Change) -> None:
        """Passes each tensor through `change`."""
        for ref in refs:
            self.write(ref, change(self.read(ref)))

    def add(self, name: str, value: torch.Tensor, like: str) -> None:
        """A new tensor, stored in the number format of `like`."""
        self.tensors[name] = value
        self.dtypes[name] = self.dtypes[like]

    def done(self) -> State:
        """The state as edited."""
        return replace(self._state, config=self.config, tensors=self.tensors, dtypes=self.dtypes)


def require_at_least_one(what: str, value: float) -> None:
    """Raises ParameterError if a spread, or a bound on a condition number, is below 1 or not finite."""
    if not 1 <= value < math.inf:
        raise ParameterError(f"{what} is out of range", expected="1 or more", found=str(value))


def require_share(what: str, value: float) -> None:
    """Raises ParameterError if a share is not a positive number."""
    if not 0 < value < math.inf:
        raise ParameterError(f"{what} is out of range", expected="above 0", found=str(value))


def generator(seed: int) -> torch.Generator:
    """A random generator that depends only on the seed."""
    return torch.Generator().manual_seed(seed)


def log_uniform(size: int, spread: float, source: torch.Generator) -> torch.Tensor:
    """Positive float64 factors (size,) between 1 / spread and spread, uniform in the logarithm."""
    uniform = torch.rand(size, generator=source, dtype=torch.float64)
    return torch.exp((2 * uniform - 1) * math.log(spread))


def orthogonal(size: int, source: torch.Generator) -> torch.Tensor:
    """A random orthogonal float64 matrix (size, size), uniform by Haar measure."""
    q, r = torch.linalg.qr(torch.randn(size, size, generator=source, dtype=torch.float64))
    # QR alone prefers some matrices; fixing the signs of R's diagonal makes the draw uniform (Mezzadri 2007).
    drawn: torch.Tensor = q * r.diagonal().sign()
    return drawn


def invertible(size: int, condition: float, source: torch.Generator) -> torch.Tensor:
    """A random dense float64 matrix (size, size) whose condition number is at most `condition`."""
    spread = log_uniform(size, math.sqrt(condition), source)
    return orthogonal(size, source) * spread @ orthogonal(size, source)
