"""The release receipt: the files, the owner of the mark, and how the mark was verified."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from irwm.errors import printable
from irwm.release import SIGNATURE_NAME, STALE_SIGNATURE
from irwm.report.numbers import counted, number, power_html, power_text, why_capped
from storage.records import Changes, MarkedBefore, ReadBack
from ui.components.markup import facts
from ui.components.notices import copyable
from ui.services.results import ReceiptLine, Released, ReleasedMany
from ui.units import size_text

if TYPE_CHECKING:
    from irwm.inference.certificate import CertificateJson

HEADERS = ["Recipient", "Copy", "Folder", "Verified", "Key fingerprint"]
_Rows = Sequence[tuple[str, object]]


def receipt_html(receipt: Released | ReleasedMany) -> str:
    """The receipt of a finished `protect` job as HTML, for one recipient or for many."""
    if "many" in receipt:
        return _many_html(receipt)
    whom = f"{receipt['owner']}, issued to {receipt['recipient']}" if receipt["recipient"] else receipt["owner"]
    rows: list[tuple[str, object]] = [
        ("Release folder", copyable(receipt["path"])),
        ("Marked for", whom),
        ("Key fingerprint", copyable(receipt["commitment"])),
        (
            "Verified",
            Markup("mark read back and detected: {}").format(reading_text(receipt, "positions", power_html)),
        ),
        ("Changed", changed_text(receipt, receipt["vocab_size"])),
        *_cost(receipt),
        ("Written", f"{size_text(receipt['bytes'])} in {len(receipt['files'])} files, listed in SHA256SUMS"),
        ("Left out", ", ".join(receipt["left_out"]) or "none"),
        *_signatures(receipt["left_out"], receipt.get("signature", "")),
        *_before(receipt),
    ]
    return _card(
        "The release is ready",
        rows,
        Markup(
            "The key is in the vault. To check the files later, run <code>sha256sum -c SHA256SUMS</code> in the "
            "release folder."
        ),
    )


def reading_text(receipt: ReadBack, what: str = "", write: Callable[[float], str] = power_text) -> str:
    """The mark read back from a release, with the corrected odds that a verdict on it states.

    Args:
        what: the name of what was counted, if it is to be said.
        write: `power_text`, or `power_html` for HTML.
    """
    counted_of = f"{receipt['count']} of {receipt['present']}{' ' if what else ''}{what}, probability by chance: "
    risk = receipt.get("log10_risk")
    # A receipt of an earlier version has only the odds of the ranks.
    said = write(receipt["log10_p"] if risk is None else risk)
    return counted_of + said + (" before corrections" if risk is None else "")


def changed_text(receipt: Changes, vocabulary: int) -> str:
    """The differences from the original, by tensor and row."""
    names = [printable(name) for name in receipt.get("changed_tensors", ())] or ["the embedding"]
    where = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    in_rows = f"{number(receipt['changed_rows'])} of {number(vocabulary)} rows of {where}"
    values, share = receipt.get("changed_values"), receipt.get("changed_share")
    if values is not None:
        text = f"{number(values)} numbers in {in_rows}"
    else:
        text = in_rows if share is None else f"{in_rows}, usually by about {100 * share:.0f}% of their length"
    together = " (the same rows in each tensor)" if len(names) > 1 else ""
    if receipt.get("changed_head_rows"):
        head = printable(receipt["head_tensor"] or "")
        together += f", and {number(receipt['changed_head_rows'])} rows of the output head, {head}"
    if layers := receipt.get("changed_layers"):
        together += f", and the neurons of {counted(layers, 'MLP layer')}"
    return f"{text}{together}; all other bytes are unchanged"


def cost_text(certificate: CertificateJson) -> str:
    """The content of a utility certificate in one sentence."""
    u = certificate["utility"]
    if u is None:
        return f"not measured: {printable(certificate['why'], 400)}"
    text = printable(certificate["text"] or "", 120)
    if u["similarity"] is not None:
        return (
            f"the hidden states have a mean cosine similarity of {u['similarity']:.6f} to the original's, over "
            f"{number(u['tokens'])} tokens of {text}; this encoder does not predict words, so it has no perplexity"
        )
    before, after, change = (float(u[name]) for name in ("perplexity_reference", "perplexity", "change"))
    error = u["change_error"]
    if not math.isfinite(after):
        found = "the release's outputs are not finite numbers"
    else:
        found = f"perplexity {before:.2f} before, {after:.2f} after ({100 * change:+.2f}%"
        found += f" ± {200 * error:.2f}%)" if error is not None else ")"
        if error is not None and abs(change) <= 2 * error:
            found += ", a difference that may be due to chance on this text"
    agreement = f"the same most likely token at {100 * u['top1']:.1f}% of {number(u['compared'])} places in the text"
    divergence = f"KL divergence {u['kl']:.2g} nats per token" if u["kl"] != "infinity" else "infinite KL divergence"
    return f"{found}; {agreement}; {divergence}; measured on {text}"


def receipt_rows(receipt: ReleasedMany) -> list[list[str]]:
    """The first receipts of a job for many recipients, as the table under `HEADERS`."""
    return [
        [
            printable(line["recipient"], 200),
            line["state"] + (f": {line['why']}" if line["why"] else ""),
            (line["folder"] or "–").rsplit("/", 1)[-1],
            reading_text(_reading(line)) if line["of"] else "–",
            (line["key_fingerprint"] or "–")[:16],
        ]
        for line in receipt["rows"]
    ]


def _reading(line: ReceiptLine) -> ReadBack:
    return {
        "count": line["positions"] or 0,
        "present": line["of"] or 0,
        "log10_p": line["log10_p"] or 0.0,
        "log10_risk": line["log10_risk"],
    }


def _many_html(receipt: ReleasedMany) -> str:
    written, skipped, failed = receipt["written"], receipt["skipped"], receipt["failed"]
    example = receipt["example"]
    copies = f"{counted(written, 'copy', 'copies')} of {number(receipt['recipients'])} requested"
    if skipped:
        copies += f"; {number(skipped)} already existed"
    if failed:
        copies += f"; {number(failed)} could not be written; the reason is in the table"
    rows: list[tuple[str, object]] = [
        ("Folder", copyable(receipt["path"])),
        ("Written", copies),
        ("Owner", receipt["owner"]),
    ]
    if example:
        rows += [
            ("Verified", "each copy was read back, and its mark was detected"),
            ("Changed in each copy", changed_text(example, receipt["vocab_size"])),
            *_cost(receipt),
            ("Disk space used", _room_text(receipt)),
            ("Left out", ", ".join(example["left_out"]) or "none"),
            *_signatures(example["left_out"], example.get("signature", "")),
        ]
    rows += [("Tracing", tracing_text(receipt["parameters"])), *_before(receipt)]
    title = f"The copies are ready: {number(written)} written" if written else "Every recipient already has a copy"
    if failed:
        title = f"{number(written)} of {number(written + failed)} copies were written"
    return _card(
        title,
        rows,
        Markup(
            "Every copy has its own key in the vault, its own manifest and its own receipt. The name of each folder "
            "ends with the first characters of its key’s fingerprint. Each receipt names the recipient. To add "
            "recipients later, repeat these steps with an extended list; recipients who already have a copy are "
            "skipped."
        ),
        *(cell for row in receipt_rows(receipt) for cell in row),
    )


def tracing_text(parameters: Mapping[str, object]) -> str:
    """Whether a leak names its recipients if they collude."""
    if parameters.get("noise_coordinates"):
        return "each copy's own noise identifies its recipient, even in a mixture of several copies"
    return (
        "an unmixed copy identifies its recipient; a mixture of several copies does not, because the copies have no "
        "noise"
    )


def _cost(receipt: Released | ReleasedMany) -> _Rows:
    certificate = receipt.get("utility")
    return [("Cost to the model", cost_text(certificate))] if certificate else []


def _room_text(receipt: ReleasedMany) -> str:
    taken = size_text(receipt["bytes"] - receipt["bytes_cloned"])
    if not receipt["bytes_cloned"]:
        return taken
    return f"{taken}; the copies share another {size_text(receipt['bytes_cloned'])} on disk"


def _signatures(left_out: Sequence[str], signature: str) -> _Rows:
    """The release's own signature, and what became of the original's."""
    rows: list[tuple[str, object]] = []
    if signature:
        rows.append(
            ("Signed", f"{SIGNATURE_NAME} covers all files but those of Git; check it with the command model_signing")
        )
    if SIGNATURE_NAME in left_out:
        rows.append(("Signature of the original", STALE_SIGNATURE))
    return rows


def _before(receipt: MarkedBefore) -> _Rows:
    rows = []
    if receipt.get("marked_before"):
        rows.append(("Marked before", f"for {'; '.join(receipt['marked_before'])}; all of these marks can be read"))
    if receipt.get("damaged"):
        unread = counted(receipt["damaged"], "vault record")
        rows.append(("Unknown", f"{unread} cannot be read and may concern this model"))
    return rows


def _card(title: str, rows: _Rows, note: Markup, *beneath: str) -> str:
    """The receipt as HTML.

    Args:
        beneath: texts of the table below it, which may have odds too.
    """
    shown = facts(rows)
    why = why_capped(shown, *beneath)
    return str(
        Markup(
            '<section class="receipt" aria-label="Release receipt">'
            '<h2>{}</h2>{}{}<p class="receipt-note">{}</p></section>'
        ).format(title, shown, Markup('<p class="receipt-note">{}</p>').format(why) if why else "", note)
    )
