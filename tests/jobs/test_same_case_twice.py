"""One case examined twice gives the same bytes except times, and the same figures; threads change no number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import irwm
from irwm.report import from_json, to_json
from irwm.report.document import plain, without_times
from irwm.report.figures import document_figures
from irwm.report.reproduction import same
from tools.waiting import PATIENCE

# Runs the same case in several processes, once for the whole module.
pytestmark = pytest.mark.slow

# Each run has its own process, like a job; threads are set before anything is loaded.
RUN = """
import sys, torch
torch.set_num_threads(int(sys.argv[1]))
import irwm
from pathlib import Path
from types import SimpleNamespace
from ui.services.examining import ExamineRequest, Examiner, Keys
from irwm.report import to_json


original, suspect = (irwm.open_checkpoint(path) for path in sys.argv[2:4])
key = irwm.Key.from_bytes(Path(sys.argv[4]).read_bytes())
work = SimpleNamespace(progress=lambda *_: None, log=lambda *_: None, cancelled=lambda: False)
asked = ExamineRequest(original=sys.argv[2], decoys=400)
examiner = Examiner(original, Keys(("1",), (key,), (), 1), asked, None, Path(sys.argv[5]))
examined = examiner.examine(suspect, "cpu", work)
document = examined.document(suspect, original, {"Case": "7"}, {"Device": "cpu", "Seconds": sys.argv[6]}, work)
Path(sys.argv[5], "report.json").write_bytes(to_json(document))
"""


@pytest.fixture(scope="module")
def documents(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """One case: twice on one thread, once on two."""
    root = tmp_path_factory.mktemp("case")
    model = irwm.open_checkpoint(tiny_path)
    key = irwm.generate_key(model, secret=bytes(32), owner="Acme", recipient="Northwind")
    irwm.insert(model, key, root / "release")
    (root / "key").write_bytes(key.to_bytes())
    found = []
    for run, threads in enumerate((1, 1, 2)):
        folder = root / str(run)
        folder.mkdir()
        command = [sys.executable, "-c", RUN, str(threads), tiny_path, root / "release", root / "key", folder, str(run)]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run(list(map(str, command)), check=True, env=environment, timeout=PATIENCE)
        found.append(from_json((folder / "report.json").read_bytes()))
    return found


def test_same_case_gives_the_same_bytes_except_times(documents: list[dict]) -> None:
    one, two, _ = documents
    assert to_json(without_times(one)) == to_json(without_times(two))
    assert one["extra"]["Seconds"] != two["extra"]["Seconds"]


def test_same_case_gives_equal_figures(documents: list[dict]) -> None:
    one, two, _ = (
        {name: figure.to_json() for name, figure in document_figures(document).items()} for document in documents
    )
    assert one == two
    assert "figure-decoys" in one


@pytest.mark.fault(37)
def test_another_number_of_threads_gives_the_same_within_the_stated_tolerance(documents: list[dict]) -> None:
    def differences(where: str, a, b) -> list[str]:
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            return [found for name in a for found in differences(f"{where}.{name}", a[name], b[name])]
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            return [
                found for i, pair in enumerate(zip(a, b, strict=True)) for found in differences(f"{where}[{i}]", *pair)
            ]
        return [] if where.endswith(".sha256") or same(a, b) else [f"{where}: {a} and {b}"]

    one, _, other = (json.loads(json.dumps(plain(without_times(document)))) for document in documents)
    assert differences("", one, other) == []
