"""The outcome of verifying a report: one answer for each question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from irwm.errors import IrwmError, printable
from irwm.report.value_states import Stated, States

HOLDS = (
    "This report is valid: the expected identity signed it, and everything that its verdict depends on was recomputed."
)
NOT_ESTABLISHED = "No check failed, but it has not been established that this report is valid"
# If the expected signer was not given.
BY_WHOM = "This does not show who made the report, because anyone can sign a report with their own key."

# Names of checks.
SIGNATURE, IDENTITY, TIME_STAMP, LOG, SEEN = "signature", "identity", "timestamp", "log", "seen"
SUSPECT, ORIGINAL, KEY, KEYS = "suspect", "original", "key", "keys"
MODELS, CLAIMANTS, FOLDER = "models", "claimants", "folder"
EXAMINATION, CONTROLS, RECIPIENTS, CHOICES = "examination", "controls", "recipients", "choices"
REVIEWED = "reviewed"
# What shows a timestamp.
ROOT = "root"
# For a reader who does not know how long the suspect has existed.
UNKNOWN_TIME = "unknown"
NEEDED: Mapping[str, str] = {
    IDENTITY: "the signer’s first public key, as published by the signer",
    ROOT: "the root certificate of the authority that timestamped the key’s commitment",
    REVIEWED: "the files of the reviewed report, in the same folder, and what its reviewer gave",
    SUSPECT: "the suspect",
    FOLDER: "the folder that was swept",
    ORIGINAL: "the original",
    MODELS: "every model in the dispute",
    KEY: "the opened key, and every other key that was tried",
    LOG: "the signer’s audit log, exported after the report was signed",
    SEEN: "the day from which the suspect is known to have existed, from a source other than the signer",
}
# The checks that show who made a report, and those that show whether its numbers follow from one another.
_SIGNED = frozenset({"files", "document", SIGNATURE, "certificates", IDENTITY})
_FOLLOWS = frozenset({"numbers", "rulings"})


@dataclass(frozen=True, slots=True)
class Check:
    """One question asked of a report, and its answer.

    Attributes:
        name: a word, as listed in `irwm.report.verify`.
        ok: whether it holds; None where it was not, or could not be, checked.
        said: the result as a part of a sentence; text from untrusted files in it is inert.
        asked: the reader gave what this check needs, so None means that the check could not be made.
    """

    name: str
    ok: bool | None
    said: str
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of a report, in the order in which they were made.

    Attributes:
        checks: the checks.
        states: which values of the report were derived, which follow from others, and which its signer states.
        sha256: of the report's JSON that was verified; "" if there was none.
    """

    checks: tuple[Check, ...]
    states: States = field(default_factory=States)
    sha256: str = ""

    @property
    def ok(self) -> bool:
        """No check fails, and every check that was asked for was made; the report need not be signed."""
        return not any(check.ok is False or (check.ok is None and check.asked) for check in self.checks)

    @property
    def established(self) -> bool:
        """`ok`, signed by the identity that the caller expects, and the verdict depends on no value that is merely
        stated."""
        return self.ok and not self.open

    @property
    def open(self) -> tuple[str, ...]:
        """Why it is not `established` although no check fails, each reason as a part of a sentence."""
        answers = {check.name: check for check in self.checks}
        hold = held(self.checks)
        reasons = [
            f"the check “{check.name}” could not be carried out"
            for check in self.checks
            if check.ok is None and check.asked
        ]
        if SIGNATURE not in hold:
            reasons.append("the report is not signed")
        elif IDENTITY not in hold:
            reasons.append("no expected signer was given")
        elif not hold >= _SIGNED:
            reasons.append("the signature was not fully checked")
        if hold.isdisjoint(_FOLLOWS):
            reasons.append("the report’s numbers were not recomputed")
        if TIME_STAMP in answers and answers[TIME_STAMP].ok is None:
            known = answers[TIME_STAMP]
            nobody = "no trusted authority was given for the date of the key’s commitment"
            reasons.append(known.said if known.asked else nobody)
        if KEY in answers:  # these checks need the key
            unsettled = (CHOICES, CONTROLS, CLAIMANTS, SUSPECT, ORIGINAL)
            reasons += [check.said for check in self.checks if check.name in unsettled and check.ok is None]
        # Signer and date are covered above.
        if any(group.carries and group.bring not in ((IDENTITY,), (ROOT,)) for group in self.states.left):
            reasons.append("the verdict depends on values for which there is only the signer’s word")
        return tuple(reasons)

    @property
    def needed(self) -> tuple[str, ...]:
        """The names in `NEEDED` that the reader must bring so that all values behind the verdict are computed again."""
        answers = {check.name: check.ok for check in self.checks}
        wanted = [need for group in self.states.left if group.carries for need in group.bring]
        if answers.get(SIGNATURE) and not answers.get(IDENTITY):
            wanted.append(IDENTITY)
        if TIME_STAMP in answers and answers[TIME_STAMP] is None:
            wanted.append(ROOT)
        return tuple(need for need in NEEDED if need in wanted)

    @property
    def exit_code(self) -> int:
        """0: `established`. 1: a check fails. 2: it is not established whether the report holds."""
        if any(check.ok is False for check in self.checks):
            return 1
        return 0 if self.established else 2

    @property
    def result(self) -> str:
        """The outcome in one or two sentences, the same for the command, the page and the API."""
        failed = [check for check in self.checks if check.ok is False]
        if failed:
            others = ", ".join(dict.fromkeys(check.name for check in failed[1:] if check.name != failed[0].name))
            also = f" Other failed checks: {others}." if others else ""
            return f"Verification failed: {failed[0].said.rstrip('.')}.{also}"
        if self.established:
            return HOLDS
        said_of = f"{NOT_ESTABLISHED}: {'; '.join(self.open)}."
        return said_of if IDENTITY in held(self.checks) else f"{said_of} {BY_WHOM}"


