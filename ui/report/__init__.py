"""Reports: a finding as strict JSON that holds every number, and as one HTML file drawn from that JSON.

    items        what a report says about checkpoints, keys and controls
    wording      every sentence it prints
    document     the finding as a versioned JSON document (docs/report-schema.md)
    figures      the figures of a document, for pages and reports alike
    html         the document as a page: template.html.j2, report.css, draw.js
    reproduce    the detection run again and compared with the document, number by number
    write        both files, published together

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
