"""The sentences about recipients. A name is given only together with the odds of naming anyone uninvolved."""

from __future__ import annotations

import math
from collections.abc import Sequence

from irwm import Finding
from irwm.answers.weights import LOG_PROBABILITIES, TEXT
from irwm.evidence.verdict import NAMES
from irwm.report import numbers, schema
from irwm.report.numbers import counted, number, one_in
from irwm.tracing.result import NO_MEMORY, NOT_REQUESTED, TOO_FEW, UNSUPPORTED

# Most names in a sentence; the table has them all.
MOST_NAMES = 6
# An estimate this close to one copy is one copy.
ONE_COPY = 1.25

METHOD = (
    "In addition to its mark, each recipient’s copy has faint noise in the places that its key lists: in all other "
    "rows of the embedding and of a separate output head, and in the neurons of some MLP layers. The locations and "
    "signs of this noise are determined by that recipient’s key alone. The differences between the suspect and the "
    "original are multiplied by each recipient’s signs and summed. For a copy that was not used to make the suspect, "
    "the signs are like tosses of a fair coin, and the sum (z, in standard deviations) stays near 0. For a copy that "
    "was used, z grows with the square root of the number of values compared, however many copies were mixed."
)
METHOD_OF_TEXT = (
    "Each recipient’s copy has faint noise in all rows of its embedding and output head. The locations and signs of "
    "this noise are determined by that recipient’s key alone. The gradient of the likelihood of the generated tokens "
    "is computed on the original, multiplied by each recipient’s signs, and summed. For a copy that generated none of "
    "the tokens, the signs are like tosses of a fair coin, and the sum (z, in standard deviations) stays near 0. For a "
    "copy that generated them, z usually grows with their number. The z reported for each recipient is the largest "
    "over all places, weightings and fits of the original."
)
NOT_INNOCENCE_OF_TEXT = (
    "The probability above is that of such a result if the second proposition is true, not the probability that the "
    "proposition itself is true. If no one is named, the answers show nothing about anyone, because too few tokens or "
    "a changed copy would give the same result."
)
BOUND = (
    "A recipient is named only if the chance of naming anyone whose copy was not used, across all keys tried and all "
    "tensors, is at most one in a million. This is a bound, not an estimate: it holds for every sum of fair random "
    "signs (Hoeffding; Bentkus and Dzindzalieta), whatever numbers the suspect contains."
)
ERROR_RATE = (
    f"{BOUND} This risk includes that of the rank rule below: each method’s p-values are corrected for both methods."
)
MEASURED = (
    "In addition, recipients who were never issued a copy (decoys) were scored in the same way. They are shown "
    "alongside the other recipients."
)
ESTIMATE = (
    "The weights, and the number of copies computed from them, assume that only marked copies were averaged. They "
    "shift if a median or maximum was taken, parts were pasted together, the unmarked original was mixed in, or a copy "
    "was subtracted from others. Which recipients are named does not depend on them."
)
LIMITATIONS = (
    "If a recipient is not named, this does not show that their copy was not used. The copy may have had a small "
    "weight, or its contribution may have been changed beyond recognition.",
    ESTIMATE,
    "The probabilities given by tracing assume that the signs of the noise were secret. They mean nothing if the keys "
    "were published, or if the suspect’s maker knew them, because any recipient’s noise could then have been written "
    "into the suspect.",
    "An owner who tried many secrets in advance could find one under which a chosen recipient reaches a z of about 6 "
    "by chance. A commitment to the key rules this out if it was dated before the copies were issued and counted.",
)
COMPARED = (
    "The corrected probability in each row shows how often any recipient whose copy was not used would reach the z in "
    "that row."
)


def is_of_text(found: schema.Tracing) -> bool:
    """Whether the recipients were traced in generated text."""
    return found["by"].split(", ")[0] in (TEXT, LOG_PROBABILITIES)


def is_one_copy(copies: float) -> bool:
    """Whether an estimate of the copies means one copy; if it is well below one, copies were subtracted as well."""
    return 2 - ONE_COPY < copies < ONE_COPY


