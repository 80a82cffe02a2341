"""Pages in another language: what Gradio sends to a browser, with the texts of `irwm.language`.

Pages and handlers compose English only. Texts are translated here, on their way out, by the kind of the component that
shows them. What a user types or chooses is never changed: fields keep their values, and lists their choices' values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from irwm.language import Catalogue
from irwm.language.figures import translated_figure
from irwm.language.markup import translated

# Properties that are texts, of every component; a headers list has one text for each column.
_TEXTS = ("label", "info", "placeholder", "headers", "submit_btn", "stop_btn")
# Components whose value is a text of this program.
_SAYING = frozenset(("button", "downloadbutton", "uploadbutton", "label"))

# Columns of names, and values of choices whose texts are names: identifiers and paths.
_NAMES = frozenset(("Recipient", "Owner", "Suspect", "Name", "File", "Folder", "Note", "Key"))
_OF_DATA = re.compile(r"[0-9a-f-]{8,}|.*[/\\].*")


def document_in(config: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Gradio's description of the whole document, a copy."""
    shown = [each | {"props": _properties(each["type"], each["props"], catalogue)} for each in config["components"]]
    return {**config, "title": catalogue.text(config["title"]), "components": shown}


def answers_in(kinds: Sequence[str], answers: Sequence[Any], catalogue: Catalogue) -> list[Any]:
    """A handler's answers, ready for the browser.

    Args:
        kinds: `get_block_name()` of the components that get them.
        answers: values, or updates of properties.
    """
    return [_answer(kind, answer, catalogue) for kind, answer in zip(kinds, answers, strict=True)]


def _answer(kind: str, answer: Any, catalogue: Catalogue) -> Any:
    if isinstance(answer, dict) and answer.get("__type__") == "validate":
        return answer | {"message": catalogue.text(answer.get("message") or "")}
    if isinstance(answer, dict) and answer.get("__type__") == "update":
        return _properties(kind, answer, catalogue)
    return _value(kind, answer, catalogue)


def _properties(kind: str, properties: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    made = dict(properties)
    for name in _TEXTS:
        if name in made:
            made[name] = _text(made[name], catalogue)
    if isinstance(made.get("choices"), (list, tuple)):
        made["choices"] = [_choice(choice, catalogue) for choice in made["choices"]]
    if "value" in made:
        made["value"] = _value(kind, made["value"], catalogue)
    return made


def _value(kind: str, value: Any, catalogue: Catalogue) -> Any:
    if kind == "html" or (kind == "markdown" and isinstance(value, str) and "</" in value):
        return translated(value, catalogue) if isinstance(value, str) else value
    if kind == "markdown":
        return catalogue.text(value) if isinstance(value, str) else value
    if kind in _SAYING:
        return _text(value, catalogue)
    if kind == "plot" and isinstance(value, dict) and isinstance(value.get("plot"), str):
        return value | {"plot": json.dumps(translated_figure(json.loads(value["plot"]), catalogue))}
    if kind == "dataframe" and isinstance(value, dict):
        return value | _table(value.get("headers") or [], value.get("data") or [], catalogue)
    return value


def _table(headers: list[str], rows: list[list[Any]], catalogue: Catalogue) -> dict[str, Any]:
    """A table; the columns of names stay as they are."""
    own = {number for number, header in enumerate(headers) if header in _NAMES}
    return {
        "headers": _text(headers, catalogue),
        "data": [[c if n in own else _text(c, catalogue) for n, c in enumerate(row)] for row in rows],
    }


def _choice(choice: Any, catalogue: Catalogue) -> Any:
    """A pair of text and value; a plain value is its own text."""
    if isinstance(choice, (list, tuple)) and len(choice) == 2:
        text, value = choice
        is_name = isinstance(value, str) and _OF_DATA.fullmatch(value)
        return [text if is_name else _text(text, catalogue), value]
    return choice


def _text(value: Any, catalogue: Catalogue) -> Any:
    if isinstance(value, list):
        return [_text(each, catalogue) for each in value]
    # Not as Markdown: every line break counts.
    return "\n".join(map(catalogue.text, value.split("\n"))) if isinstance(value, str) else value
