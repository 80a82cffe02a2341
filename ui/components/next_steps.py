"""What to do with a release that was just written: examine it, time-stamp its key, keep the receipt.

Backing up is offered by the reminder that stands below (`ui.components.backup_reminder`), until a backup holds the key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.components.uploads import offer

# Opens another page of this document as a click on its tab does.
OPEN_PAGE = "() => document.getElementById('page-{}-button')?.click()"
# The time-stamp's part of the page Vault is folded, and far down.
OPEN_STAMPS = """
() => {
  document.getElementById('page-vault-button')?.click();
  const arrive = () => {
    const part = document.getElementById('commitments');
    const fold = part?.querySelector('button.label-wrap');
    if (fold && !fold.classList.contains('open')) fold.click();
    part?.scrollIntoView({block: 'start'});
  };
  // Once more when the tables above it are filled in, which moves it down.
  [200, 800, 1600].forEach((wait) => setTimeout(arrive, wait));
}
"""
# The receipt of a release that was asked for here is brought into view when it is there.
AWAIT_RECEIPT = "() => window.irwmAwaitReceipt?.()"
TO_RECEIPT = "() => window.irwmToReceipt?.()"


@dataclass(frozen=True, slots=True)
class NextSteps:
    """What a page gets, and what the pages that it leads to wire further.

    Attributes:
        investigate: leads to the page Investigate, with the release as its suspect.
        stamp: leads to the key's commitment on the page Vault.
        done: a `gr.State` with the result of the job that wrote the release; None without one.
        outputs: what `shown` gives the values of.
    """

    investigate: gr.Button
    stamp: gr.Button
    done: gr.State
    outputs: tuple[Any, ...]

    @staticmethod
    def shown(result: dict[str, Any] | None) -> tuple[Any, ...]:
        """What `outputs` become for what a job wrote; None for nothing."""
        if result is None:
            return gr.Column(visible=False), gr.skip(), None
        if result.get("many"):  # the receipts have a table and a file of their own
            return gr.Column(visible=True), gr.DownloadButton(visible=False), result
        text = json.dumps(result, ensure_ascii=False, indent=2) + "\n"
        name = f"receipt-{result['commitment'][:16]}.json"
        file = gr.DownloadButton(value=offer(text.encode("utf-8"), name), visible=True)
        return gr.Column(visible=True), file, result


def next_steps() -> NextSteps:
    """Builds the row at this place of the page, out of sight."""
    with gr.Column(visible=False, elem_id="next-steps") as box:
        gr.Markdown("### Next steps")
        with gr.Row():
            investigate = gr.Button("Investigate it", elem_id="next-investigate", scale=0, min_width=150)
            stamp = gr.Button("Time-stamp the key", elem_id="next-stamp", scale=0, min_width=200)
            download = gr.DownloadButton("Download the receipt", elem_id="next-download", scale=0, min_width=210)
    done = gr.State(None)

    return NextSteps(investigate, stamp, done, (box, download, done))
