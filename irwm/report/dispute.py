"""A dispute between claimants as a versioned JSON document, and as a page drawn from that document alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from irwm.ownership.dispute import Claim, Outcome
from irwm.ownership.rules import UNDECIDED
from irwm.report import schema
from irwm.report.document import opening, read_document
from irwm.report.html import page
from irwm.report.items import ItemDescription
from irwm.report.numbers import power_text
from irwm.report.structure import plain

SCHEMA, VERSION = "irwm-dispute", 8
NAME = "dispute"
DECIDED, OPEN = "decided", "undecided"
_POWER = re.compile(r"10\^(-?\d+(?:\.\d+)?)")
LIMITATIONS = (
    "A mark shows whose key marked a model. It does not show who collected the data or trained the weights; dated "
    "records of the training do.",
    "A mark that is not found may have been removed. A claimant’s mark shows which original was made first only if it "
    "is found in the other claimant’s original and the other claimant’s mark is not found in this claimant’s original.",
    "A timestamp dates the commitment to a key and, with it, the mark and the original for which the key was made. It "
    "is relied on only if the authority’s certificate leads to a root certificate that the examiner chose to trust.",
    "The numbers show how often a model without the mark would give such a reading by chance. They do not show how "
    "probable it is that either claimant is right.",
)


def claim_section(
    claim: Claim,
    original: ItemDescription,
    release: ItemDescription | None = None,
    time_stamp: schema.TimeStamp | None = None,
    *,
    ours: bool,
) -> schema.Claim:
    """One claim in the document, without any value that derives from a key's secret.

    Args:
        original, release: the claimant's models; None for no release.
        time_stamp: of the commitment (`irwm.report.stamps`), also one that is not trusted; None for none.
        ours: whether it is the claim of the document's writer.
    """
    key, dated = claim.key, claim.committed_utc
    section: schema.Claim = plain(
        {
            "claimant": claim.claimant,
            "ours": ours,
            "commitment": key.commitment,
            "owner": key.owner,
            "recipient": key.recipient,
            "parameters": key.parameters.to_dict(),
            "original": asdict(original),
            "release": None if release is None else asdict(release),
            "committed_utc": dated,
            "stamp": stamp_in_words(time_stamp, relied_on=dated is not None),
            "time_stamp": time_stamp,
        }
    )
    return section


def stamp_in_words(time_stamp: schema.TimeStamp | None, *, relied_on: bool) -> str:
    """When a commitment was dated and by whom, and whether that counts; "" for no timestamp."""
    if time_stamp is None:
        return ""
    untrusted = "not relied on, because its certificate does not lead to a trusted root certificate"
    trust = "trusted" if relied_on else untrusted
    return f"{time_stamp['time_utc']}, by {time_stamp['authority']}; {trust}"


def dispute_document(
    outcome: Outcome,
    *,
    claims: Sequence[schema.Claim],
    exhibits: Sequence[tuple[str, ItemDescription]],
    case: Mapping[str, str],
    created_utc: str,
    tool_versions: Mapping[str, str],
    seed: int,
) -> schema.Dispute:
    """Everything the page says, as strict JSON values.

    Args:
        outcome: what `irwm.ownership.dispute.resolve` returned.
        claims: of `claim_section`, in the order in which they are to be printed.
        exhibits: models in dispute with their names.
        case, created_utc, tool_versions: as for `irwm.report.finding_document`.
        seed: of the permutations.
    """
    document: schema.Dispute = plain(
        {
            **opening((SCHEMA, VERSION), created_utc, case),
            "claims": list(claims),
            "exhibits": [{"name": name, "item": asdict(item)} for name, item in exhibits],
            "outcome": outcome.to_dict(),
            "seed": seed,
            "versions": dict(tool_versions),
            "limitations": LIMITATIONS,
        }
    )
    return document


def from_json(data: bytes) -> schema.Dispute:
    """The document that `to_json` wrote.

    Raises:
        ReportError: not a dispute's document, of another version, or of another structure.
    """
    return read_document(
        data,
        (SCHEMA, VERSION),
        schema.Dispute,
        "this is not a dispute’s JSON file",
        "the dispute document has a different schema",
    )


def word(document: schema.Dispute) -> str:
    """The outcome in one word."""
    return DECIDED if document["outcome"]["winner"] is not None else OPEN


def headline(document: schema.Dispute) -> str:
    """The outcome in one sentence, for a card and for the page's title."""
    winner = document["outcome"]["winner"]
    if winner is None:
        return "The evidence does not decide the dispute."
    return f"The evidence supports “{winner}”."


def rulings(document: schema.Dispute) -> list[schema.Ruling]:
    """The rulings with typeset powers of ten."""
    return [{**each, "sentence": _POWER.sub(_power, each["sentence"])} for each in document["outcome"]["rulings"]]


def _power(found: re.Match[str]) -> str:
    return power_text(float(found[1]))


def models(document: schema.Dispute) -> list[str]:
    """The models of the table, in the order of the claims."""
    return list(dict.fromkeys(test["model"] for test in document["outcome"]["tests"]))


def cells(document: schema.Dispute) -> list[tuple[str, list[schema.Test | None]]]:
    """The table: each claimant with the tests of that key, one for each of `models`."""
    tests = {(test["claimant"], test["model"]): test for test in document["outcome"]["tests"]}
    names = models(document)
    return [
        (claim["claimant"], [tests.get((claim["claimant"], model)) for model in names]) for claim in document["claims"]
    ]


def dispute_html(document: schema.Dispute, json_name: str = "") -> str:
    """The document as one self-contained file without scripts.

    Args:
        json_name: name of its JSON file, printed with its SHA-256.
    """
    return page(
        "dispute.html.j2",
        document,
        json_name,
        headline=headline(document),
        decided=word(document) == DECIDED,
        undecided=UNDECIDED,
        rulings=rulings(document),
        models=models(document),
        cells=cells(document),
    )
