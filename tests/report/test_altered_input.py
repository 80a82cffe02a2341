"""An insider alters one input of a real report and signs again: the full verification finds it, or lists the input.

`test_every_leaf` covers values that follow from others: the report alone shows if one of those is altered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from irwm.report import to_json
from irwm.report.checks import Verification
from irwm.report.reader_inputs import Brought
from irwm.report.reproduction import same
from irwm.report.signature_file import Signer, sign_report
from irwm.report.value_states import Place, field_of
from irwm.report.verify import verified
from tests.report.leaves import changed, few_of_each, forgeries
from tests.report.of_jobs import Desk, brought_by

pytestmark = pytest.mark.slow

# A lab never passes, since its attacks are not run again.
KINDS = ("report", "dispute", "sweep")
# The inputs of a kind are divided among this many tests; `make slow` runs one for each kind.
PARTS = 8
# Number of other values tried for each input.
TRIED = 1


class Signed:
    """Successive reports, signed with the identity and the audit log of the real one."""

    def __init__(self, desk: Desk, path: Path, folder: Path, brought: Brought) -> None:
        self.document: dict[str, Any] = json.loads(path.read_bytes())
        self._folder, self._name, self._brought = folder, path.name, brought
        signature = json.loads(path.with_name(f"{path.stem}.signature.json").read_bytes())
        audit = signature["audit"]
        self._signer = Signer(desk.vault.sign, desk.identity, signature["signed_utc"], audit["head"], audit["entries"])
        for neighbour in path.parent.glob("suspect-*.json"):
            if not neighbour.name.endswith(".signature.json"):
                (folder / neighbour.name).write_bytes(neighbour.read_bytes())

    def verified(self, document: dict[str, Any]) -> Verification:
        """The verifier's result for the document without pages, which an insider could draw again."""
        path = self._folder / self._name
        path.write_bytes(to_json(document))
        made = sign_report({path.name: path.read_bytes()}, self._signer)
        path.with_name(f"{path.stem}.signature.json").write_bytes(made)
        return verified(path, self._brought)

    def listed_or_refused(self, place: Place, value: Any) -> bool:
        outcome = self.verified(changed(self.document, place, value))
        # If it passes, no result depends on the value, and the verifier lists it as only stated by the signer.
        return outcome.exit_code != 0 or field_of(place) in outcome.states.fields["stated"]


@pytest.fixture(scope="module")
def reports(desk: Desk, files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Signed]:
    log = desk.exported_log()
    return {
        kind: Signed(desk, path, tmp_path_factory.mktemp(kind), brought_by(desk, kind, log))
        for kind, path in files.items()
    }


@pytest.mark.fault(89)
@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_input_never_passes_unless_it_is_listed(reports: dict[str, Signed], kind: str, part: int) -> None:
    report = reports[kind]
    honest = report.verified(report.document)
    assert honest.exit_code == 0, honest.result
    # A change within the tolerance of two runs is not an alteration.
    passed = [
        field_of(place)
        for place, value in few_of_each(report.document)[part::PARTS]
        for forged in [f for f in forgeries(place, value, report.document) if not same(value, f)][:TRIED]
        if not report.listed_or_refused(place, forged)
    ]
    assert passed == []
