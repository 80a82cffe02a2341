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
    review          the document of a second examiner's review, with its page
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
                    rulings (a dispute), lab_claims, sweep_claims, verify_review (a review), stamps (timestamps),
                    recorded (a document read back as a finding),
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
    from irwm.report.document import SCHEMA as SCHEMA
    from irwm.report.document import VERSION as VERSION
    from irwm.report.document import ReportError as ReportError
    from irwm.report.document import finding_document as finding_document
    from irwm.report.document import from_json as from_json
    from irwm.report.document import to_json as to_json
    from irwm.report.html import render_html as render_html
    from irwm.report.items import FileRecord as FileRecord
    from irwm.report.items import ItemDescription as ItemDescription
    from irwm.report.items import KeyInfo as KeyInfo
    from irwm.report.items import SelfTest as SelfTest
    from irwm.report.items import installed_versions as installed_versions
    from irwm.report.reproduction import Difference as Difference
    from irwm.report.reproduction import reproduce as reproduce
    from irwm.report.verify import verify_report as verify_report
    from irwm.report.write import write_report as write_report

__getattr__, __dir__ = imported_on_use(__name__)
