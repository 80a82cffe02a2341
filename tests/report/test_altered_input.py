"""An insider alters one input of a real report and signs again: the full verification finds it, or lists the input.

`test_every_leaf` covers values that follow from others: the report alone shows if one of those is altered.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from irwm.report import to_json
from irwm.report.brought import Brought
from irwm.report.checks import Verification
from irwm.report.reproduction import same
from irwm.report.signature_file import sign_report
from irwm.report.states import Place, field_of
from irwm.report.verify import verified
from tests.report.leaves import few_of_each, forgeries, put
from tests.report.of_jobs import Desk, brought_by

pytestmark = pytest.mark.slow

KINDS = ("report", "dispute", "sweep", "lab")
# The inputs of a kind are divided among this many tests; `make slow` runs one for each kind.
PARTS = 8
# Number of other values tried for each input.
TRIED = 2


class Signed:
    """Successive reports, signed with the identity and the audit log of the real one."""

    def __init__(self, desk: Desk, path: Path, folder: Path, brought: Brought) -> None:
        self.document: dict[str, Any] = json.loads(path.read_bytes())
        self._desk, self._folder, self._name, self._brought = desk, folder, path.name, brought
        signature = json.loads(path.with_name(f"{path.stem}.signature.json").read_bytes())
        self._state = signature["signed_utc"], signature["audit"]["head"], signature["audit"]["entries"]
        for neighbour in path.parent.glob("suspect-*.json"):
            if not neighbour.name.endswith(".signature.json"):
                (folder / neighbour.name).write_bytes(neighbour.read_bytes())

    def verified(self, document: dict[str, Any]) -> Verification:
        """The verifier's result for the document without pages, which an insider could draw again."""
        path = self._folder / self._name
        path.write_bytes(to_json(document))
        made = sign_report({path.name: path.read_bytes()}, self._desk.vault.sign, *self._state)
        path.with_name(f"{path.stem}.signature.json").write_bytes(made)
        return verified(path, self._brought)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Signed]:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    made = {"report": desk.traced(), "sweep": desk.sweep(), "lab": desk.lab(), "dispute": desk.dispute(trusting=True)}
    log = desk.exported_log()
    return {
        kind: Signed(desk, path, tmp_path_factory.mktemp(kind), brought_by(desk, kind, log))
        for kind, path in made.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_report_is_established_except_for_a_lab(reports: dict[str, Signed], kind: str) -> None:
    report = reports[kind]
    outcome = report.verified(report.document)
    assert outcome.exit_code == (2 if kind == "lab" else 0), outcome.result


@pytest.mark.fault(89)
@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_input_never_passes_unless_it_is_listed(reports: dict[str, Signed], kind: str, part: int) -> None:
    report = reports[kind]
    # A change within the tolerance of two runs is not an alteration.
    passed = [
        field_of(place)
        for place, value in few_of_each(report.document)[part::PARTS]
        for forged in [f for f in forgeries(place, value, report.document) if not same(value, f)][:TRIED]
        if not listed_or_refused(report.verified, report.document, place, forged)
    ]
    assert passed == []


def listed_or_refused(
    verify: Callable[[dict[str, Any]], Verification], document: dict[str, Any], place: Place, value: Any
) -> bool:
    forged = copy.deepcopy(document)
    put(forged, place, value)
    outcome = verify(forged)
    if outcome.exit_code != 0:
        return True
    # Then no result depends on the value, and the verifier lists it as only stated by the signer.
    return field_of(place) in outcome.states.fields["stated"]
