"""The presets' names, apart from what they are, so that a command's `--help` needs no library."""

from __future__ import annotations

ROBUST, HIDDEN, MANY = "Robust", "Hidden", "Many recipients"
# As a command line and a program say them.
TYPED = {"robust": ROBUST, "hidden": HIDDEN, "many": MANY}
