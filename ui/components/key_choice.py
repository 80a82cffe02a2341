"""Which keys an investigation tries: a list to pick from while it can be read, else all that fit a few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.report.numbers import number
from storage.records import KeyRecord, Page
from storage.vault import Vault
from ui.components import notices
from ui.components.paged_table import damage_html

# More keys are not read in a list but searched.
MOST_LISTED = 24
# Names that the summary of many keys shows, so that one sees what the words found.
_EXAMPLES = 4
NO_KEY = notices.empty_html(
    "No key fits this original",
    "The vault holds no key that was made for exactly this model. Choose the unmarked original that the release was "
    "made from, or protect a model first.",
)
NO_READABLE_KEY = notices.empty_html(
    "No readable key fits this original",
    "Damaged records stand in the vault, and any of them may have been this model’s key.",
)


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """What a page gets.

    Attributes:
        listed: the keys to pick from, where they are few.
        words: what to search by, where they are many.
        summary: how many keys will be tried; also what is missing or damaged.
    """

    listed: gr.Dropdown
    words: gr.Textbox
    summary: gr.HTML

    @property
    def shown(self) -> list[Any]:
        """The components that `fill` and `nothing` give values for, in order."""
        return [self.listed, self.words, self.summary]

    @property
    def inputs(self) -> list[Any]:
        """The components that `chosen` takes values of, in order."""
        return [self.listed, self.words]

    def nothing(self) -> tuple[Any, ...]:
        """While there is no original."""
        return gr.Dropdown(visible=False), gr.Textbox(visible=False), gr.HTML(visible=False)

    def fill(self, vault: Vault, fingerprint: str) -> tuple[tuple[Any, ...], bool]:
        """The choice for an original, and whether any key fits.

        Raises:
            StorageError
        """
        page = vault.find_keys(model_fingerprint=fingerprint, newest_first=False, limit=MOST_LISTED)
        if page.total > MOST_LISTED:
            hidden = gr.Dropdown(choices=[], value=[], visible=False)
            summary = gr.HTML(summary_html(page), visible=True)
            return (hidden, gr.Textbox(value="", visible=True), summary), True
        choices = [(key_label(record), record.id) for record in page.records]
        said = ("" if choices else NO_READABLE_KEY if page.damaged else NO_KEY) + _damage(page)
        listed = gr.Dropdown(choices=choices, value=[id for _, id in choices], visible=bool(choices))
        return (listed, gr.Textbox(value="", visible=False), gr.HTML(said, visible=bool(said))), bool(choices)

    def search(self, vault: Vault, fingerprint: str, words: str) -> Any:
        """The summary for these words."""
        page = vault.find_keys(words, model_fingerprint=fingerprint, newest_first=False, limit=MOST_LISTED)
        return gr.HTML(summary_html(page, words), visible=True)

    def chosen(self, vault: Vault, fingerprint: str, listed: Sequence[str] | None, words: str | None) -> dict[str, Any]:
        """Which keys, as `ui.jobs.requests` takes them: those listed, or where there are many, all that fit."""
        whole = vault.find_keys(model_fingerprint=fingerprint, limit=1).total
        if whole <= MOST_LISTED:
            return {"keys": list(listed or ()), "matching": ""}
        return {"keys": None, "matching": words}


def key_choice() -> KeyChoice:
    """Builds the choice at this place of the page; nothing of it is shown until there is an original."""
    listed = gr.Dropdown(
        [],
        multiselect=True,
        label="Keys",
        info="All keys in the vault that were made for this original",
        elem_id="keys",
        visible=False,
    )
    words = gr.Textbox(
        label="Keys",
        info="All that were made for this original are tried; type to restrict them to some",
        placeholder="A recipient, owner, note, or the beginning of a fingerprint",
        max_length=200,
        elem_id="key-words",
        visible=False,
    )
    return KeyChoice(listed, words, gr.HTML(elem_id="key-summary", visible=False))


def summary_html(page: Page[KeyRecord], words: str = "") -> str:
    """How many keys will be tried, and the first of them by name."""
    count = number(page.total)
    if not page.total:
        said = Markup("<strong>No key</strong> of this original fits these words.")
    else:
        names = [record.recipient or record.owner for record in page.records[:_EXAMPLES]]
        rest = f" and {number(page.total - len(names))} more" if page.total > len(names) else ""
        which = "fits these words" if page.total == 1 else "fit these words"
        what = f"{count} {'key' if page.total == 1 else 'keys'}" if words.strip() else f"All {count} keys"
        said = Markup("<strong>{}</strong> {} will be tried: {}{}.").format(
            what, Markup(f"that {which}") if words.strip() else "", ", ".join(names), rest
        )
    return str(Markup('<p class="note"><span>{}</span></p>').format(said)) + _damage(page)


def key_label(record: KeyRecord) -> str:
    """A key in a list: whose, for whom, its fingerprint's beginning, the officer's words."""
    whom = f"{record.owner} → {record.recipient}" if record.recipient else record.owner
    words = f" · {record.label}" if record.label else ""
    return f"{whom} · {record.commitment[:12]}{words}"


def _damage(page: Page[KeyRecord]) -> str:
    return damage_html(list(page.damaged)) if page.damaged else ""