def whose_copies(found: schema.Tracing) -> str:
    """The copies of those named, strongest first: 'the copy of “A”', or an owner's own release."""
    named = [each for each in found["ranked"] if each["named"]]
    names = [each["recipient"] or each["owner"] for each in named]
    if len(named) > 1:
        return f"the copies of {listed(names)}"
    return f"the {'copy' if named[0]['recipient'] else 'release'} of {listed(names)}"


def made_from(found: schema.Tracing) -> str:
    """The estimate of the copies in the suspect; "" without one."""
    copies = found["copies_estimated"]
    if copies is None:
        return ""
    if found["named"] == 1 and is_one_copy(copies):
        return "Consistent with one copy"
    return f"Made from about {copies:.1f} copies, if they were averaged"


def sentence(found: schema.Tracing) -> str:
    """The answer in one sentence: who is named, how many copies there may be, and the odds of a wrong name."""
    copies = found["copies_estimated"]
    alone = found["named"] == 1 and copies is not None and is_one_copy(copies)
    made = whose_copies(found)
    if is_of_text(found):
        return f"{made[:1].upper()}{made[1:]} contributed to the answers. {wrong_name(found['log10_risk'] or 0.0)}"
    if not alone and copies is not None:
        made = f"at least {made} (about {max(found['named'], round(copies))} copies in all)"
    return f"The suspect was made from {made}. {wrong_name(found['log10_risk'] or 0.0)}"


def wrong_name(log10_risk: float) -> str:
    """The odds of naming someone whose copy was not used, as a sentence."""
    return f"The chance of naming anyone whose copy was not used is less than 1 in {power(log10_risk)}."


def power(log10_risk: float) -> str:
    """The inverse of a small risk, rounded down, as "10¹⁷", and at most "10³⁰"; in full if it is short."""
    if log10_risk > -6.0:
        return number(math.floor(10**-log10_risk))
    return one_in(log10_risk)


def listed(names: Sequence[str]) -> str:
    """ "“A”, “B” and “C”", or the first few and how many more."""
    return numbers.listed([f"“{name}”" for name in names], MOST_NAMES)


def named_reason(found: schema.Tracing) -> str:
    """Why the verdict is "found" where it rests on tracing."""
    named = [each for each in found["ranked"] if each["named"]]
    weakest = min(each["z"] for each in named if each["z"] is not None)
    whose = "one recipient’s copy" if len(named) == 1 else f"{len(named)} recipients’ copies"
    return (
        f"The noise of {whose} is in the suspect, with a z of at least {weakest:.1f}. The required z is "
        f"{found['z_needed']:.1f}{_decoys(found)}. {_paid(found)}"
    )


def mark_by_itself(finding: Finding) -> str:
    """The result of the rank rule for the likeliest recipient's mark if it is not found."""
    return (
        f"on its own, the likeliest recipient’s mark gives the verdict {finding.verdict} ({finding.count} of "
        f"{finding.present} positions); the noise survives more changes than a mark, and the overall verdict rests on "
        "it"
    )


def in_between(log10_risk: float) -> str:
    """Why no recipient is named although not all of them are dismissed."""
    return (
        "The noise is too weak to name a recipient and too strong to dismiss all of them: if none of their copies was "
        f"used, a z this large would occur once in {power(log10_risk)} examinations."
    )


def points_to(named: int) -> str:
    """The sentence about a tracing that names recipients in an inconclusive examination."""
    whom = "one recipient" if named == 1 else f"{named} recipients"
    return f"tracing by noise points to {whom}, but an inconclusive examination accuses no one"


def accuses(document: schema.Report) -> bool:
    """Whether the recipients that tracing points to are named; not if the suspect cannot be judged."""
    return document["verdict"]["rests_on"] == "tracing" and document["verdict"]["word"] == "found"


def nobody_named(found: schema.Tracing) -> str:
    """The sentence that tracing names nobody, with the number of keys tried."""
    if all(each["z"] is None for each in found["ranked"]):
        if not found["aligned"]:
            return "tracing by noise identifies no one: no rows could be compared"
        return "tracing by noise identifies no one: the suspect’s embedding equals the original’s"
    return f"tracing by noise identifies no one ({counted(found['keys_tried'], 'key')} tried)"


