"""A checkpoint on one card: family, geometry, format, size, fingerprint and notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from irwm import Checkpoint
from irwm.checkpoint.card import Card, Stored, Tokenizer, tokenizer_of
from irwm.checkpoint.remote.opening import server_of
from irwm.errors import CheckpointError, printable
from irwm.report.numbers import counted, number
from irwm.scheme.row_pool import row_pool
from ui.components.icons import icon
from ui.components.markup import beneath, facts
from ui.components.notices import copyable, sentence
from ui.units import size_text

# Counting the usable rows takes 9 s per GB of embedding; above this size the user would wait too long.
_MOST_COUNTED = 256 * 1024 * 1024
_MOST_SHARDS = 12
_MOST_FORMATS = 3
_MOST_SAID = 24
# Up to this number of characters, words in a cell are not broken.
_SNUG = 32
_LONGEST_NOTE = 240
_UNKNOWN = "not recognised"
_WITHOUT = {"embedding": "none that the mark can use"}
_SIMILARITIES = "similarities between token embeddings are used instead"
_PENDING = Markup('<span class="pending">reading …</span>')


@dataclass(frozen=True, slots=True)
class Measured:
    """Facts that require reading the weights.

    Attributes:
        fingerprint: of the embedding; "" for a suspect on a server.
        tokenizer: the tokenizer's counts.
        usable: rows that can carry a mark; None if they were not counted.
        problems: errors in the tokenizer's files or the embedding's numbers; a model with errors is not marked.
    """

    fingerprint: str
    tokenizer: Tokenizer
    usable: int | None
    problems: tuple[str, ...]


def measure(model: Checkpoint, *, rows: bool = False) -> Measured:
    """Reads the embedding once for its fingerprint and, with `rows` and if it is small enough, for its usable rows.

    Raises:
        CheckpointError: the embedding cannot be read.
    """
    # Of a suspect on a server, the fingerprint would read the whole embedding before anyone has asked for it.
    fingerprint, tokenizer = "" if server_of(model.path) else model.fingerprint, tokenizer_of(model)
    usable, problems = None, [tokenizer.problem]
    if rows and model.tensors[model.layout.embedding.name].nbytes <= _MOST_COUNTED:
        try:
            usable = row_pool(model).usable().size
        except CheckpointError as error:  # the tokenizer's problem again, or numbers that are not finite
            problems.append(str(error))
    return Measured(fingerprint, tokenizer, usable, tuple(problem for problem in dict.fromkeys(problems) if problem))


def model_html(card: Card, measured: Measured | None = None, *, marking: bool = False, foldable: bool = False) -> str:
    """The card as HTML; the classes are in style.css.

    Args:
        measured: None while it is being read.
        marking: the model will be marked, so show whether it can be, and unfold how everything is stored.
        foldable: everything but its name and size can be folded; studio.js does so when a result is more important.
    """
    inside = _inside(card)
    stored = _table(("Role", "Tensor", "Shape", "Stored as"), map(_role, card.roles), wide=1)
    if marking:
        known = facts([*_model(card), *inside]), facts(_files(card, measured))
        tensors = Markup("<h3>How the tensors are stored</h3>{}").format(stored)
    else:
        known = facts([*_model(card), *_files(card, measured)]), Markup("")
        tensors = _folded("Layers, attention and tensors", facts(inside) + stored)
    parts = [
        _markable(card, measured) if marking else "",
        Markup('<div class="model-facts">{}{}</div>').format(*known),
        facts(_read(card, measured, marking)),
        *_notes(card, measured, marking),
        tensors,
        _folded(f"All {number(sum(one.tensors for one in card.formats))} tensors by number format", _formats(card)),
        _folded(f"Files ({number(len(card.shards))})", _shards(card)),
        _folded(f"Metadata in the file ({len(card.said)})", _said(card)) if card.said else "",
    ]
    name, inner = printable(card.name), Markup("").join(parts)
    head = Markup("<h2>{}</h2>").format(name)
    if foldable:
        brief = f"{card.family or _UNKNOWN}, {size_text(card.nbytes)}"
        inner = Markup(
            '<details class="model-fold" open><summary>{}<span class="model-brief">{}</span></summary>{}</details>'
        ).format(head, brief, inner)
        head = Markup("")
    return str(Markup('<section class="model-card" aria-label="Model {}">{}{}</section>').format(name, head, inner))


def _model(card: Card) -> list[tuple[str, str | Markup]]:
    family = f"{card.family}, recognised by {card.recognised}" if card.recognised else _UNKNOWN
    title = card.title if card.title.casefold() != card.family else ""
    return [
        ("Family", Markup("{}{}").format(family, beneath(title))),
        ("Embedding", f"{number(card.vocab_size)} tokens × {number(card.hidden_size)}"),
    ]


def _inside(card: Card) -> list[tuple[str, str | Markup]]:
    layers = number(card.layers) if card.layers else "cannot be determined from the tensor names"
    if card.layers and card.stated_layers not in (None, card.layers):
        layers = f"{layers} in the files, {number(card.stated_layers or 0)} according to the model’s settings"
    fused = ", fused in one tensor" if card.fused else ""
    heads = (
        f"{counted(card.heads, 'query head')} and {counted(card.kv_heads, 'key head')} of size {card.head_dim}{fused}"
    )
    scores = {"attention": "from " + ", then ".join(card.score), "embedding": _SIMILARITIES}.get(card.scores, _UNKNOWN)
    return [
        ("Layers", layers),
        ("Attention", heads if card.heads else _WITHOUT.get(card.scores, _UNKNOWN)),
        ("q·k", scores),
        ("Output head", _head(card) if card.scores else _UNKNOWN),
    ]


def _head(card: Card) -> str:
    if card.tied:
        return "tied to the embedding" + ("; a copy is stored" if card.head_stored else "")
    return "a separate matrix" if card.head_stored else "a separate matrix, which the files do not contain"


def _files(card: Card, measured: Measured | None) -> list[tuple[str, str | Markup]]:
    formats = [f"{printable(one.dtype)} ({counted(one.tensors, 'tensor')})" for one in card.formats[:_MOST_FORMATS]]
    if len(card.formats) > _MOST_FORMATS:
        formats.append(f"{len(card.formats) - _MOST_FORMATS} more")
    name = dict(card.said).get("name", "")
    called = Markup("{}{}").format(card.format, beneath(f"named {printable(name, 120)} in its metadata"))
    return [
        ("Format", called if name else card.format),
        ("Number format", printable(card.formats[0].dtype) if len(card.formats) == 1 else ", ".join(formats)),
        ("Parameters", _parameters(card.parameters)),
        ("Size", f"{size_text(card.nbytes)} in {counted(len(card.shards), 'weights file')}"),
        ("Tokenizer", _tokenizer(card, measured)),
    ]


def _parameters(count: int) -> str:
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if count >= size:
            return f"{count / size:.3g} {word} ({number(count)})"
    return number(count)


def _tokenizer(card: Card, measured: Measured | None) -> str | Markup:
    files = beneath(", ".join(map(printable, card.tokenizer_files)))
    if measured is None:
        return Markup("{}{}").format(_PENDING, files)
    tokenizer = measured.tokenizer
    if tokenizer.problem:
        return Markup("cannot be read{}").format(files)
    if not tokenizer.tokens:
        why = "none with token names" if card.tokenizer_files else "none"
        return Markup("{}; rows will be matched by content{}").format(why, files)
    missing = card.vocab_size - tokenizer.tokens
    named = f"{number(tokenizer.tokens)} named tokens" + (
        f", {counted(missing, 'row')} without a name" if missing else ""
    )
    return Markup("{}; special or unused: {}{}").format(named, number(tokenizer.special), files)


def _read(card: Card, measured: Measured | None, marking: bool) -> list[tuple[str, str | Markup]]:
    """Facts that require reading the weights, below the rest because they arrive later."""
    rows: list[tuple[str, str | Markup]] = []
    if marking and not card.refusal:
        rows.append(("Usable rows", _PENDING if measured is None else _usable(card, measured)))
    if measured is not None and not measured.fingerprint:
        return rows
    fingerprint = _PENDING if measured is None else copyable(measured.fingerprint) + beneath("SHA-256 of the embedding")
    return [*rows, ("Fingerprint", fingerprint)]


def _usable(card: Card, measured: Measured) -> str:
    if measured.problems:
        return "not counted because of the problem below"
    if measured.usable is None:
        return "will be counted when the release is made, because the embedding is large"
    special = measured.tokenizer.special
    others = card.vocab_size - measured.usable - special
    kinds = ((special, "special or unused"), (others, "duplicate or near zero"))
    left_out = ", ".join(f"{number(count)} {kind}" for count, kind in kinds if count)
    return f"{number(measured.usable)} of {number(card.vocab_size)}" + (f"; left out: {left_out}" if left_out else "")


def _markable(card: Card, measured: Measured | None) -> Markup:
    stopped = bool(card.refusal or (measured is not None and measured.problems))
    if measured is None and not stopped:
        return Markup('<p class="model-markable">{}</p>').format(_PENDING)
    if stopped:
        return Markup('<p class="model-markable">{}Cannot be marked</p>').format(icon("not found"))
    return Markup('<p class="model-markable can-be">{}Can be marked</p>').format(icon("done"))


def _notes(card: Card, measured: Measured | None, marking: bool) -> list[Markup]:
    problems = measured.problems if measured is not None else ()
    notes = [_note("fault", "Problem.", sentence(problem)) for problem in problems]
    if marking and card.refusal:
        why = f"{sentence(card.refusal)} {sentence(card.advice)}"
        notes.append(_note("not found", "Can be examined, but not marked.", why))
    return notes + [_note("fault", "Note.", note) for note in card.notes]


def _note(symbol: str, word: str, text: str) -> Markup:
    """One or two sentences; a long text is cut at the end of a clause, with the full text folded below."""
    text, whole = printable(text, 2000), Markup("")
    cut = max(text.rfind(mark, 0, _LONGEST_NOTE) for mark in (". ", "; ", ": "))
    if len(text) > _LONGEST_NOTE and cut > 0:
        text, whole = f"{text[:cut]} …", _folded("Full text", Markup("<p>{}</p>").format(text))
    return Markup('<div class="model-note">{}<div><p><strong>{}</strong> {}</p>{}</div></div>').format(
        icon(symbol), word, text, whole
    )


def _role(stored: Stored) -> tuple[str | Markup, ...]:
    # A block's scales make it a fraction; names such as "GPTQ, 4 bits" already contain the bits.
    told = stored.bits == round(stored.bits) or "bit" in stored.dtype
    return (
        stored.role,
        Markup("<code>{}</code>{}").format(_breaking(stored.name), beneath(stored.part)),
        " × ".join(map(number, stored.shape)),
        printable(stored.dtype) if told else f"{printable(stored.dtype)}, {stored.bits:.3g} bits each",
    )


def _breaking(name: str) -> Markup:
    """A tensor's name that may be broken after a dot."""
    return Markup(".<wbr>").join(printable(name).split("."))


