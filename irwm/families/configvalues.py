"""Numbers and switches from a config.json, which is as untrusted as the rest of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any

from irwm.errors import CorruptCheckpointError
from irwm.families.family import Condition, ConfigValue

# The content of a config.json, or of a section in it.
ConfigJson = Mapping[str, Any]

# Vocabularies are the largest counts and stay below a few million; anything above this is an error or an attack.
LARGEST_COUNT = 1 << 24
# Norms use 1e-12 to 1e-5. A disguise that scales the residual stream by c multiplies eps by c²; above this limit, its
# float32 weights would overflow.
LARGEST_EPS = 1e30
# The same disguise multiplies a factor on the embedding by c.
LARGEST_FACTOR = 1e15


@dataclass(frozen=True, slots=True)
class Config:
    """The part of a config that describes the language model, with transformers' defaults behind it.

    A method that returns a number or a switch raises CorruptCheckpointError if the value is of another type, out of
    range or NaN.

    Attributes:
        values: the section that applies: `text_config` of a multimodal model, or the whole config.
        outer: the whole config; it contains a few keys of a multimodal model.
        defaults: transformers' defaults for missing keys.
        spellings: for a key, all names that files use for it; the first stated one is used.
    """

    values: ConfigJson
    outer: ConfigJson
    defaults: Mapping[str, ConfigValue]
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def nested(self) -> bool:
        """Whether the language model's section is only part of the config, as in a multimodal model."""
        return self.values is not self.outer

    def stated(self, key: str) -> Any:
        """The value in the config itself, None if it has none (null counts as none, as in transformers).

        A dot in a key leads into a section: "attn_config.clip_qkv".
        """
        for spelling in self.spellings.get(key, (key,)):
            value: Any = self.values
            for part in spelling.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return value
        return None

    def _value(self, key: str) -> Any:
        value = self.stated(key)
        return self.defaults.get(key) if value is None else value

    def _number(self, key: str, kinds: type | UnionType, fits: Callable[[Any], bool], expected: str) -> Any:
        value = self._value(key)
        # Comparisons are false for NaN and exact for integers of any length, for which float() would fail.
        if isinstance(value, bool) or not isinstance(value, kinds) or not fits(value):
            raise _unusable(key, expected, value)
        return value

    def count(self, key: str) -> int | None:
        """A whole number from 1 to LARGEST_COUNT, or None if neither config nor defaults have one."""
        if self._value(key) is None:
            return None
        expected = f"a whole number from 1 to {LARGEST_COUNT}"
        return int(self._number(key, int, lambda value: 1 <= value <= LARGEST_COUNT, expected))

    def index(self, key: str) -> int:
        """A whole number from 0 to LARGEST_COUNT, which config or defaults must have."""
        expected = f"a whole number from 0 to {LARGEST_COUNT}"
        return int(self._number(key, int, lambda value: 0 <= value <= LARGEST_COUNT, expected))

    def factor(self, key: str) -> float | None:
        """A number above 0 and below LARGEST_FACTOR, or None if neither config nor defaults have one."""
        if self._value(key) is None:
            return None
        expected = f"a number above 0 and below {LARGEST_FACTOR:g}"
        return float(self._number(key, int | float, lambda value: 0 < value < LARGEST_FACTOR, expected))

    def eps(self, key: str) -> float:
        """A norm's eps, from 0 to below LARGEST_EPS, which config or defaults must have."""
        expected = f"a number no less than 0 and below {LARGEST_EPS:g}"
        return float(self._number(key, int | float, lambda value: 0 <= value < LARGEST_EPS, expected))

    def switch(self, key: str) -> bool:
        """True or false; false if neither config nor defaults have it."""
        value = self._value(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise _unusable(key, "true or false", value)
        return value

    def condition(self, key: str, wanted: Condition) -> Condition:
        """The value of a key that a variant depends on, of the requested type: "stated" or false, or a switch."""
        if wanted == "stated":
            return "stated" if self._value(key) is not None else False
        return self.switch(key)

    def tie(self, *, head_stored: bool) -> bool | None:
        """`tie_word_embeddings` as stated, None if missing.

        A multimodal model's config may have different values in the language model's section and outside of it, and
        whether transformers reads the section depends on the model type. Then the files decide: a tied head is not
        stored.

        Args:
            head_stored: the files hold an output head.
        """
        stated = [v for part in (self.values, self.outer) if (v := part.get("tie_word_embeddings")) is not None]
        for value in stated:
            if not isinstance(value, bool):
                raise _unusable("tie_word_embeddings", "true or false", value)
        if len(set(stated)) == 2:
            return not head_stored
        return stated[0] if stated else None

    def dtype(self) -> str | None:
        """The dtype to run the model in, under either of transformers' names for the key."""
        for section in (self.values, self.outer):
            for key in ("dtype", "torch_dtype"):
                value = section.get(key)
                if isinstance(value, str):
                    return value
        return None


def shown(value: object) -> str:
    """A config value for a message. Only scalars are printed: repr of a deep list recurses, and of a long int fails."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a {value.bit_length()}-bit number"
    if value is None or isinstance(value, (str, int, float)):
        return repr(value)
    return f"a {type(value).__name__}"


def _unusable(key: str, expected: str, value: object) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"the value of {key} in the config cannot be used",
        file="config.json",
        expected=expected,
        found=shown(value),
        advice="Compare config.json with that of the published model",
    )
