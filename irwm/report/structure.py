"""The values of documents, and whether a received document has the structure of its kind: all parts of its type, each
of its JSON type, and no others.

    python -m irwm.report.structure > docs/report-schema.json

The claims about a document (`irwm.report.claims`) rely on this and compare only values.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic.json_schema import GenerateJsonSchema

from irwm.errors import printable
from irwm.report.schema import DOCUMENTS
from irwm.report.value_states import Place, text_of

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
# Sentences of a finding are far shorter; the limit keeps a name from a file from filling the page.
LONGEST_TEXT = 2000
# What a part must be, by pydantic's word for the error.
_EXPECTED = {
    "missing": "a value",
    "extra_forbidden": "no field with this name",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "none_required": "null",
}


def plain(value: Any) -> Any:
    """`value` in strict JSON types: arrays as lists, NaN and infinity as null, text without control or direction
    characters, so that a hostile name is inert in the JSON and in the report."""
    if isinstance(value, Mapping):
        return {printable(str(name), LONGEST_TEXT): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (bool, np.bool_)) or value is None:
        return None if value is None else bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return printable(str(value), LONGEST_TEXT)


@dataclass(frozen=True, slots=True)
class Fault:
    """A place at which a document does not have the structure of its kind.

    Attributes:
        place: such as "reading.positions[3].rank".
        expected, found: in words.
    """

    place: str
    expected: str
    found: str


def fault(document: object, kind: Any) -> Fault | None:
    """Where a document is not of this type of `irwm.report.schema`; None if it is."""
    try:
        _adapter(kind).validate_python(document)
    except ValidationError as error:
        faults = [_fault(document, each["loc"], each["type"], each["msg"]) for each in error.errors(include_url=False)]
        # Each type that a part may have gives its own errors; the one that goes deepest is about the type that it has.
        return max(faults, key=lambda each: each[0])[1]
    return None


def _fault(document: Any, steps: Place, word: str, message: str) -> tuple[int, Fault]:
    """A fault, and how deep in the document it is. The steps contain names of types, which are no places."""
    place: Place = ()
    for step in steps:
        if step in document if isinstance(document, dict) else isinstance(document, list) and isinstance(step, int):
            document, place = document[step], (*place, step)
    shown = f"of length {len(document)}" if isinstance(document, (dict, list)) else repr(document)
    found = printable(f"{type(document).__name__} {shown}", 80)
    if word == "missing":
        place, found = (*place, steps[-1]), "nothing"
    expected = _EXPECTED.get(word, message.removeprefix("Input should be "))
    return len(place), Fault(printable(text_of(place), 200) or "the document", expected, found)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(_STRICT)(kind))


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> bytes:
    """The JSON Schema of all documents."""
    adapters = [(kind.__name__, "validation", _adapter(kind)) for kind in DOCUMENTS]
    kinds, schema = TypeAdapter.json_schemas(adapters, schema_generator=_Generator)  # type: ignore[arg-type]
    made = {"$schema": _Generator.schema_dialect, "oneOf": list(kinds.values()), **schema}
    return (json.dumps(made, ensure_ascii=True, indent=1) + "\n").encode("ascii")


if __name__ == "__main__":
    sys.stdout.buffer.write(json_schema())
