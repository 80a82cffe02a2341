"""The sentences about recipients. A name is given only together with the odds of naming anybody who had no part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from irwm import Finding
from irwm.report.numbers import number

# Names that a sentence holds; the table holds them all.
MOST_NAMES = 6
# An estimate this close to one copy is one copy.
ONE_COPY = 1.25

METHOD = (
    "Each recipient’s copy holds, beside its mark, faint noise in every other row of the embedding. Where it stands "
    "and which sign it has follows from that recipient’s key alone. What the suspect differs from the original by "
    "is added up with each recipient’s signs. For a copy that had no part in the suspect those signs are like "
    "tosses of a fair coin, and the sum, z in units of its own deviation, stays near 0. For a copy that had a part "
    "it grows with the square root of the numbers compared, however many copies were mixed."
)
ERROR_RATE = (
    "Nobody is named unless the odds of naming anybody at all who had no part, over all recipients and tensors "
    "together, are at most one in a million. That is a bound and no estimate: it holds for every sum of fair random "
    "signs (Hoeffding; Bentkus and Dzindzalieta), whatever the suspect’s numbers are. The rank rule below is held to "
    "the same risk by itself, so the two together err at most twice in a million."
)
MEASURED = (
    "Beside the bound, recipients who were never issued a copy (decoys) were scored in the same way; they are shown "
    "with the others."
)
ESTIMATE = (
    "The weights, and the number of copies worked out from them, assume that marked copies and nothing else were "
    "averaged. Median, maximum or pasting, a share of the unmarked original, or a copy subtracted from others shift "
    "them; who is named does not rest on them."
)
LIMITATIONS = (
    "A recipient who is not named is not thereby shown to have had no part. Their copy may have had a small weight, "
    "or what it added may have been changed beyond recognition.",
    ESTIMATE,
    "The odds of tracing rest on the signs of the noise having been secret. They say nothing if the keys were "
    "published, or known to whoever made the suspect; then anybody’s noise could have been written into it.",
    "An owner who tried many secrets in advance could find one under which a chosen recipient reaches a z of about 6 "
    "by chance. A commitment to the key that is dated before the copies were issued and counted rules this out.",
)
COMPARED = "The corrected odds are those of any recipient who had no part reaching such a z."


def is_one_copy(copies: float) -> bool:
    """Whether an estimate of the copies speaks for one alone; well below one, copies were subtracted as well."""
    return 2 - ONE_COPY < copies < ONE_COPY


def whose_copies(found: Mapping[str, Any]) -> str:
    """The copies of those named, strongest first: 'the copy of “A”', or an owner's own release."""
    named = [each for each in found["ranked"] if each["named"]]
    names = [each["recipient"] or each["owner"] for each in named]
    if len(named) > 1:
        return f"the copies of {listed(names)}"
    return f"the {'copy' if named[0]['recipient'] else 'release'} of {listed(names)}"


def sentence(found: Mapping[str, Any]) -> str:
    """The answer in one sentence: who is named, how many copies there may be, and the odds of a wrong name."""
    copies = found["copies_estimated"]
    alone = found["named"] == 1 and copies is not None and is_one_copy(copies)
    made = whose_copies(found)
    if not alone and copies is not None:
        made = f"at least {made} (about {max(found['named'], round(copies))} copies in all)"
    return f"The suspect was made from {made}. {wrong_name(found['log10_risk'])}"


def wrong_name(log10_risk: float) -> str:
    """The odds of naming somebody who had no part, as a sentence of its own."""
    return f"The odds of naming anybody who had no part: less than 1 in {power(log10_risk)}."