def held(checks: Sequence[Check]) -> set[str]:
    """The names of the checks that hold."""
    return {check.name for check in checks if check.ok}


def of_document(name: str, check: Callable[[], Check]) -> Check:
    """The outcome of a check that needs only the report's own files, so that they are the reason for any error.

    It catches every exception: a template or a typesetter may raise any of them for an invalid document.
    """
    try:
        return check()
    except IrwmError as error:
        return Check(name, False, f"the document cannot be checked: {said(error)}")
    except Exception as error:
        what = printable(f"{type(error).__name__}: {error}", 200)
        return Check(name, False, f"the document does not have the structure of a report ({what})")


def guarded(name: str, check: Callable[[], Check], asked: bool = False) -> Check:
    """The outcome of a check that needs a model or a key, which may stop it; an invalid document fails as well."""
    try:
        return check()
    except IrwmError as error:
        return Check(name, None, f"this check could not be carried out: {said(error)}", asked)
    except (
        MemoryError,
        RuntimeError,
        OSError,
    ) as error:  # of this computer; torch raises RuntimeError if memory runs out
        what = printable(f"{type(error).__name__}: {error}", 200)
        why = f"this check could not be carried out, perhaps because the computer ran out of memory ({what})"
        return Check(name, None, why, asked=True)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        return Check(name, False, f"the document does not have the structure of a report ({printable(what, 200)})")


def in_words(stated: Sequence[Stated]) -> list[str]:
    """The groups that are merely stated, as a part of a sentence for each reason."""
    by_reason: dict[str, list[str]] = {}
    for group in stated:
        by_reason.setdefault(group.why, []).append(group.name)
    return [f"{'; '.join(names)}: {why}" for why, names in by_reason.items()]


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names of files or parts of sentences as an inert list; if there are many, the first ones and how many more."""
    shown = [printable(name, 300) for name in names[:most]]
    return "; ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def said(error: IrwmError) -> str:
    """An error as a part of a sentence."""
    return printable(str(error), 600).rstrip(".")
