"""Transforms: pure functions on a `State`, with the conditions under which they preserve the model's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Concatenate, Generic, ParamSpec

from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.structure import Structure, structure_of
from irwm.errors import CheckpointError, NotApplicableError

P = ParamSpec("P")
# The reason why a transform would change the model's function, None if it would not.
Condition = Callable[[State, Structure], str | None]


class Transform(Generic[P]):
    """A transform; call it with a state and its options.

    Raises on a call:
        NotApplicableError: it would change this model's function, or the model's structure is not known.
        ParameterError: an option out of its range.
    """

    def __init__(
        self, run: Callable[Concatenate[State, P], State], conditions: tuple[Condition, ...], structural: bool
    ) -> None:
        self.name = run.__name__
        self.__doc__ = run.__doc__
        self._run = run
        self._conditions = conditions
        self._structural = structural

    def __call__(self, state: State, *args: P.args, **kwargs: P.kwargs) -> State:
        reason = self.obstacle(state)
        if reason is not None:
            raise NotApplicableError(
                f"{self.name} does not apply to this model: {reason}", advice="Choose another transform"
            )
        return self._run(state, *args, **kwargs)

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """Its parameters other than the state, by name."""
        _state, *options = inspect.signature(self._run).parameters.values()
        return {option.name: option for option in options}

    @property
    def takes_seed(self) -> bool:
        """Whether it draws random numbers."""
        return "seed" in self.options

    def obstacle(self, state: State) -> str | None:
        """Why it cannot run on this model; None if it can. Looks only at config, names and shapes."""
        if not self._structural:
            return None
        try:
            structure = structure_of(state)
        except (NotApplicableError, CheckpointError) as error:
            return str(error).rstrip(".")
        return next((reason for condition in self._conditions if (reason := condition(state, structure))), None)


def transform(*conditions: Condition) -> Callable[[Callable[Concatenate[State, P], State]], Transform[P]]:
    """Makes a transform from a function that works on a model of known structure under `conditions`."""
    return lambda run: Transform(run, conditions, structural=True)


def on_any_model(run: Callable[Concatenate[State, P], State]) -> Transform[P]:
    """Makes a transform from a function that does not depend on the tensors' roles."""
    return Transform(run, (), structural=False)


def rms_norms(_state: State, structure: Structure) -> str | None:
    """The stream passes only through RMS norms."""
    return None if structure.norm.kind == "rms" else "the model's LayerNorms subtract the mean over the coordinates"


def free_gains(_state: State, structure: Structure) -> str | None:
    """The norms' gains are in front of the stream's readers, and not on the stream itself."""
    if not structure.post_norm_stream:
        return None
    return "the model's norms, with their gains, are applied to the residual stream itself"


def layer_norm(_state: State, structure: Structure) -> str | None:
    """All readers of the tables read them through a LayerNorm, which subtracts the mean."""
    return None if structure.norm.kind == "layer" else "the model's embedding does not go through a LayerNorm"


def positions(_state: State, structure: Structure) -> str | None:
    """A row of another table is added to each token's row."""
    return None if len(structure.tables) > 1 else "no position table is added to the model's embedding"


def no_post_norms(_state: State, structure: Structure) -> str | None:
    """The outputs that layers add to the stream do not go through a norm with a gain."""
    if not structure.post_norms:
        return None
    return "norms with gains lie between the layers' outputs and the residual stream, and cannot be folded"


def no_head_norms(_state: State, structure: Structure) -> str | None:
    """Queries and keys reach the score as projected."""
    return "the model's queries and keys are normalised per head" if structure.head_norms else None


def no_rotary(_state: State, structure: Structure) -> str | None:
    """A key depends on its position only through the embedding."""
    return "the model's keys are rotated by position" if structure.rotary_dim else None
