"""The public names of `irwm`, and imports that must not load torch; `lint-imports` checks the layers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import irwm

ROOT = Path(__file__).parents[1]
CACHE = re.compile(r"\b(lru_cache|functools\.cache|import .*\bcache)\b")


def test_examinations_keep_no_state_in_modules() -> None:
    """A module's cache outlives the examination that filled it, and hides who shares it."""
    parts = (ROOT / "irwm" / name for name in ("alignment", "evidence", "tracing"))
    paths = [ROOT / "irwm" / "scheme" / "invariant.py", *(path for part in parts for path in part.rglob("*.py"))]
    assert [path for path in paths if CACHE.search(path.read_text(encoding="utf-8"))] == []
    assert CACHE.search((ROOT / "irwm" / "keys" / "digests.py").read_text(encoding="utf-8")), "the rule sees a cache"


@pytest.mark.parametrize("module", ["storage", "storage.vault", "storage.jobs", "irwm.errors", "ui.settings"])
def test_imports_without_tensors_do_not_load_torch(module: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", f"import {module}, sys; print('torch' in sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == "False"


# Adding or removing one changes what users of the library can rely on.
PUBLIC = [
    "Alignment", "Answers", "Branch", "Checkpoint", "ChosenPrompts", "Comparison", "Descent", "Examination",
    "Finding", "IrwmError", "Key", "Lineage", "Manifest", "Parameters", "Reading", "RecordedAnswers", "Release",
    "Trace", "Tracing", "align", "answers_from_responses", "attacks", "choose_prompts", "compare_originals",
    "decoy_key", "detect", "detect_answers", "detect_each", "find_checkpoints", "generate_key", "insert",
    "many_recipients", "map_descent", "one_owner", "open_checkpoint", "open_suspect", "random_user_probability",
    "read_answers", "read_responses", "success_probability", "suspect_from_answers", "trace", "trace_answers",
    "wrong_user_probability",
]  # fmt: skip


def test_irwm_exports_exactly_its_public_names() -> None:
    assert sorted(irwm.__all__) == sorted(PUBLIC)
    python = (ROOT / "docs" / "features.md").read_text(encoding="utf-8").split("## Python")[1]
    assert set(re.findall(r"`(\w+)`", python)) == {"irwm", *PUBLIC}
    for name in irwm.__all__:
        assert getattr(irwm, name) is not None
        assert name in dir(irwm)
    assert irwm.evidence.__name__ == "irwm.evidence"
    with pytest.raises(AttributeError):
        irwm.nothing_of_the_kind  # noqa: B018
    with pytest.raises(ImportError):
        from irwm import nothing_else_either  # noqa: F401