def _formats(card: Card) -> Markup:
    rows = [
        (printable(one.dtype), number(one.tensors), number(one.numbers), size_text(one.nbytes)) for one in card.formats
    ]
    return _table(("Stored as", "Tensors", "Numbers", "Size"), rows, wide=0)


def _shards(card: Card) -> Markup:
    rows: list[tuple[str | Markup, ...]] = [
        (
            Markup("<code>{}</code>").format(printable(shard.name)),
            size_text(shard.nbytes) if shard.nbytes is not None else "no tensor",
        )
        for shard in card.shards[:_MOST_SHARDS]
    ]
    if len(card.shards) > _MOST_SHARDS:
        rows.append((f"and {number(len(card.shards) - _MOST_SHARDS)} more", ""))
    return _table(("File", "Size"), rows, wide=0)


def _said(card: Card) -> Markup:
    rows: list[tuple[str, str]] = [(printable(key, 80), printable(text)) for key, text in card.said[:_MOST_SAID]]
    if len(card.said) > _MOST_SAID:
        rows.append((f"and {number(len(card.said) - _MOST_SAID)} more", ""))
    return _table(("Entry", "Text as stored; not checked"), rows, wide=1)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str | Markup]], *, wide: int) -> Markup:
    """A table whose column `wide` takes the remaining width; if that is the first column, the others hold numbers."""

    def cell(text: str | Markup, n: int, tag: str) -> Markup:
        name = "number" if wide == 0 and n else ("" if n == wide or len(text) > _SNUG else ("snug" if n else "whole"))
        return Markup("<{0}{1}>{2}</{0}>").format(tag, Markup(' class="{}"').format(name) if name else "", text)

    def line(cells: Sequence[str | Markup], tag: str) -> Markup:
        return Markup("<tr>{}</tr>").format(Markup("").join(cell(text, n, tag) for n, text in enumerate(cells)))

    return Markup('<table class="model-table{}"><thead>{}</thead><tbody>{}</tbody></table>').format(
        " labelled" if wide else "", line(heads, "th"), Markup("").join(line(row, "td") for row in rows)
    )


def _folded(summary: str, content: Markup) -> Markup:
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, content)
