"""Numbers for people: with separated thousands, a real minus sign, and powers of ten."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from markupsafe import Markup

from irwm.scheme.stated_odds import CAPPED, LEAST_LOG10

RAISED = str.maketrans("−-0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CAPPED_HTML = CAPPED.replace("³⁰", "<sup>30</sup>")
# Once on each page and in each report that states such odds.
WHY_CAPPED = (
    "Probabilities below 1 in 10³⁰ are not stated more precisely, because a bug, a mix-up of files or a dishonest "
    "examiner is far more likely than that."
)


def number(value: int) -> str:
    """A number with thousands separated by no-break spaces."""
    return f"{value:,}".replace(",", "\u00a0")


def counted(value: int, one: str, several: str = "") -> str:
    """A number with its unit: "1 copy", "2 copies".

    Args:
        several: the plural; by default `one` with an "s".
    """
    return f"{number(value)} {one if value == 1 else several or one + 's'}"


def power_of_ten(log10: float) -> str:
    """A chance given as log10, written for plotly and HTML: "0.0023", "1.2 × 10<sup>−9</sup>", "0".

    One below 10^-30 is "less than 1 in 10<sup>30</sup>".
    """
    if log10 == -math.inf:
        return "0"
    if not is_stated(log10):
        return CAPPED_HTML
    if log10 > -3.0:
        return f"{10**log10:.3g}"
    exponent = math.floor(log10)
    digits = f"{10 ** (log10 - exponent):.2f}"
    if digits == "10.00":
        digits, exponent = "1.00", exponent + 1
    return f"{digits} × 10<sup>{minus(exponent)}</sup>"


def power_text(log10: float) -> str:
    """Like `power_of_ten`, with characters instead of tags, for text that is escaped."""
    return re.sub(r"<sup>(.*?)</sup>", lambda raised: raised[1].translate(RAISED), power_of_ten(log10))


def is_stated(log10: float) -> bool:
    """Whether this chance, or this likelihood ratio, is stated and not capped."""
    return not abs(log10) > -LEAST_LOG10


def exact_log10(log10: float, of: str = "") -> str:
    """The exact value of a capped chance, which is shown on hover: "log10 = −88.4123".

    Args:
        of: what the logarithm is of, such as " of the probability", where the text around it does not say it.
    """
    return f"log10{of} = {log10:.6g}".replace("-", "\u2212")


def power_html(log10: float, write: Callable[[float], str] = power_text) -> Markup:
    """A chance for a page; a capped one shows its logarithm on hover.

    Args:
        write: `power_text`, or another function whose result is trusted HTML.
    """
    text = Markup(write(log10))
    if is_stated(log10) or math.isinf(log10):
        return text
    return Markup('<span title="{}">{}</span>').format(exact_log10(log10), text)


def power_hover(log10: float, of: str = "") -> str:
    """Like `power_of_ten`, for text that is shown on hover: a capped chance is followed by its logarithm, `of` as for
    `exact_log10`."""
    said = power_of_ten(log10)
    return said if is_stated(log10) or math.isinf(log10) else f"{said} ({exact_log10(log10, of)})"


def why_capped(*texts: str) -> str:
    """The sentence that explains a capped chance, if one of the texts has one; otherwise ""."""
    return WHY_CAPPED if any("10³⁰" in text or "10<sup>30</sup>" in text for text in texts) else ""


def one_in(log10: float) -> str:
    """The inverse of a chance below one in a million, rounded down and at most "10³⁰"."""
    return "10" + str(math.floor(-max(log10, LEAST_LOG10))).translate(RAISED)


def percent(share: float) -> str:
    return f"{100 * share:g}%"


def sure(share: float) -> str:
    """A confidence as a percentage that is rounded down, so that it never rounds to certainty: "99.9%"."""
    if share >= 1.0 or share <= 0.0:
        return "100%" if share >= 1.0 else "0%"
    tenths = max(1, math.floor(1000 * share + 1e-9))
    return f"{tenths / 10:.1f}%" if tenths > 990 or tenths < 10 else f"{tenths // 10}%"


def rounded_up(p: float) -> str:
    """A chance with two digits, rounded up, so that "at most" stays true."""
    places = max(2, 1 - math.floor(math.log10(p))) if p > 0.0 else 2
    return f"{math.ceil(p * 10**places - 1e-9) / 10**places:.{places}f}"


def decimal(value: float, places: int) -> str:
    """A number with this many decimals and a real minus sign; "unknown" for NaN."""
    return f"{value:.{places}f}".replace("-", "\u2212") if math.isfinite(value) else "unknown"


def minus(value: int) -> str:
    return str(value).replace("-", "\u2212")


def ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def listed(names: Sequence[object], most: int = 6) -> str:
    """ "3, 17 and 40", or the first few and how many more."""
    if len(names) > most:
        return f"{', '.join(map(str, names[:most]))} and {len(names) - most} more"
    if len(names) == 1:
        return str(names[0])
    return f"{', '.join(map(str, names[:-1]))} and {names[-1]}"


def size(count: int) -> str:
    """Bytes in full and, from a kilobyte on, also in a suitable unit."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit} ({number(count)} bytes)"
    return f"{number(count)} bytes"
