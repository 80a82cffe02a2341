"""The controls of an examination: models and keys whose result is known beforehand.

    the original      carries no mark: this key must read "not found"
    three keys        made for this purpose and never inserted: each must read "not found" on the suspect
    a neutral model   has nothing of the original and cannot be aligned, so it must read "inconclusive"
    a tracing's decoys   recipients who were never issued a copy: they must not be named

They follow from the models, the key and the public seed alone, so a verifier who has these can run the same controls
again. The keys' secrets follow from the secret of the key examined (`Key.control_seed`), not from a public seed: with a
public seed an attacker could write a control's mark into a suspect and make every examination of it fail.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import irwm
from irwm import Examination, Finding, Key
from irwm.evidence.decoys import decoys as rank_decoys
from irwm.evidence.detection import detect_marks
from irwm.evidence.neutral_model import write_neutral
from irwm.report import schema, tracing
from irwm.report.checks import CONTROLS, Check, listed
from irwm.report.error_rates import neutral_section
from irwm.report.items import SelfTest, control_of_neutral
from irwm.report.reproduction import differences, should_be
from irwm.report.structure import plain
from irwm.scheme.invariant import Layer0
from irwm.tracing.recipients import DECOYS

# Keys that are made as controls and never inserted.
DECOY_KEYS = 3
# A neutral model resembles no model, so every way of aligning it is tried, on all of the original. For an original with
# a larger embedding than this, that takes minutes, more than the rest of an examination.
NEUTRAL_NUMBERS = 64 << 20
NEUTRAL = "a neutral model, made from the original’s numbers in a different order"
# The way of reading for the verdict; it is fixed, so a reader can tell that nobody searched for a better one.
WAY: schema.SeededWay = {"statistic": "joint", "invariant": "original", "seed": 0}


@dataclass(frozen=True, slots=True)
class Controlled:
    """The results of one examination's controls, apart from that of a tracing (`tracing.control`)."""

    tests: tuple[SelfTest, ...]
    neutral: tuple[schema.Neutral, ...]


class Controls:
    """Runs the controls; results that all suspects of one original share are computed once.

    Args:
        unmarked: the original, examined as if it were a suspect.
        folder: a private folder for the neutral model, which the caller removes.
    """

    def __init__(self, unmarked: Examination, folder: Path) -> None:
        self._unmarked, self._folder = unmarked, folder
        self._neutral: Examination | None = None
        self._neutral_tests: dict[str, tuple[schema.Neutral, SelfTest]] = {}

    def run(self, examination: Examination, key: Key, finding: Finding) -> Controlled:
        """Every control of a finding.

        Args:
            examination, key: what the finding was made from.
            finding: used only to know whether a key can be dismissed on this suspect.
        """
        tests = list(self._of_keys(examination, key, finding))
        original = self._unmarked.original
        if original.vocab_size * original.hidden_size > NEUTRAL_NUMBERS:
            return Controlled(tuple(tests), ())
        if key.commitment not in self._neutral_tests:
            self._neutral_tests[key.commitment] = self._of_neutral(key)
        model, test = self._neutral_tests[key.commitment]
        return Controlled((*tests, test), (model,))

    def _of_keys(self, examination: Examination, key: Key, finding: Finding) -> Iterator[SelfTest]:
        original, device = self._unmarked.original, self._unmarked.device
        (unmarked,) = detect_marks(self._unmarked, [key], **WAY)
        yield SelfTest.of("this key on the unmarked original", unmarked)
        numbers, layer0 = range(1, DECOY_KEYS + 1), Layer0(original, device)
        decoys = [
            irwm.decoy_key(original, key.parameters, n, key.control_seed, key.owner, device, layer0) for n in numbers
        ]
        # Together, so that the suspect is read once; the odds of each are corrected for one key.
        found = detect_marks(examination, decoys, **WAY, keys_tried=1)
        # If the suspect is not aligned, or no key can be judged on it, a mark can be found but no key dismissed.
        dismissible = finding.alignment.aligned and not finding.faults
        expected = "not found" if dismissible else "inconclusive"
        for number, read in zip(numbers, found, strict=True):
            yield SelfTest.of(f"decoy key {number}, never inserted, on the suspect", read, expected)

    def _of_neutral(self, key: Key) -> tuple[schema.Neutral, SelfTest]:
        """A model that has nothing of the original, opened, aligned and read like a suspect.

        "Not found" would mean that the key was read in the original's rows.
        """
        if self._neutral is None:
            place = Path(tempfile.mkdtemp(prefix="neutral-", dir=self._folder))
            model = irwm.open_checkpoint(write_neutral(self._unmarked.original, place / "model"))
            self._neutral = self._unmarked.with_suspect(model)
        (finding,) = detect_marks(self._neutral, [key], **WAY)
        test = SelfTest.of(control_of_neutral(NEUTRAL), finding, "inconclusive")
        return neutral_section(NEUTRAL, self._neutral.suspect.vocab_size, finding), test


def check_controls(
    document: schema.Report, examined: Examination, key: Key, finding: Finding, traced: schema.Tracing | None
) -> Check:
    """Whether all controls are in the report and, run again, read as recorded.

    Args:
        document: the report's.
        examined, key, finding: the examination, run again.
        traced: its section "tracing".
    """
    with tempfile.TemporaryDirectory() as folder:  # mode 0700
        again = Controls(examined.with_suspect(examined.original), Path(folder)).run(examined, key, finding)
    tests: list[schema.SelfTest] = plain([asdict(test) for test in again.tests])
    if traced is not None and any(z is not None for z in traced["decoys"]):
        tests.append(tracing.control(traced))
    recorded = {test["name"]: test for test in document["self_tests"]}
    expected = {test["name"]: test for test in tests}
    rates: schema.ErrorRates = document["error_rates"] or {"neutral": [], "decoys": None, "method": ""}
    models = {model["name"]: model for model in rates["neutral"]}
    neutral = {model["name"]: model for model in again.neutral}
    wrong = [
        difference
        for name in expected.keys() & recorded.keys()
        for difference in differences(f"self_tests, {name}", recorded[name], expected[name])
    ]
    wrong += [
        difference
        for name in neutral.keys() & models.keys()
        for difference in differences(f"error_rates.neutral, {name}", models[name], neutral[name])
    ]
    if wrong:
        in_order = sorted(wrong, key=lambda each: each.where)
        return Check(CONTROLS, False, f"a new run gave different values ({len(wrong)}): {should_be(in_order, 60)}")
    if len(recorded) < len(document["self_tests"]) or len(models) < len(rates["neutral"]):
        return Check(CONTROLS, False, "the report contains a duplicate control")
    missing = [name for name in expected if name not in recorded]
    missing += [name for name in neutral if name not in models]
    compared = traced is not None and any(row["z"] is not None for row in traced["ranked"])
    if traced is not None and compared and len(traced["decoys"]) < DECOYS:
        missing.append(tracing.control_name(DECOYS))
    # Whether any can be ranked; the report decides their number.
    if rates["decoys"] is None and rank_decoys(examined, key, finding, 1) is not None:
        missing.append("wrong keys, ranked on the suspect")
    unknown = [name for name in recorded if name not in expected] + [name for name in models if name not in neutral]
    if missing:
        return Check(CONTROLS, None, f"the report lacks these controls: {listed(missing)}")
    if unknown:
        return Check(CONTROLS, None, f"this program does not run these controls: {listed(unknown)}")
    return Check(CONTROLS, True, f"rerunning all {len(expected)} controls gave the recorded results")
