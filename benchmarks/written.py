"""Tables in docs/ that a command writes: each stands between two markers, and nothing else of its page is touched."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def write_table(page: str, name: str, text: str) -> None:
    """Put `text` between `<!-- name -->` and `<!-- /name -->` of docs/`page`.

    Raises:
        SystemExit: the page has no such place.
    """
    path = DOCS / page
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no place for {name}: {begin.strip()} and {end}")
    path.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
