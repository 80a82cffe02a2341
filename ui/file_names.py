"""Names of the files that a user gets: each says what the file is, and of which model, recipient or case."""

from __future__ import annotations

import unicodedata

# Characters of a name without its ending; the longest endings have 30, and file systems allow 255 bytes.
LONGEST = 80


def plain_name(what: str, *whose: str, mark: str = "") -> str:
    """A file name, without its ending, that every system accepts: words that are empty are left out.

    Args:
        mark: a few characters at the end, never cut, that tell files with the same words apart. A browser would rename
            the second file, and a report's signature names its files.
    """
    text = "-".join((what, *filter(None, whose)))
    parted = (c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))  # é becomes e
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in parted)
    end = f"-{mark}" if mark else ""
    return (kept[: LONGEST - len(end)].strip("-.") or "file") + end
