"""One page of the reproduction: Markdown with tables, and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.reproduce import figures

Record = Mapping[str, Any]
NOTHING = "-"


class Page:
    """Collects a page and writes it with its figures."""

    def __init__(self, out: Path, name: str, title: str) -> None:
        self.out, self.name = out, name
        self._lines = [f"# {title}", ""]
        self._figures: dict[str, Figure] = {}

    def text(self, *paragraphs: str) -> None:
        for each in paragraphs:
            self._lines += [each, ""]

    def heading(self, text: str) -> None:
        self._lines += [f"## {text}", ""]

    def bullets(self, *items: str) -> None:
        self._lines += [*(f"- {item}" for item in items), ""]

    def table(self, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self._lines += [*table(header, rows), ""]

    def figure(self, name: str, figure: Figure, alt: str) -> None:
        file = f"{self.name}-{name}.svg"
        self._figures[file] = figure
        self._lines += [f"![{alt}]({file})", ""]

    def settings(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Add the table of all differences in settings between the paper and this run."""
        self.heading("Settings")
        self.table(("", "paper", "here"), rows)

    def write(self) -> Path:
        self.out.mkdir(parents=True, exist_ok=True)
        for old in self.out.glob(f"{self.name}-*.svg"):
            old.unlink()
        for file, figure in self._figures.items():
            figures.save(figure, self.out / file)
        path = self.out / f"{self.name}.md"
        path.write_text("\n".join(self._lines).rstrip() + "\n", encoding="utf-8")
        return path


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return lines + [f"| {' | '.join(cell(each) for each in row)} |" for row in rows]


def cell(value: Any) -> str:
    text = NOTHING if value is None or value == "" else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def percent(value: float | str | None, digits: int = 0) -> str:
    """Format a share as "84 %"."""
    return str(value or NOTHING) if not isinstance(value, (int, float)) else f"{100 * value:.{digits}f} %"


def change(value: float | str | None) -> str:
    """Format a relative change as "+3.1 %", or as "× 45" if it is large."""
    if not isinstance(value, (int, float)):
        return str(value or NOTHING)
    if value >= 9:
        return f"× {1 + value:,.0f}".replace(",", " ")
    # A change that rounds to zero must not look like a loss.
    return f"{100 * value:+.{1 if abs(value) < 0.995 else 0}f} %".replace("-0.0 %", "+0.0 %")


def counted(reading: Record | None) -> str:
    """Format the matching positions among those present, and whether the paper's rule is met: "46 of 50, met"."""
    if not reading or not reading["present"]:
        return "not readable"
    return f"{reading['count']} of {reading['present']}, {'met' if reading['passes'] else 'not met'}"


def share(reading: Record | None) -> float | None:
    """Return the share of present positions with a rank below beta."""
    return reading["count"] / reading["present"] if reading and reading["present"] else None


def odds(log10: float | str | None) -> str:
    """Format a chance from its logarithm: "10^-88", or "1" if it is close to 1."""
    if not isinstance(log10, (int, float)):
        return str(log10 or NOTHING)
    return f"10^{log10:.0f}" if log10 < -0.5 else "1"


def utility(record: Record) -> str:
    """Format the utility of an attacked model: change of perplexity, or an encoder's cosine."""
    measured = record["utility"]
    if measured is None:
        return "not measured"
    if measured["similarity"] is not None:
        return f"cosine {measured['similarity']:.3f}"
    return change(measured["change"])
