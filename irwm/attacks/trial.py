"""One attack carried out on a release, and its effect on the mark, in each way of reading, and on the model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from irwm.attacks.attack import Attack, Attacked, Setup
from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.suspects import open_suspect
from irwm.errors import CancelledError, IrwmError
from irwm.evidence.detection import WAYS, detect_ways
from irwm.evidence.examination import Examination
from irwm.evidence.finding import Finding
from irwm.inference import Reference, SameFunction, Utility, compare, same_function
from irwm.tracing import Tracing, trace_each


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The result of one attack at one strength.

    Attributes:
        attack: its name.
        value: the strength.
        findings: by (statistic, invariant), the verdict's way first; empty if the attack could not be carried out.
        traced: the tracing of the release's own recipient only; None if the key has no noise.
        utility: compared with the release; None if it was not requested or cannot be measured.
        proof: whether the model computes the same as before; None for attacks that do not claim it.
        reason: why the attack, or the measurement, was not possible; "" if both were.
    """

    attack: str
    value: float | str
    findings: Mapping[tuple[str, str], Finding] = field(default_factory=dict)
    traced: Tracing | None = None
    utility: Utility | None = None
    proof: SameFunction | None = None
    reason: str = ""

    @property
    def ran(self) -> bool:
        return bool(self.findings)

    @property
    def finding(self) -> Finding:
        """The finding that a verdict would rest on.

        Raises:
            KeyError: the attack was not carried out.
        """
        return self.findings[WAYS[0]]


def try_attack(setup: Setup, attack: Attack, value: float | str, reference: Reference | None = None) -> Trial:
    """Attack the release, read the mark from the result, and measure the utility of the model.

    The attack writes to `setup.scratch`, whose whole content is removed at the end.

    Args:
        reference: the release, run on a text; None to skip the measurement.

    Raises:
        CancelledError: a progress callback requested it.
    """
    obstacle = attack.why_not(setup, value)
    if obstacle is not None:
        return Trial(attack.name, value, reason=obstacle)
    out = setup.scratch / "attacked"
    try:
        attacked = attack.carry_out(setup, value, out)
        original = open_checkpoint(setup.original)
        suspect = open_suspect(attacked.path, original)
        examination = Examination(suspect, original, setup.device)
        findings = detect_ways(examination, setup.key)
        traced = None
        if setup.key.parameters.noise_coordinates:
            traced = trace_each(examination, [setup.key], decoys=0)
        utility, proof, reason = None, None, ""
        if reference is not None:
            try:
                runnable = attacked.runnable or attacked.path
                utility = compare(reference, runnable, attacked.token_ids, told=attacked.told)
                if attack.keeps_function:
                    proof = _proof(reference, attacked, runnable)
            except CancelledError:
                raise
            except IrwmError as error:  # the findings stay valid
                reason = str(error)
        return Trial(attack.name, value, findings, traced, utility, proof, reason)
    except CancelledError:
        raise
    except IrwmError as error:
        return Trial(attack.name, value, reason=str(error))
    finally:
        for left in setup.scratch.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _proof(reference: Reference, attacked: Attacked, runnable: Path) -> SameFunction:
    """Checks the suspect itself, limited by its dtype, and, if stored, its numbers before rounding, more sharply."""
    stored = same_function(reference, runnable, attacked.token_ids)
    if attacked.exact is None:
        return stored
    exact = same_function(reference, attacked.exact, attacked.token_ids)
    return replace(exact, same=exact.same and stored.same)
