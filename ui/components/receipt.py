"""The release receipt: what was written, whose mark it carries, and how that was verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ui.components.browsing import size_text
from ui.components.notices import copyable
from ui.plot_theme import power_text


def receipt_html(receipt: Mapping[str, Any]) -> str:
    """The receipt of a finished `protect` job as HTML."""
    whom = f"{receipt['owner']}, issued to {receipt['recipient']}" if receipt["recipient"] else receipt["owner"]
    left_out = ", ".join(receipt["left_out"]) or "nothing"
    rows: list[tuple[str, Any]] = [
        ("Release folder", copyable(receipt["path"])),
        ("Marked for", whom),
        ("Key fingerprint", copyable(receipt["commitment"])),
        (
            "Verified",
            f"read back and detected: {receipt['count']} of {receipt['present']} positions, "
            f"p = {power_text(receipt['log10_p'])}",
        ),
        (
            "Changed",
            f"{receipt['changed_values']} numbers in {receipt['changed_rows']} of {receipt['vocab_size']} rows; every "
            "other byte is the original's",
        ),
        ("Written", f"{size_text(receipt['bytes'])} in {len(receipt['files'])} files, listed in SHA256SUMS"),
        ("Left out", left_out),
    ]
    facts = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(label, value) for label, value in rows)
    return str(
        Markup(
            '<section class="receipt" aria-label="Release receipt">'
            '<h2>The release is ready</h2><dl class="facts">{}</dl>'
            '<p class="receipt-note">The key is in the vault. To check the files later: '
            "<code>sha256sum -c SHA256SUMS</code> in the release folder.</p></section>"
        ).format(facts)
    )
