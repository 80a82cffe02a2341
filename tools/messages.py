"""Keep the catalogues of `irwm.language` up to date with the messages in the code.

    python -m tools.messages [--check]

A message is a text for people: a string, an f-string, or a piece of a template. Each catalogue gets the new messages
without a translation, and loses those that the code no longer has; a message that the code composes is entered
manually, with the flag "composed". Messages for developers have the flag "internal" and need no translation. --check
changes no file, and fails if a translation does not fit its message.
"""

from __future__ import annotations

import argparse
import ast
import re
import string
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polib

from irwm.language.catalogue import paragraphs
from irwm.language.markup import messages_of
from irwm.language.tags import ANY_MARK, marked

ROOT = Path(__file__).resolve().parents[1]
CATALOGUES = tuple(sorted((ROOT / "irwm" / "language").glob("*.po")))
FOLDERS = ("irwm", "storage", "ui")
# Printed in a terminal, which shows English, or read by programs.
LEFT_OUT = (
    "irwm/__main__.py", "irwm/language", "irwm/report/schema.py", "storage/schema.py", "ui/command", "ui/offline.py",
    "ui/theme.py",
)  # fmt: skip
TEMPLATES = "irwm/report/templates/*.j2"
COMPOSED, INTERNAL = "composed", "internal"
_WORD = re.compile(r"[A-Za-z]{2,}")
# One word that may be a text, and a program in a string.
_ALONE = re.compile(r"[^\w\s]*[A-Z][a-z’'-]+[^\w\s]*")
_CODE = re.compile(r"=>|document\.|\bvar\(--|^SELECT |^INSERT |^UPDATE |^DELETE |^PRAGMA |\(\?[:P=!]")
# Calls whose strings nobody reads.
_SILENT = re.compile(
    r"cast|compile|execute|executemany|executescript|getattr|hasattr|setattr|find_spec|"
    r"import_module|removeprefix|removesuffix|startswith|endswith|split|rsplit|partition|"
    r"rpartition|TypeVar|Literal|encode|fullmatch|match|search|sub|findall|finditer|strftime|"
    r"strptime|get_template|joinpath|AssertionError|RuntimeError"
)
_JINJA = re.compile(r"\{\{(?P<value>.*?)\}\}|\{%-?\s*(?P<block>.*?)\s*-?%\}|\{#.*?#\}", re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')


@dataclass(frozen=True)
class Message:
    """A message in the code.

    Attributes:
        text: with numbered places.
        values: the expressions in its places.
        where: file and line.
    """

    text: str
    values: tuple[str, ...]
    where: tuple[str, int]


def messages() -> Iterator[Message]:
    """Every message in the code, in the order of the files; some more than once."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(LEFT_OUT):
                yield from _of_module(name, ast.parse(path.read_text(encoding="utf-8")))
    for path in sorted(ROOT.glob(TEMPLATES)):
        yield from _of_template(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def _of_module(name: str, tree: ast.Module) -> Iterator[Message]:
    for text, line in _counted(tree):
        yield from _split(text, [], (name, line))
    for node, in_text in _strings(tree):
        text, values = _format(node)
        for message in _split(text, values, (name, node.lineno)):
            fixed = _fixed(message.text).strip()
            is_text = " " in fixed or _ALONE.fullmatch(fixed) or (in_text and fixed.isalpha())
            if is_text and not _CODE.search(message.text):
                yield message


def _counted(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The messages of `counted(number, "copy", "copies")`: one thing, and several of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "counted":
            constants = [part.value for part in node.args[1:] if isinstance(part, ast.Constant)]
            nouns = [value for value in constants if isinstance(value, str)]
            for noun in nouns if len(nouns) != 1 else [nouns[0], f"{nouns[0]}s"]:
                yield f"{{}} {noun}", node.lineno


def _strings(node: ast.AST, in_text: bool = False) -> Iterator[tuple[ast.Constant | ast.JoinedStr, bool]]:
    """The strings below a node that may be text, and whether they are values in a text."""
    if isinstance(node, ast.JoinedStr):
        yield node, in_text
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value, True)
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node, in_text
        return
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        # The text before ".split()" is not read by anyone, but the text before ".format()" is.
        if _SILENT.fullmatch(called):
            return
    if isinstance(node, ast.Subscript):
        in_text = False
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params") or (field == "slice" and isinstance(node, ast.Subscript)):
            continue
        children = value if isinstance(value, list) else [value]
        if field == "body" and children and _says(children[0]):
            children = children[1:]
        for child in children:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Assert):
                yield from _strings(child, in_text and not isinstance(node, ast.Compare))


def _says(statement: object) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _format(node: ast.Constant | ast.JoinedStr) -> tuple[str, list[str]]:
    """The string with "{}" for each value, and the values."""
    if isinstance(node, ast.Constant):
        text = str(node.value)
        places = re.findall(r"\{(\w*)[^{}]*\}", text)
        if "{" in text and "}" in text and len(places) == text.count("{") == text.count("}"):
            return re.sub(r"\{\w*[^{}]*\}", "{}", text), list(places)
        return text.replace("{", "{{").replace("}", "}}"), []
    text = ""
    values: list[str] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            text, values = text + "{}", [*values, ast.unparse(part.value)]
        else:
            assert isinstance(part, ast.Constant)
            text += str(part.value).replace("{", "{{").replace("}", "}}")
    return text, values


def _split(text: str, values: list[str], where: tuple[str, int]) -> Iterator[Message]:
    """The messages in one string: its paragraphs, and the texts between its tags."""
    at = 0
    for run in messages_of(text) if re.search(r"</?[a-z]", text) else [text]:
        for _, part in paragraphs(run):
            fixed = re.sub(r"<code>[^<]*</code>", "<code>…</code>", part)
            lost = part.count("{}") - fixed.count("{}")
            count = fixed.count("{}")
            names = values[at : at + count]
            at += count + lost
            bare = " ".join(fixed.split())
            if _WORD.search(_fixed(bare)):
                yield Message(_numbered(bare), tuple(names), where)


def _numbered(text: str) -> str:
    pieces = text.split("{}")
    return "".join(f"{piece}{{{i}}}" for i, piece in enumerate(pieces[:-1])) + pieces[-1]


def _fixed(text: str) -> str:
    return re.sub(r"\{\d*\}", " ", ANY_MARK.sub(" ", marked(text)))


def _of_template(name: str, source: str) -> Iterator[Message]:
    """The messages of a template: a condition inside a sentence is a place, and its text is a message of its own."""
    texts: list[tuple[str, int]] = [("", 1)]
    opened: list[tuple[str, int]] = []
    at = 0
    for tag in _JINJA.finditer(source):
        line = source.count("\n", 0, tag.start()) + 1
        texts[-1] = (texts[-1][0] + source[at : tag.start()], texts[-1][1])
        at = tag.end()
        block = tag["block"]
        quoted = _QUOTED.findall(tag["value"] or block or "")
        for text in quoted:
            if re.match(r"\W*[A-Z][a-z]|.* ", text) or (tag["value"] and " if " in tag["value"]):
                yield from _split(text.replace("{", "{{").replace("}", "}}"), [], (name, line))
        if tag["value"] is not None:
            texts[-1] = (texts[-1][0] + "{}", texts[-1][1])
        elif block is not None:
            word = block.split(None, 1)[0]
            if word in ("if", "for", "call", "macro") or (word == "set" and "=" not in block):
                opened.append((word, line))
                texts.append(("", line))
            elif word in ("else", "elif"):
                yield from _split(texts[-1][0], [], (name, line))
                texts[-1] = ("", line)
            elif word.startswith("end"):
                inner, began = texts.pop()
                opened.pop()
                yield from _split(inner, [], (name, began))
                is_inline = word in ("endif", "endfor") and "\n" not in inner and "<p" not in inner
                texts[-1] = (texts[-1][0] + ("{}" if is_inline else "<hr>"), texts[-1][1])
    yield from _split(texts[0][0] + source[at:], [], (name, 1))


def update(path: Path) -> None:
    """Bring one catalogue up to date."""
    catalogue = polib.pofile(str(path), wrapwidth=120)
    known = {entry.msgid: entry for entry in catalogue}
    found: dict[str, polib.POEntry] = {}
    for message in messages():
        entry = found.get(message.text)
        if entry is None:
            old = known.get(message.text)
            entry = polib.POEntry(
                msgid=message.text,
                msgstr=old.msgstr if old else "",
                flags=[flag for flag in old.flags if flag != COMPOSED] if old else [],
                comment=", ".join(f"{{{i}}} = {value}" for i, value in enumerate(message.values) if value),
            )
            found[message.text] = entry
        if (message.where[0], "") not in entry.occurrences:
            entry.occurrences.append((message.where[0], ""))
    composed = [entry for entry in catalogue if COMPOSED in entry.flags and entry.msgid not in found]
    catalogue[:] = [*found.values(), *composed]
    catalogue.save()


def faults(path: Path) -> Iterator[str]:
    """Translations that do not fit their message."""
    for entry in polib.pofile(str(path)):
        if not entry.msgstr:
            continue
        try:
            pairs = [sorted(_places(text)) for text in (entry.msgid, entry.msgstr)]
        except ValueError as error:
            yield f"{path.name}:{entry.linenum}: {error}"
            continue
        if not set(pairs[1]) <= set(pairs[0]):
            yield f"{path.name}:{entry.linenum}: other places than in {entry.msgid!r}"
        tags = [sorted(ANY_MARK.findall(marked(text))) for text in (entry.msgid, entry.msgstr)]
        if tags[0] != tags[1]:
            yield f"{path.name}:{entry.linenum}: other tags than in {entry.msgid!r}"


def _places(text: str) -> Iterator[int]:
    for _, name, _, _ in string.Formatter().parse(text):
        if name is not None:
            yield int(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change no file; fail if a translation does not fit")
    check = parser.parse_args().check
    wrong: list[str] = []
    for path in CATALOGUES:
        if not check:
            update(path)
        wrong += faults(path)
        catalogue = polib.pofile(str(path))
        needed = [entry for entry in catalogue if INTERNAL not in entry.flags]
        print(f"{path.name}: {sum(bool(entry.msgstr) for entry in needed)} of {len(needed)} messages translated")
    print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
