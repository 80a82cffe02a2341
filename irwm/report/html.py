"""The report as one self-contained HTML file: it needs a browser, but no network and no other files.

Everything is drawn from the document (`irwm.report.document`), so a report can be drawn again from its JSON. Its names
are untrusted: Jinja escapes every value, `printable` spells out control and direction characters, scripts run only if
the page's own policy has their hash, and the policy forbids all loads.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from irwm.errors import printable
from irwm.report import recognition_words, schema, tracing, tracing_words, wording
from irwm.report.answer import answer, keys_tried, log10_risk, named, strongest, whose
from irwm.report.document import to_json
from irwm.report.figures import FIGURES, document_figures, same_reading
from irwm.report.items import failed
from irwm.report.numbers import (
    CAPPED_HTML,
    exact_log10,
    is_stated,
    minus,
    number,
    power_html,
    power_of_ten,
    size,
    why_capped,
)
from irwm.report.plots.theme import CONFIG
from irwm.report.structure import LONGEST_TEXT
from irwm.report.typefaces import FONTS

# Before the figures of a page, as JSON.
FIGURE_DATA = '<script type="application/json" id="figure-data">'
# The templates put this where the explanation of capped chances belongs.
_SMALL_ODDS = Markup("<!-- small odds -->")
_TEMPLATES = Path(__file__).with_name("templates")
# The fonts of a report: family, weight, file, characters. Other characters use the reader's own fonts.
_FACES = (
    ("IBM Plex Sans", 400, "ibm-plex-sans-latin-400-normal.woff2", ""),
    ("IBM Plex Sans", 600, "ibm-plex-sans-latin-600-normal.woff2", ""),
    ("IBM Plex Sans", 400, "ibm-plex-sans-greek-400-normal.woff2", "U+0370-03FF"),
    ("IBM Plex Mono", 400, "ibm-plex-mono-latin-400-normal.woff2", ""),
)
# Parameter, plain words, the paper's symbol, what it does.
_PARAMETERS = (
    ("positions", "Positions", "l", "rows of the embedding that carry the mark"),
    ("constraints", "Constraints", "t", "equations and solved entries in each of these rows"),
    ("scale", "Scale", "scale_wm", "divisor that hides the solved entries"),
    ("hidden", "Hidden", "B_i", "whether the mark is written to secret coordinates of each row"),
    ("condition_limit", "Condition limit", "τ", "largest condition number allowed for the solved system"),
    ("rank_threshold", "Rank threshold", "β", "a position counts if its rank is below this value"),
    ("required_positions", "Required positions", "ρ", "positions that must count under the published rule"),
    ("permutations", "Permutations", "numit", "random orders used for each rank"),
    ("noise_coordinates", "Noise coordinates", "num_noise", "coordinates per row that carry the copy’s own noise"),
    ("noise_level", "Noise level", "σ_E", "size of the noise that replaces a row’s numbers"),
    (
        "spread",
        "Spread",
        "",
        "size of the noise that is added to a row’s numbers, in units of the row’s root mean square",
    ),
)


def _settings(parameters: Mapping[str, object]) -> Iterator[tuple[object, ...]]:
    """The rows of the table of settings; a document has no settings of noise if there is no noise."""
    for name, *words in _PARAMETERS:
        if name in parameters:
            value = parameters[name]
            yield name, *words, ("no", "yes")[value] if isinstance(value, bool) else value


def render_html(document: schema.Report, json_name: str = "") -> str:
    """The report of a document.

    Args:
        document: as `finding_document` returns it or `from_json` reads it.
        json_name: name of the report's JSON file, printed with its SHA-256.
    """
    figures = _figures(document)
    answered = answer(document)
    return page(
        "template.html.j2",
        document,
        json_name,
        {name: figure["spec"] for name, figure in figures.items()},
        items=document["items"],
        w=wording,
        r=recognition_words,
        answer=answered,
        named=lambda text: named(text, document),
        whose=whose(document["key"]),
        keys_tried=keys_tried(document),
        question=wording.question(document),
        tw=tracing_words,
        tracing=document["tracing"],
        recipients=tracing.shown(document["tracing"]) if document["tracing"] else [],
        supporting=document["supporting"],
        by_tracing=document["verdict"]["rests_on"] == tracing.TRACING,
        short_odds=short_odds(document),
        strongest=strongest(document),
        error_rates=document["error_rates"],
        standing=document["standing"],
        failed=failed,
        parameters=list(_settings(document["parameters"])),
        figures=figures,
        paper_is_reading=same_reading(document),
        text=wording.is_generated(document["items"]["suspect"]["answers"]),
    )


def page(
    template: str,
    document: Mapping[str, object],
    json_name: str = "",
    drawn: Mapping[str, object] | None = None,
    **values: Any,
) -> str:
    """A document of any kind as one self-contained file.

    Args:
        json_name: name of its JSON file, printed with its SHA-256.
        drawn: plotly's data and layout of each figure by element id; None for a page without scripts.
        values: what else the template uses.
    """
    scripts: dict[str, Markup] = {}
    if drawn is not None:
        scripts = {"library": inline(get_plotlyjs()), "draw": inline(asset("draw.js"))}
        values["figure_data"] = json_for_html({"config": CONFIG, "figures": drawn})
    drawn_page = (
        environment()
        .get_template(template)
        .render(
            d=document,
            scripts=scripts,
            policy=policy(scripts.values()),
            style=Markup(faces() + asset("report.css")),
            json_name=json_name,
            json_sha256=hashlib.sha256(to_json(document)).hexdigest(),
            small_odds=_SMALL_ODDS,
            **values,
        )
    )
    why = why_capped(drawn_page.partition("</main>")[0])
    return drawn_page.replace(_SMALL_ODDS, Markup('<p class="why">{}</p>').format(_raise(why)) if why else "")


def _figures(document: schema.Report) -> dict[str, dict[str, object]]:
    """Every figure of the report by element id: plotly's data and layout, caption, height, number."""
    captions = {text.name: text.caption for text in FIGURES}
    return {
        name: {"spec": json.loads(f.to_json()), "caption": captions[name], "height": f.layout.height, "number": i}
        for i, (name, f) in enumerate(document_figures(document).items(), 1)
    }


