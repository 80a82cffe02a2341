"""IRWM Studio: `python app.py`, then open the address it prints; `python app.py --help` for release pipelines.

The pages are listed in `ui.frame`. A command (`ui.command`) never imports Gradio, and `--help` imports very little.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] = ()) -> int:
    """Serve the pages, or run the command in the arguments, and return the exit status."""
    os.umask(0o077)
    if arguments:
        from ui.command.main import main as command

        return command(arguments)
    return serve()


def serve() -> int:
    """Read the settings, open the app's storage, build the pages and serve them until interrupted."""
    from irwm.errors import IrwmError
    from storage.jobs import Jobs
    from storage.paths import HOME_VARIABLE, check_home
    from ui import frame, server
    from ui.components.header import settle_device
    from ui.context import Context
    from ui.guard import Callers
    from ui.jobs import orphans
    from ui.sessions import Sessions
    from ui.settings import REPOSITORY, Settings

    # A service manager's stop must also remove uploaded files.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        settings = Settings.from_environment()
        named = bool(os.environ.get(HOME_VARIABLE))
        temp = Path(tempfile.gettempdir())
        # Gradio can serve files of the working folder, so the app changes to its own folder. Settings and temp folder
        # are resolved before, relative to the folder in which it was started.
        os.chdir(REPOSITORY)
        for warning in check_home(settings.home, Path.cwd(), temp, allow_temp=named):
            print(f"Note: {warning}", file=sys.stderr)
        jobs = Jobs(settings.home)
        orphans.interrupt_dead(jobs)
        settings, device = settle_device(settings)
        if settings.note is not None:
            print(f"Note: {settings.note}", file=sys.stderr)
        context = Context(settings, Sessions(settings.home, idle_seconds=settings.preferences.idle_seconds), jobs)
        blocks = frame.build(context, device)
        callers = Callers(context.sessions.is_open, context.sessions.is_known, context.sessions.renew)
        server.launch(blocks, settings, callers, lambda: context.settings, block=True)
    except IrwmError as error:
        print(f"IRWM Studio cannot start: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # during the start
        return 0
    return 0


if __name__ == "__main__":
    # No child process imports modules from the folder in which it is started.
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.exit(main(sys.argv[1:]))
