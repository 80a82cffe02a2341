"""The app with an idle clock that a test moves, and pages that poll often; `python -m tests.faults.idle_app`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

NAME = "later"  # a file next to the home folder with the seconds that the clock is ahead


def move_clock(folder: Path, seconds: float) -> None:
    """Makes the app whose home is in the folder believe that it is this many seconds later."""
    new = folder / f"{NAME}.new"
    new.write_text(f"{seconds}", encoding="ascii")
    new.replace(folder / NAME)


def main() -> int:
    """The app, as `app.main` runs it."""
    import ui  # noqa: F401  # isort: skip  # before Gradio

    import app
    from storage.session import time_awake_or_asleep
    from ui import sessions
    from ui.components import lock_gate

    later = Path(os.environ["IRWM_HOME"]).with_name(NAME)

    def clock() -> float:
        return time_awake_or_asleep() + (float(later.read_text(encoding="ascii")) if later.exists() else 0.0)

    class Sessions(sessions.Sessions):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, monotonic=clock, **settings)

    sessions.Sessions = Sessions  # type: ignore[misc]
    lock_gate.WATCH_SECONDS = 0.5
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
