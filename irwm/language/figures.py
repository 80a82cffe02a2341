"""The text of a figure in another language: titles, labels, notes and what is shown under the pointer."""

from __future__ import annotations

from typing import Any

from irwm.language.catalogue import Catalogue
from irwm.language.markup import translated

# Names in plotly's JSON whose values are texts, or lists of texts; x and y are so where an axis has categories.
_TEXTS = frozenset(
    ("text", "name", "hovertext", "hovertemplate", "ticktext", "title", "x", "y", "categoryarray", "legendgroup")
)


def translated_figure(figure: Any, catalogue: Catalogue) -> Any:
    """Plotly's JSON of a figure with its texts in the catalogue's language."""
    return _value(figure, "", catalogue) if catalogue else figure


def _value(value: Any, name: str, catalogue: Catalogue) -> Any:
    if isinstance(value, dict):
        return {key: _value(each, key, catalogue) for key, each in value.items()}
    if isinstance(value, list):
        return [_value(each, name, catalogue) for each in value]
    return translated(value, catalogue) if isinstance(value, str) and name in _TEXTS else value
