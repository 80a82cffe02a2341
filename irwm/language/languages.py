"""The languages that there are, and the catalogue of each."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from irwm.errors import ParameterError
from irwm.language.catalogue import Catalogue

# As in HTML's `lang`. The second is written in its own language, so that its readers can find it.
ENGLISH: Final = "en"
LANGUAGES: Final = {ENGLISH: "English", "zh-CN": "简体中文"}


# Cached: a catalogue takes half a second to read, and remembers what it has translated.
@lru_cache(maxsize=len(LANGUAGES))
def catalogue_of(language: str) -> Catalogue:
    """The catalogue of one of `LANGUAGES`; that of English is empty and changes nothing.

    Raises:
        ParameterError: there is no such language.
    """
    if language not in LANGUAGES:
        raise ParameterError("this language is unknown", expected=", ".join(LANGUAGES), found=language[:40])
    if language == ENGLISH:
        return Catalogue(())
    return Catalogue.of_file(Path(__file__).with_name(f"{language.replace('-', '_')}.po"))
