"""The app with an idle time of seconds, which no setting allows; `python -m tests.faults.idle_app`, by test_web."""

from __future__ import annotations

import sys

import ui  # noqa: F401  # isort: skip  # before Gradio

from ui.components import lock_gate
from ui.preferences import Preferences

IDLE_SECONDS = 4.0
lock_gate.WATCH_SECONDS = 1.0
Preferences.idle_seconds = property(lambda self: IDLE_SECONDS)  # type: ignore[assignment, method-assign]

if __name__ == "__main__":
    import app

    sys.exit(app.main())
