"""The presets' names, apart from what they are, so that a command's `--help` needs no library."""

from __future__ import annotations

STANDARD, MANY, PAPER = "Standard", "Many recipients", "Paper"
# As a command line and a program say them.
TYPED = {"standard": STANDARD, "many": MANY, "paper": PAPER}