def short_odds(document: schema.Report) -> Markup:
    """The corrected chance in a few characters, for the verdict card."""
    risk = log10_risk(document)
    if not document["verdict"]["present"] and len(document["evidence"]) == 1:
        return Markup("–")
    if risk <= -6.0:
        return _under(risk)
    if risk < -1.0:
        return Markup("1 in {}").format(number(round(10**-risk)))
    return Markup("over 1 in 10")


def _under(log10: float) -> Markup:
    """A bound on a chance: "under 1 in 10<sup>17</sup>"; a capped chance is written as `power_html` does."""
    under = f"under 1 in {_raise(tracing_words.power(log10))}"
    return power_html(log10, lambda _: under if is_stated(log10) else CAPPED_HTML)


def _decimal(value: float | int | None, digits: int = 6) -> str:
    """A number to this many significant digits; whole numbers in full, with separated thousands."""
    if value is None:
        return "not available"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return number(int(value)).replace("-", "\u2212")
    if 10**digits <= abs(value) < 1e12:
        return number(round(value)).replace("-", "\u2212")
    return f"{value:.{digits}g}".replace("-", "\u2212")


def _probability(value: float) -> str:
    """A probability that never rounds to certainty."""
    return "above 0.999999" if 0.9999995 <= value < 1 else _decimal(value)


def _prose(text: str) -> Markup:
    """A typeset sentence: raised powers of ten, typographic apostrophes, a capital and a full stop."""
    text = wording.as_sentence(printable(str(text), LONGEST_TEXT).strip())
    text = re.sub(r"(?<=\w)'(?=\w)", "’", text)
    # The typeface has no glyph for most raised digits, so they become plain digits that the page raises.
    return _raise(text)


def _raise(text: str) -> Markup:
    """The text, escaped, with tags for raised digits."""
    return Markup(re.sub(r"10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", _raised, str(Markup.escape(text))))


def _raised(power: re.Match[str]) -> str:
    return f"10<sup>{power[1].translate(str.maketrans('⁰¹²³⁴⁵⁶⁷⁸⁹⁻', '0123456789−'))}</sup>"


def _power(log10: float | None) -> Markup:
    """A chance given as its log10."""
    return Markup("not available") if log10 is None else power_html(log10, power_of_ten)


def _ratio(log10: float) -> Markup:
    """A likelihood ratio given as its log10, above or below one."""
    if not is_stated(log10):
        said = CAPPED_HTML if log10 < 0 else "more than 10<sup>30</sup>"
        return Markup('<span title="{}">{}</span>').format(exact_log10(log10), Markup(said))
    if abs(log10) < 3.0:
        return Markup(_decimal(10.0**log10, 3))
    exponent = math.floor(log10)
    return Markup(f"{10 ** (log10 - exponent):.2f} × 10<sup>{minus(exponent)}</sup>")


def _own(text: str) -> Markup:
    """A name or a note that a person typed, which no translation may change."""
    return Markup('<span translate="no">{}</span>').format(_inert(text))


def _figure_number(value: str) -> Markup:
    return Markup('<span class="n">{}</span>').format(Markup.escape(value))


# Cached: the templates take a third of a second to compile.
@lru_cache(maxsize=1)
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    # The output of these filters is trusted: digits and units.
    made.filters |= {
        "decimal": lambda value, digits=6: _figure_number(_decimal(value, digits)),
        "floor": lambda value: _figure_number(_decimal(value if value is None else math.floor(value))),
        "fixed": lambda value, places: _figure_number(f"{value:.{places}f}".replace("-", "\u2212")),
        "probability": lambda value: _figure_number(_probability(value)),
        "prose": _prose,
        "own": _own,
        "under": _under,
        "power": _power,
        "ratio": _ratio,
        "size": lambda count: _figure_number(size(count)),
    }
    made.tests["stated"] = is_stated
    return made


def _inert(value: Any) -> Any:
    """Untrusted text with control and direction characters spelled out; escaping comes after this."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value, LONGEST_TEXT)


def json_for_html(value: Any) -> Markup:
    """JSON that cannot end its script element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def inline(script: str) -> Markup:
    """A trusted script, safe inside a script element."""
    return Markup("\n" + script.replace("</script", "<\\/script").strip() + "\n")


def policy(scripts: Any) -> str:
    """A policy that forbids all loads and all scripts except these.

    Inline styles stay allowed: plotly writes them, and without loads a style cannot send data anywhere.
    """
    hashes = [base64.b64encode(hashlib.sha256(str(s).encode("utf-8")).digest()).decode("ascii") for s in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; font-src data:; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def asset(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def faces() -> str:
    """@font-face rules with the fonts inside; a missing font file is left out, and the reader's own font is used."""
    rules = []
    for family, weight, name, characters in _FACES:
        path = FONTS / name
        if path.is_file():
            data = base64.b64encode(path.read_bytes()).decode("ascii")
            only = f"unicode-range:{characters};" if characters else ""
            rules.append(
                f'@font-face{{font-family:"{family}";font-weight:{weight};font-style:normal;{only}'
                f'src:url("data:font/woff2;base64,{data}") format("woff2")}}\n'
            )
    return "".join(rules)
