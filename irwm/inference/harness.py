"""Benchmarks of lm-evaluation-harness [1] on a model folder, for users who have it and its data.

[1] https://github.com/EleutherAI/lm-evaluation-harness, the package lm-eval (requirements-harness.txt).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irwm.errors import IrwmError, NotACheckpointError, ParameterError


class HarnessMissingError(IrwmError):
    """lm-eval is not installed."""


class HarnessError(IrwmError):
    """lm-eval could not run a task: an unknown name, data that are not on this machine, a model that it cannot open."""


@dataclass(frozen=True, slots=True)
class Score:
    """One figure of one task.

    Attributes:
        task: its name.
        metric: such as "acc" or "word_perplexity", with the filter's name, if any, after a comma.
        value: the figure.
        error: its standard error as estimated by the harness; None without an estimate.
        samples: number of questions; None if the harness does not report it.
    """

    task: str
    metric: str
    value: float
    error: float | None
    samples: int | None


def evaluate(
    model_dir: str | Path,
    tasks: Sequence[str],
    task_folder: str | Path | None = None,
    *,
    device: str = "cpu",
    limit: int | None = None,
    batch: int = 1,
    shots: int | None = None,
) -> tuple[Score, ...]:
    """Run tasks of the harness on a model, in float32 on the weights as stored.

    The harness loads a task's data from the location in the task. To prevent network access, set HF_HUB_OFFLINE=1
    before Python starts, as `python -m irwm.inference benchmark` does.

    Args:
        model_dir: a model folder that transformers opens.
        tasks: names that the harness knows, or of the YAML files in `task_folder`.
        task_folder: a folder of your own tasks.
        limit: maximum questions of each task.
        batch: questions per batch.
        shots: examples before each question; None for the task's own number.

    Returns:
        Every figure of every task, in the order of their names.

    Raises:
        HarnessMissingError: lm-eval is not installed.
        HarnessError: it failed; the message gives its error.
        ParameterError: no task is named.
        NotACheckpointError: `model_dir` is not a folder.
    """
    if not tasks:
        raise ParameterError("no task was specified", expected="at least one")
    folder = Path(model_dir)
    if not folder.is_dir():
        raise NotACheckpointError("there is no model folder at this path", file=folder)
    try:
        import lm_eval
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise HarnessMissingError(
            "benchmarks require the lm-eval package",
            found=str(error),
            advice="pip install -r requirements-harness.txt",
        ) from error
    try:
        found = lm_eval.simple_evaluate(
            model="hf",
            model_args={"pretrained": str(folder), "dtype": "float32", "trust_remote_code": False},
            tasks=list(tasks),
            task_manager=TaskManager(include_path=None if task_folder is None else str(task_folder)),
            device=device,
            limit=limit,
            batch_size=batch,
            num_fewshot=shots,
            log_samples=False,
            **dict.fromkeys(("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed"), 0),
        )
    except Exception as error:  # the harness raises errors of any class
        raise HarnessError(
            "lm-evaluation-harness could not run these tasks",
            file=folder,
            found=f"{type(error).__name__}: {str(error)[:300]}",
            advice="Check the task names, and make sure that the tasks' data is on this machine",
        ) from error
    return _scores(found)


def _scores(found: Any) -> tuple[Score, ...]:
    """The harness's results: figures are under "metric,filter", their errors under "metric_stderr,filter"."""
    scores = []
    for task, figures in sorted(found["results"].items()):
        samples = (found.get("n-samples", {}).get(task) or {}).get("effective")
        for label, value in sorted(figures.items()):
            metric, _, chosen = label.partition(",")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or metric.endswith("_stderr"):
                continue
            if not chosen and metric in ("alias", "sample_len", "sample_count"):
                continue
            error = figures.get(f"{metric}_stderr,{chosen}")
            scores.append(
                Score(
                    task=task,
                    metric=metric if chosen in ("", "none") else label,
                    value=float(value),
                    error=float(error) if isinstance(error, (int, float)) else None,
                    samples=samples,
                )
            )
    return tuple(scores)
