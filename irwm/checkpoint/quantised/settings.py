"""A config's settings for quantisation, under the keys that tools use; untrusted like the rest of the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from irwm.errors import CorruptCheckpointError
from irwm.families.configvalues import LARGEST_COUNT, ConfigJson, shown
from irwm.families.identification import language_sections

# The keys of transformers, of MLX, and of early compressed-tensors.
_KEYS = ("quantization_config", "quantization", "compression_config")
# Before transformers named the method, bitsandbytes was identified by these switches.
_SWITCHES = ("load_in_8bit", "load_in_4bit")
MOST_BITS = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """The sections of a config about quantisation.

    A method that returns numbers raises CorruptCheckpointError if the config states invalid values.

    Attributes:
        sections: most specific first; () if the config has none.
        file: the config, for messages.
    """

    sections: tuple[ConfigJson, ...]
    file: Path

    def get(self, key: str) -> Any:
        """The first value stated for a key, else None."""
        return next((section[key] for section in self.sections if section.get(key) is not None), None)

    @property
    def method(self) -> str:
        """The method's name in lower case as the config gives it; "" if it names none."""
        method = self.text("quant_method")
        if method:
            return method
        if any(self.get(switch) is True for switch in _SWITCHES):
            return "bitsandbytes"
        return "mlx" if self.get("bits") is not None and self.get("group_size") is not None else ""

    def text(self, key: str) -> str:
        """The text stated for a key, in lower case; else ""."""
        value = self.get(key)
        return value.lower() if isinstance(value, str) else ""

    def within(self, name: str) -> Settings:
        """These settings, preceded by those that the config states for the layer of the weight `name`.

        MLX states them next to the settings for all layers, AutoRound in a separate section. AutoRound may also name
        layers by regular expressions, which are not followed: a hostile one could run forever.
        """
        extra = self.get("extra_config")
        layer = name.removesuffix(".weight")
        own = [self.get(layer), extra.get(layer) if isinstance(extra, Mapping) else None]
        own = [section for section in own if isinstance(section, Mapping)]
        return Settings((*own, *self.sections), self.file) if own else self

    def bits(self) -> int | None:
        """Bits of a code, from 1 to 8; None if not stated."""
        return self._count("bits", MOST_BITS)

    def group_size(self) -> int | None:
        """Columns that share a scale, above 0; None if not stated, or stated as "all of a row" (-1)."""
        return None if self.get("group_size") == -1 else self._count("group_size", LARGEST_COUNT)

    def block(self) -> tuple[int, int] | None:
        """Rows and columns that share a scale, each above 0; None if not stated."""
        value = self.get("weight_block_size")
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(_counts(x, LARGEST_COUNT) for x in value):
            raise self._unusable("weight_block_size", "two whole numbers above 0", value)
        return value[0], value[1]

    def _count(self, key: str, most: int) -> int | None:
        value = self.get(key)
        if value is None or _counts(value, most):
            return value
        raise self._unusable(key, f"a whole number from 1 to {most}", value)

    def _unusable(self, key: str, expected: str, value: object) -> CorruptCheckpointError:
        return CorruptCheckpointError(
            f"The value of {key} in the quantisation config cannot be used",
            file=self.file,
            expected=expected,
            found=shown(value),
            advice="Compare config.json with that of the published model",
        )


def settings_of(config: ConfigJson, file: Path) -> Settings:
    """The settings for quantisation in `config`, or in the section of a multimodal model's language part."""
    found = (section.get(key) for section in language_sections(config) for key in _KEYS)
    return Settings(tuple(value for value in found if isinstance(value, Mapping)), file)


def _counts(value: object, most: int) -> TypeGuard[int]:
    return type(value) is int and 1 <= value <= most
