"""A report's page in another language: the same numbers and figures, with the texts of `irwm.language`.

The JSON, which is signed, stays in English. A page in another language is drawn from the English page alone, so that
`irwm.report.verify_drawings` can draw it again and compare every byte.
"""

from __future__ import annotations

import re

from irwm.canonical import strict_json
from irwm.language import ENGLISH, LANGUAGES, catalogue_of
from irwm.language.figures import translated_figure
from irwm.language.markup import translated
from irwm.report.html import FIGURE_DATA, json_for_html

_LANGUAGE = re.compile(r'<html lang="(?P<language>[A-Za-z-]{2,12})">')
_TITLE = re.compile(r"(?<=<title>).*?(?=</title>)", re.DOTALL)


def language_of(page: str) -> str:
    """The language of a report's page, one of `LANGUAGES`; English if it is none of them."""
    found = _LANGUAGE.search(page[:4096])
    return found["language"] if found and found["language"] in LANGUAGES else ENGLISH


def in_language(page: str, language: str) -> str:
    """An English page in one of `LANGUAGES`.

    Raises:
        ParameterError: there is no such language.
    """
    catalogue = catalogue_of(language)
    if not catalogue:
        return page
    head, main, rest = page.partition("<main>")
    body, end, after = rest.partition("</main>")
    head = _LANGUAGE.sub(f'<html lang="{language}">', head, count=1)
    head = _TITLE.sub(lambda title: translated(title[0], catalogue), head, count=1)
    before, begin, rest = after.partition(FIGURE_DATA)
    data, finish, scripts = rest.partition("</script>")
    if begin:
        drawn = strict_json(data.encode())
        data = json_for_html(drawn | {"figures": translated_figure(drawn["figures"], catalogue)})
    return "".join([head, main, translated(body, catalogue), end, before, begin, data, finish, scripts])
