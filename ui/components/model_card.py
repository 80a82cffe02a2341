"""What a checkpoint is, on one card: family, geometry, format, size, fingerprint and what to know about it."""

from __future__ import annotations

from markupsafe import Markup

from irwm import Checkpoint
from irwm.errors import printable
from ui.components.browsing import size_text
from ui.components.notices import copyable
from ui.plot_theme import number


def model_html(model: Checkpoint) -> str:
    """The card as HTML. Reads the embedding once, for its fingerprint.

    Raises:
        CheckpointError: the embedding cannot be read.
    """
    layout = model.layout
    heads = f"{layout.heads} query, {layout.kv_heads} key heads of {layout.head_dim}"
    shards = f"{len(model.shards)} weights file" + ("s" if len(model.shards) > 1 else "")
    rows = [
        ("Family", f"{model.family}, {heads}"),
        ("Embedding", f"{number(model.vocab_size)} tokens × {number(model.hidden_size)}, {model.dtype}"),
        ("Output head", "tied to the embedding" if model.tied else "its own matrix"),
        ("Size", f"{size_text(model.bytes_total)} in {shards}"),
    ]
    facts = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(label, value) for label, value in rows)
    notes = Markup("").join(Markup('<p class="note">{}</p>').format(printable(note)) for note in model.notes)
    return str(
        Markup(
            '<section class="model-card"><h3>{}</h3><dl class="facts">{}'
            "<dt>Fingerprint</dt><dd>{}</dd></dl>{}</section>"
        ).format(printable(model.path.name), facts, copyable(model.fingerprint), notes)
    )
