"""Reports: a finding as strict JSON that holds every number, as a page drawn from that JSON, and as a PDF of the page.

    items           what a report says about checkpoints, keys and controls
    answer          the word and the sentence at the top
    wording         every sentence it prints; numbers: how it writes a number
    error_rates     decoy keys and neutral models, for comparison with a verdict
    likelihood      likelihood ratio, and the claim against a search
    tracing         whose copy it was; tracing_words: the sentences about it
    recognition_words  the two findings of a report in words: whose weights, and which copy
    schema          the types of all documents; structure checks a received document against them
    document        the finding as a versioned JSON document (docs/report-schema.md)
    dispute, lab, sweep  the documents of a dispute, a lab and a folder of suspects, each with its page; lab_rows
    plots           every figure, as plotly draws it
    figures         which figures a document has, for pages and reports
    html            the document as a page: templates/template.html.j2, report.css, draw.js
    blocks          the page's structure and words, from which the PDF is set
    drawings        the page's figures for paper (matplotlib; only PDFs import it)
    typefaces       the fonts, and which characters they have
    pdf             the document as PDF/A: templates/report.typ, set by typst
    signature_file  the signature file of a report
    write           all files, published together
    verify          every check of a received report (docs/verifying.md), in parts:
                    checks (one check, and all of them), claims (expected values by place), consistency with
                    reading_claims, tracing_claims, examined_claims and verify_sentences (a report),
                    rulings (a dispute), lab_claims, sweep_claims, stamps (timestamps), recorded (a document read
                    back as a finding),
                    verify_drawings (page and PDF drawn again), verify_examination (models and key),
                    sandbox (all of it in a limited child)
    reproduction    the detection run again and compared with the document, number by number

This package does not use Gradio, open a database or read a clock. Its names are imported on first use, so a vault can
check a signature without loading the code that draws a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irwm.lazy import imported_on_use

if TYPE_CHECKING:
    from irwm.report.document import SCHEMA, VERSION, ReportError, finding_document, from_json, to_json
    from irwm.report.html import render_html
    from irwm.report.items import FileRecord, ItemDescription, KeyInfo, SelfTest, installed_versions
    from irwm.report.reproduction import Difference, reproduce
    from irwm.report.verify import verify_report
    from irwm.report.write import write_report

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
    "verify_report",
    "write_report",
]

# The module of each name.
_HOMES = {
    "SCHEMA": "document",
    "VERSION": "document",
    "Difference": "reproduction",
    "FileRecord": "items",
    "ItemDescription": "items",
    "KeyInfo": "items",
    "ReportError": "document",
    "SelfTest": "items",
    "finding_document": "document",
    "from_json": "document",
    "installed_versions": "items",
    "render_html": "html",
    "reproduce": "reproduction",
    "to_json": "document",
    "verify_report": "verify",
    "write_report": "write",
}

__getattr__, __dir__ = imported_on_use(__name__, _HOMES)
