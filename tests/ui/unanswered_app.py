"""The app on a machine that is too busy to answer Gradio's own question within three seconds."""

from __future__ import annotations

import sys

import ui  # noqa: F401  # isort: skip  # before Gradio

from gradio import networking

if __name__ == "__main__":
    import app

    networking.url_ok = lambda url: False
    sys.exit(app.main([]))
