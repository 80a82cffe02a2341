"""Reports: a finding as strict JSON that holds every number, as a page drawn from that JSON, and as a PDF of the page.

    items        what a report says about checkpoints, keys and controls
    wording      every sentence it prints
    error_rates  decoy keys and neutral models beside a verdict
    weight       likelihood ratio, and the claim against a search
    document     the finding as a versioned JSON document (docs/report-schema.md)
    figures      the figures of a document, for pages and reports alike
    html         the document as a page: template.html.j2, report.css, draw.js
    blocks       the page's structure and words, from which the PDF is set
    drawings     the page's figures for paper (matplotlib; imported by nothing but a PDF)
    typefaces    the fonts on paper, and which characters they have
    pdf          the document as PDF/A: report.typ, set by typst
    reproduce    the detection run again and compared with the document, number by number
    consistency  whether a document's numbers follow from one another
    signing      the signature file beside a report
    verify       every check of a report that somebody received (docs/verifying.md)
    write        all files, published together

Nothing here knows Gradio or reads a clock; a job calls `write_report` at its end.
"""

from ui.report.document import SCHEMA, VERSION, ReportError, finding_document, from_json, to_json
from ui.report.html import render_html
from ui.report.items import FileRecord, ItemDescription, KeyInfo, SelfTest, installed_versions
from ui.report.reproduce import Difference, reproduce
from ui.report.write import write_report

__all__ = [
    "SCHEMA",
    "VERSION",
    "Difference",
    "FileRecord",
    "ItemDescription",
    "KeyInfo",
    "ReportError",
    "SelfTest",
    "finding_document",
    "from_json",
    "installed_versions",
    "render_html",
    "reproduce",
    "to_json",
    "write_report",
]
