"""lm-evaluation-harness on a model: a real run if it is installed, and a clear error if it is not.

The tests do not require lm-eval. Without it only the real runs are skipped. To install it, run
`pip install -r requirements-harness.txt`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from irwm.errors import NotACheckpointError, ParameterError
from irwm.inference.harness import HarnessError, HarnessMissingError, Score, _scores, evaluate
from tools.waiting import PATIENCE

needs_harness = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm-eval is not installed (requirements-harness.txt)"
)
QUESTIONS = [
    {"question": "def f(x):\n    return", "choices": [" x", " ]]"], "answer": 0},
    {"question": "This module", "choices": [" %%", " is"], "answer": 1},
    {"question": "The function returns a", "choices": [" list", " (("], "answer": 0},
]
TASK = """\
task: two_choices
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    """A task of three questions with local data, so that no download is needed."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    data = folder / "questions.jsonl"
    data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS), encoding="utf-8")
    (folder / "two_choices.yaml").write_text(TASK.format(data=data), encoding="utf-8")
    return folder


def test_missing_package_error_gives_install_command(demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(HarnessMissingError):
        evaluate(demo_path, ["two_choices"])


def test_missing_task_or_model_is_refused(demo_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError):
        evaluate(demo_path, [])
    with pytest.raises(NotACheckpointError):
        evaluate(tmp_path / "nothing", ["two_choices"])


def test_the_figures_are_read_with_their_errors() -> None:
    quiz = {"alias": "quiz", "sample_len": 3, "acc,none": 0.5, "acc_stderr,none": 0.1}
    quiz |= {"exact,strict": 1, "exact_stderr,strict": "N/A"}
    found = _scores({"results": {"quiz": quiz}, "n-samples": {"quiz": {"original": 9, "effective": 3}}})
    assert found == (Score("quiz", "acc", 0.5, 0.1, 3), Score("quiz", "exact,strict", 1.0, None, 3))


@needs_harness
def test_custom_task_runs_on_the_demo_model(demo_path: Path, task_folder: Path) -> None:
    """In a separate process, by the command: the harness sets global seeds and prints."""
    command = [sys.executable, "-m", "irwm.inference", "benchmark", str(demo_path), "--tasks", "two_choices"]
    root = Path(__file__).parents[2]
    command += ["--task-folder", str(task_folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=root)
    assert done.returncode == 0, done.stderr
    (score,) = json.loads(done.stdout[done.stdout.index("{") :])[str(demo_path)]
    assert (score["task"], score["metric"], score["samples"]) == ("two_choices", "acc", 3)
    assert score["value"] == 1.0


@needs_harness
@pytest.mark.filterwarnings("ignore")
def test_unknown_task_is_named_in_error(demo_path: Path) -> None:
    with pytest.raises(HarnessError, match="no_such_task"):
        evaluate(demo_path, ["no_such_task"])
