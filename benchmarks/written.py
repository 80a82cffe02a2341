"""Tables in docs/ that a command writes: each is between two markers, and the rest of its page is not changed.

    python -m benchmarks.written [--mark | --run]

Below the first marker are the command and a digest of the code that it ran (`benchmarks.sources`). Without an option,
this prints each table's command and whether the code has changed since. --mark adds a note above every table that is
older than the code. --run (`make docs`) runs the commands of these tables, some of which take hours.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from benchmarks.sources import digest, module_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
STAMP = re.compile(r"^<!-- python -m (?P<module>[\w.]+)(?P<options>.*), from sources (?P<sources>\w+) -->\n", re.M)
OLDER = "*These figures are older than the code they depend on; `make docs` measures them again.*\n"


@dataclass(frozen=True)
class Stamp:
    """The command that wrote a table or a page."""

    page: Path
    module: str
    options: str
    sources: str

    @property
    def command(self) -> str:
        return f"python -m {self.module}{self.options}"

    @property
    def older(self) -> bool:
        """Whether the code that the command runs has changed since then."""
        return digest(module_of(self.module, self.options)) != self.sources


def stamp(command: str, sources: str) -> str:
    """Return the line with the command that wrote a table or a page.

    Args:
        command: "python -m MODULE" with its arguments.
        sources: `digest` of its `module_of` when the figures were measured.
    """
    return f"<!-- {command}, from sources {sources} -->\n"


def _running() -> str:
    """Return the `stamp` of the running command."""
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    options = " ".join(sys.argv[1:])
    return stamp(f"python -m {module} {options}".rstrip(), digest(module_of(module, options)))


def require_places(page: str, names: Sequence[str]) -> None:
    """Check that docs/`page` has the markers of these tables, before they are measured.

    Raises:
        SystemExit: it has not.
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    for name in names:
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if end not in text.partition(begin)[2]:
            raise SystemExit(f"{DOCS / page} has no place for {name}: add {begin.strip()} and {end}")


def write_table(page: str, name: str, text: str) -> None:
    """Put `text` between `<!-- name -->` and `<!-- /name -->` of docs/`page`, below the line with its command.

    Raises:
        SystemExit: the page has no such markers.
    """
    require_places(page, [name])
    path = DOCS / page
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}{_running()}\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


@contextlib.contextmanager
def printed_table(page: str, name: str, *, write: bool) -> Iterator[None]:
    """Print as usual inside the context, and if `write`, put the output into docs/`page` like `write_table`.

    Raises:
        SystemExit: the page has no such markers, before the work starts.
    """
    if write:
        require_places(page, [name])
    kept = _Beside(sys.stdout)
    with contextlib.redirect_stdout(kept):
        yield
    if write:
        write_table(page, name, kept.getvalue())


class _Beside(io.StringIO):
    """Record the output and print it."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def write(self, text: str) -> int:
        self._out.write(text)
        return super().write(text)

    def flush(self) -> None:
        self._out.flush()


def stamps() -> list[Stamp]:
    """Return the stamps of all pages, in order."""
    pages = sorted(DOCS.rglob("*.md"))
    return [
        Stamp(page, found["module"], found["options"], found["sources"])
        for page in pages
        for found in STAMP.finditer(page.read_text(encoding="utf-8"))
    ]


def commands(older: Iterable[str]) -> list[str]:
    """Return each command once, without those that another one includes: all experiments of one module, or one of
    them."""
    every = dict.fromkeys(older)
    return [command for command in every if command.partition(" --only ")[0] not in every.keys() - {command}]


def run(older: Iterable[str]) -> list[str]:
    """Run these commands, and return those that failed: one without its tool must not end a run of hours."""
    failed = []
    for command in older:
        print(f"\n{command}", flush=True)
        if subprocess.run([sys.executable, *command.split()[1:]], cwd=DOCS.parent).returncode:
            failed.append(command)
    return failed


def mark(page: Path) -> None:
    """Add or remove the note above each table that it is older than the code."""

    def headed(found: re.Match[str]) -> str:
        older = digest(module_of(found["module"], found["options"])) != found["sources"]
        return found[0] + (f"\n{OLDER}" if older else "")

    text = page.read_text(encoding="utf-8").replace(f"-->\n\n{OLDER}", "-->\n")
    page.write_text(STAMP.sub(headed, text), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--mark", action="store_true", help="add a note above each table that is older")
    what.add_argument("--run", action="store_true", help="run the commands of older tables")
    options = parser.parse_args()
    found = stamps()
    for one in found:
        print(f"{'older' if one.older else 'today'}  {one.page.relative_to(DOCS)}  {one.command}", flush=True)
    failed = run(commands(one.command for one in found if one.older)) if options.run else []
    if options.mark or options.run:
        for page in dict.fromkeys(one.page for one in found):
            mark(page)
    if failed:
        raise SystemExit("\n".join(["These commands failed, and their tables were not written:", *failed]))


if __name__ == "__main__":
    main()
