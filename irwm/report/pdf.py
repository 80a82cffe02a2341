"""The report as an archival PDF (PDF/A), set by typst from the blocks of its HTML and the figures inside it.

The document alone determines every byte: the date is the document's, the fonts are files of this program, and typst
gets no folder, no network and no system font. Texts reach typst as JSON and are set as text; a name such as
`#eval("...")` stays a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from irwm.errors import printable
from irwm.language import catalogue_of
from irwm.report import schema
from irwm.report.blocks import Block, blocks_of, figures_of
from irwm.report.document import ReportError, to_json
from irwm.report.html import render_html
from irwm.report.plots.theme import LIGHT
from irwm.report.translation import language_of
from irwm.report.typefaces import BOLD, CHINESE, CHINESE_BOLD, FALLBACK, MONO, SANS, folders, settable

_TEMPLATE = Path(__file__).parent / "templates" / "report.typ"
# Accessible, with its text as Unicode: it can be searched, copied and read aloud, also in thirty years.
STANDARD: Final = "a-2a"
SPELLED = (
    "Characters that this file’s typeface lacks, or that are written from right to left, are shown as Unicode code "
    "points, such as \\ub9d0. The HTML and JSON files of this report contain the characters themselves."
)
# Digits of the JSON's SHA-256 that name a report in the page header.
ID_DIGITS = 12


def render_pdf(document: schema.Report, json_name: str = "") -> bytes:
    """The report of a document as PDF/A.

    Args:
        document: as `finding_document` returns it or `from_json` reads it.
        json_name: name of the report's JSON file, as for `render_html`.

    Raises:
        ReportError: typst could not set it; the message is typst's.
    """
    return set_pages(document, render_html(document, json_name))


def set_pages(document: schema.Report, html: str) -> bytes:
    """Like `render_pdf`, from the document's existing HTML."""
    return _compiled(page_data(document, html), _moment(document["created_utc"]))


def page_data(document: schema.Report, html: str) -> dict[str, object]:
    """The input of typst, as JSON values."""
    from irwm.report.drawings import drawn  # matplotlib takes a second to import; only PDFs need it

    language = language_of(html)
    said = catalogue_of(language).text
    signed = document["status"]["signed"]
    suspect = printable(document["items"]["suspect"]["name"], 200)
    return {
        "language": language.partition("-")[0],
        "title": settable(said(f"Examination report: {suspect}")),
        "id": report_id(document),
        "report": said("Report"),
        "head": said("IRWM Studio, watermark examination report"),
        "foot": said("Signed; the signature is in a separate file" if signed else "Not signed"),
        # The texts before, between and after the page's number and the number of pages.
        "numbering": re.split("NUMBER|TOTAL", said("NUMBER of TOTAL")),
        "sans": [SANS, CHINESE, FALLBACK],
        "bold": [BOLD, CHINESE_BOLD, SANS, CHINESE, FALLBACK],
        "mono": [MONO, SANS, CHINESE, FALLBACK],
        "colours": {name: value for name, value in asdict(LIGHT).items() if isinstance(value, str)}
        | {"surface": "#f6f8f8", "amber": "#7a4b00", "fault": "#9a2c17"},
        "figures": {name: drawn(figure) for name, figure in figures_of(html).items()},
        "blocks": [*blocks_of(html), *_spelled(html)],
    }


def _spelled(html: str) -> list[Block]:
    """A note under a report that shows some characters as numbers."""
    main = html[html.index("<main>") : html.index("</main>")]
    if settable(main) == main:
        return []
    text = catalogue_of(language_of(html)).text(SPELLED)
    return [{"kind": "par", "class": "handling", "runs": [{"text": text, "styles": []}]}]


def report_id(document: schema.Report) -> str:
    """The short name of a report: the first digits of its JSON's SHA-256, which the report prints in full."""
    return sha256(to_json(document)).hexdigest()[:ID_DIGITS]


def _compiled(data: Mapping[str, object], moment: datetime) -> bytes:
    import typst

    places = [str(folder) for folder in folders()]
    fonts = typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=places)
    try:
        return typst.compile(
            _TEMPLATE.read_bytes(),
            font_paths=fonts,
            ignore_system_fonts=True,
            format="pdf",
            sys_inputs={"report": json.dumps(data, ensure_ascii=True, allow_nan=False)},
            pdf_standards=[STANDARD],
            timestamp=moment,
        )
    except typst.TypstError as error:
        raise ReportError(
            "the report could not be written as a PDF",
            found=printable(error.message),
            advice="Use the HTML and JSON files, which are complete",
        ) from error


def _moment(text: str) -> datetime:
    """The document's own time, in UTC; the beginning of 1970 if it cannot be parsed."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).replace(microsecond=0)
