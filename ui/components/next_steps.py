"""Next steps for a release that was just written: examine it, timestamp its key, keep the receipt, protect another.

The reminder below offers a backup (`ui.components.backup_reminder`) until one contains the key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from ui.components.uploads import download
from ui.file_names import plain_name
from ui.services.results import Released, ReleasedMany

# Opens another page of this document, like a click on its tab.
OPEN_PAGE = "() => document.getElementById('page-{}-button')?.click()"
# The part of the page Vault for timestamps is folded, and far down the page.
OPEN_STAMPS = """
() => {
  document.getElementById('page-vault-button')?.click();
  const arrive = () => {
    const part = document.getElementById('commitments');
    const fold = part?.querySelector('button.label-wrap');
    if (fold && !fold.classList.contains('open')) fold.click();
    part?.scrollIntoView({block: 'start'});
  };
  // Repeated, because the tables above it move it down when they are filled in.
  [200, 800, 1600].forEach((wait) => setTimeout(arrive, wait));
}
"""
# A result that was requested here is scrolled into view when it is ready; the place is the selector of its card.
RECEIPT, OUTCOME = "#receipt .receipt", "#run-card .verdict"
AWAIT_RESULT, TO_RESULT = "() => window.irwmAwaitResult?.('{}')", "() => window.irwmToResult?.('{}')"
# The keyboard focus moves to the first field of the wizard, which replaces the receipt.
TO_WIZARD = "() => window.irwmToField?.('#protect-steps')"


@dataclass(frozen=True, slots=True)
class NextSteps:
    """The parts that a page uses, and to which the linked pages connect their own events.

    Attributes:
        investigate: leads to the page Investigate, with the release as its suspect.
        stamp: leads to the key's commitment on the page Vault.
        another: leads back to the first step of Protect.
        done: a `gr.State` with the result of the job that wrote the release; None without one.
        outputs: the components that `shown` gives values for.
    """

    investigate: gr.Button
    stamp: gr.Button
    another: gr.Button
    done: gr.State
    outputs: tuple[Any, ...]

    @staticmethod
    def shown(result: Released | ReleasedMany | None) -> tuple[Any, ...]:
        """The values of `outputs` for the result of a job, or None."""
        if result is None:
            return gr.Column(visible=False), gr.skip(), None
        if "many" in result:  # the receipts have their own table and file
            return gr.Column(visible=True), gr.DownloadButton(visible=False), result
        text = json.dumps(result, ensure_ascii=False, indent=2) + "\n"
        name = plain_name("receipt", Path(result["path"]).name, result["recipient"], mark=result["commitment"][:6])
        return gr.Column(visible=True), download(text.encode("utf-8"), f"{name}.json"), result


def next_steps() -> NextSteps:
    """Builds the row at this place of the page, hidden at first."""
    with gr.Column(visible=False, elem_id="next-steps") as box:
        gr.Markdown("### Next steps")
        with gr.Row():
            investigate = gr.Button("Investigate the release", elem_id="next-investigate", scale=0, min_width=210)
            stamp = gr.Button("Timestamp the key", elem_id="next-stamp", scale=0, min_width=200)
            download = gr.DownloadButton("Download the receipt", elem_id="next-download", scale=0, min_width=210)
            another = gr.Button("Protect another model", elem_id="protect-another", scale=0, min_width=200)
    done = gr.State(None)

    return NextSteps(investigate, stamp, another, done, (box, download, done))
