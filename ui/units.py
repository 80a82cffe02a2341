"""Amounts in a readable form."""

from __future__ import annotations


def size_text(size: float) -> str:
    """A number of bytes with three figures, in the decimal units used for disks and downloads."""
    if size == 1:
        return "1 byte"
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