def read_by_rule(found: schema.Tracing) -> str:
    """How many of several recipients the rank rule was applied to."""
    read, all_of = found["read_by_rank_rule"], found["recipients"]
    if is_of_text(found):
        return "The rank rule reads marks in weights, so it was not applied to any key."
    if all_of == 1:
        return ""
    if read >= all_of:
        return f"The rank rule was applied to all {number(all_of)} keys."
    return (
        f"The rank rule was applied to {number(read)} of {number(all_of)} keys, those with the largest z. Its "
        "probability is still corrected for all keys."
    )


def corrections(found: schema.Tracing) -> str:
    """The corrections of the odds of tracing."""
    factor = f"× {number(found['keys_tried'])} for the keys tried"
    if found["tensors_read"] > 1:
        factor += f"; × {found['tensors_read']} for the suspect’s tensors that may be its embedding"
    maps = "the weightings of the tokens" if is_of_text(found) else "the maps under which the rows are read"
    factor += f"; × {found['maps']} for {maps}"
    if found["tries"] > 1:
        factor += f"; × {found['tries']} for the original as it is, with a soft prompt, and with fitted weights"
    if found["places"] > 1:
        factor += f"; × {found['places']} for the places that are searched for noise (embedding, head and MLP layers)"
    factor += f"; × {found['forms']} for the forms of evidence (mark and fingerprint)"
    if found["looks"] > 1:
        factor += f"; × {found['looks']} for a first pass over some rows before all rows were compared"
    return f"{factor} (Bonferroni)"


_ENDED = {
    NOT_REQUESTED: "Fits of the original to the answers were not requested",
    TOO_FEW: "The answers are too few for a fit of the original",
    UNSUPPORTED: "The next fit is not in the result, because transformers cannot run the original with it",
    NO_MEMORY: "The next fit is not in the result, because the computer had too little memory for it",
}


def fits_made(found: schema.Tracing) -> str:
    """How the original was run on generated text."""
    ways = ("as it is", "with a soft prompt fitted to the answers", "with its other weights fitted to the answers")
    said = numbers.listed(ways[: found["tries_made"]])
    if found["tries_made"] > 1:
        said = (
            f"{said}. No key was used for a fit: the original was fitted to each half of the answers and run on the "
            "other"
        )
    why = _ENDED.get(found["tries_ended"], "")
    return f"{said}. {why}" if why else said


def rows_compared(found: schema.Tracing) -> str:
    """How many rows each z was computed from."""
    if found["first_pass_rows"] >= found["rows"]:
        return f"{number(found['rows'])} for every recipient"
    return f"{number(found['first_pass_rows'])} for all recipients, {number(found['rows'])} for the likeliest"


def propositions(found: schema.Tracing) -> list[str]:
    """The two propositions between which a tracing is weighed."""
    which = whose_copies(found)
    each = " each" if found["named"] > 1 else ""
    if is_of_text(found):
        return [
            f"{which[:1].upper()}{which[1:]}{each} contributed to the answers, directly or after changes.",
            "At least one copy named in the first proposition did not contribute. The answers were made without that "
            "copy, and their agreement with its noise is due to chance.",
        ]
    return [
        f"{which[:1].upper()}{which[1:]}{each} contributed to the suspect’s {NAMES[found['place']]}, directly or after "
        "changes.",
        "At least one copy named in the first proposition did not contribute. The suspect is unrelated or was made "
        "without that copy, and its agreement with that copy’s noise is due to chance.",
    ]


def _decoys(found: schema.Tracing) -> str:
    most = found["z_of_decoys"]
    if most is None:
        return ""
    return f", and the largest z among {counted(len(found['decoys']), 'decoy')} is {most:.1f}".replace("-", "−")


def _paid(found: schema.Tracing) -> str:
    odds = power(found["log10_risk"] or 0.0)
    if found["keys_tried"] == 1:
        return f"A recipient is wrongly named in fewer than 1 in {odds} such examinations."
    keys = number(found["keys_tried"])
    return f"Over all {keys} keys, a recipient is wrongly named in fewer than 1 in {odds} such examinations."
