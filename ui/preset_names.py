"""The presets' names, separate from their values, so that a command's `--help` needs no library."""

from __future__ import annotations

STANDARD, MANY, PAPER = "Standard", "Many recipients", "Paper"
# The names for the command line and for programs.
TYPED = {"standard": STANDARD, "many": MANY, "paper": PAPER}