def power(log10_risk: float) -> str:
    """A small risk turned around and rounded down, as "10⁷⁷"; in full while it can be read."""
    if log10_risk > -6.0:
        return number(math.floor(10**-log10_risk))
    return "10" + str(math.floor(-log10_risk)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def listed(names: Sequence[str]) -> str:
    """ "“A”, “B” and “C”", or the first few and how many more."""
    quoted = [f"“{name}”" for name in names]
    if len(quoted) > MOST_NAMES:
        return f"{', '.join(quoted[:MOST_NAMES])} and {len(quoted) - MOST_NAMES} more"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def named_reason(found: Mapping[str, Any]) -> str:
    """Why the verdict is "found" where it rests on tracing."""
    named = [each for each in found["ranked"] if each["named"]]
    weakest = min(each["z"] for each in named)
    whose = "one recipient’s copy is" if len(named) == 1 else f"{len(named)} recipients’ copies is"
    return (
        f"Noise of {whose} in the suspect: the weakest has z = {weakest:.1f} where {found['z_needed']:.1f} is needed"
        f"{_decoys(found)}; {_paid(found)}"
    )


def mark_by_itself(finding: Finding) -> str:
    """What the rank rule says of the likeliest recipient's mark where it is not found."""
    return (
        f"the mark of the likeliest recipient by itself reads {finding.verdict} ({finding.count} of {finding.present} "
        f"positions); mixing copies thins a mark out, and the verdict rests on the noise"
    )


def in_between(log10_risk: float) -> str:
    """Why nobody is named although not everybody is dismissed."""
    return (
        "The noise is too weak to name anybody and too strong to dismiss: recipients of whom none had a part show such "
        f"a z once in {power(log10_risk)} examinations."
    )


def points_to(named: int) -> str:
    """What is said of a tracing where the examination is inconclusive all the same."""
    whom = "one recipient" if named == 1 else f"{named} recipients"
    return f"tracing by noise points to {whom}, but an inconclusive examination accuses nobody"


def accuses(document: Mapping[str, Any]) -> bool:
    """Whether those whom tracing points to are named: not where the suspect cannot be judged."""
    return bool(document["verdict"]["rests_on"] == "tracing" and document["verdict"]["word"] == "found")


def nobody_named(found: Mapping[str, Any]) -> str:
    """That tracing names nobody, and of how many."""
    if all(each["z"] is None or math.isnan(each["z"]) for each in found["ranked"]):
        if not found["aligned"]:
            return "tracing by noise names nobody: no row could be compared"
        return "tracing by noise names nobody: the suspect’s embedding equals the original’s"
    return f"tracing by noise names none of {number(found['recipients'])} recipients"


def read_by_rule(found: Mapping[str, Any]) -> str:
    """How many recipients the rank rule was applied to."""
    read, all_of = found["read_by_rank_rule"], found["recipients"]
    if all_of == 1:
        return "The rank rule was applied as well."
    if read >= all_of:
        return f"The rank rule was applied to all {number(all_of)} recipients."
    return (
        f"The rank rule was applied to {number(read)} of {number(all_of)} recipients, those with the largest z. Its "
        f"odds are still corrected for all of them."
    )


def corrections(found: Mapping[str, Any]) -> str:
    """What the odds of tracing are corrected for."""
    paid = f"× {number(found['recipients'])} for the recipients traced"
    if found["tensors_read"] > 1:
        paid += f"; × {found['tensors_read']} for the suspect’s tensors that may be its embedding"
    paid += f"; × {found['maps']} for the maps under which the rows are read"
    if found["places"] > 1:
        paid += f"; × {found['places']} for the places where noise is looked for, embedding and output head"
    if found["looks"] > 1:
        paid += f"; × {found['looks']} for a first pass on some rows before all were compared"
    return f"{paid} (Bonferroni)"


def rows_compared(found: Mapping[str, Any]) -> str:
    """How many rows stand behind the z."""
    if found["first_pass_rows"] >= found["rows"]:
        return f"{number(found['rows'])} for every recipient"
    return f"{number(found['first_pass_rows'])} for all, {number(found['rows'])} for the likeliest"


def propositions(found: Mapping[str, Any]) -> list[str]:
    """The two propositions that a tracing is weighed between."""
    which = whose_copies(found)
    each = " each" if found["named"] > 1 else ""
    return [
        f"{which[:1].upper()}{which[1:]}{each} had a part in the suspect’s embedding, directly or after changes.",
        "At least one of those named had no part. The suspect is unrelated or was made without that copy, and its "
        "agreement with that recipient’s noise is chance.",
    ]


def _decoys(found: Mapping[str, Any]) -> str:
    if not found["decoys"]:
        return ""
    return f" and {number(len(found['decoys']))} decoys reach {found['z_of_decoys']:.1f} at most".replace("-", "−")


def _paid(found: Mapping[str, Any]) -> str:
    among = f"over all {number(found['recipients'])} recipients " if found["recipients"] > 1 else ""
    return f"{among}a wrong name is given less than once in {power(found['log10_risk'])} such examinations."
