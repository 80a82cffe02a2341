"""The keys that an investigation tries: a list to pick from if they are few, else a search by words.

Keys may be made while the page is open: in another tab, by a job, by a command. So the list is read again each time the
page comes into view, and if no key was removed from it, all keys that exist when the work starts are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError
from irwm.report.numbers import number
from storage.records import KeyRecord, Page
from storage.vault import Vault
from ui.components import notices
from ui.components.paged_table import damage_html

# With more keys than this, a search replaces the list.
MOST_LISTED = 24
# Most names in the summary of many keys, which show what the search found.
_EXAMPLES = 4
NO_KEY = notices.empty_html(
    "No key fits this original",
    "The vault contains no key made for this exact model. Choose the unmarked original that the release was made "
    "from, or protect a model first.",
)
NO_READABLE_KEY = notices.empty_html(
    "No readable key fits this original",
    "The vault contains damaged records, any of which may have been this model’s key.",
)


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """The parts of the choice that a page uses.

    Attributes:
        listed: the keys to pick from, if they are few.
        words: the search field, if they are many.
        summary: how many keys will be tried; also missing or damaged keys.
        offered: a hidden field with the ids of the keys that the list offers, separated by spaces; "" if there is no
            list. The browser gets it together with the list. A `gr.State` changes earlier, and an officer who starts
            before the list is there would have chosen no key.
        notice: shows errors about the choice.
    """

    listed: gr.Dropdown
    words: gr.Textbox
    summary: gr.HTML
    offered: gr.Textbox
    notice: gr.HTML

    @property
    def shown(self) -> list[Any]:
        """The components that `fill`, `again` and `nothing` give values for, in order."""
        return [self.listed, self.words, self.summary, self.offered]

    @property
    def inputs(self) -> list[Any]:
        """The components whose values `chosen` and `again` take, in order."""
        return [self.listed, self.words, self.offered]

    def nothing(self) -> tuple[Any, ...]:
        """The values while there is no original."""
        return gr.Dropdown(visible=False), gr.Textbox(visible=False), gr.HTML(visible=False), ""

    def fill(self, vault: Vault, fingerprint: str) -> tuple[tuple[Any, ...], bool]:
        """The choice for an original, all keys chosen, and whether any key fits.

        Raises:
            StorageError
        """
        return self.again(vault, fingerprint, None, "", "")

    def again(
        self, vault: Vault, fingerprint: str, listed: Sequence[str] | None, words: str | None, offered: str | None
    ) -> tuple[tuple[Any, ...], bool]:
        """The choice again: removed keys stay removed, and keys made since then are chosen.

        Args:
            listed, words, offered: the values of `inputs`.

        Raises:
            StorageError
        """
        page = vault.find_keys(model_fingerprint=fingerprint, newest_first=False, limit=MOST_LISTED)
        if page.total > MOST_LISTED:
            hidden = gr.Dropdown(choices=[], value=[], multiselect=True, visible=False)
            typed = words or ""
            found = (
                vault.find_keys(typed, model_fingerprint=fingerprint, newest_first=False, limit=MOST_LISTED)
                if typed.strip()
                else page
            )
            summary = gr.HTML(summary_html(found, typed), visible=True)
            return (hidden, gr.Textbox(value=typed, visible=True), summary, ""), True
        choices = [(key_label(record), record.id) for record in page.records]
        ids = [id for _, id in choices]
        taken_out = set((offered or "").split()) - set(listed or ())
        said = ("" if choices else NO_READABLE_KEY if page.damaged else NO_KEY) + _damage(page)
        value = [id for id in ids if id not in taken_out]
        dropdown = gr.Dropdown(choices=choices, value=value, multiselect=True, visible=bool(choices))
        summary = gr.HTML(said, visible=bool(said))
        return (dropdown, gr.Textbox(value="", visible=False), summary, " ".join(ids)), bool(choices)

    def search(self, vault: Vault, fingerprint: str, words: str) -> Any:
        """The summary for these words."""
        page = vault.find_keys(words, model_fingerprint=fingerprint, newest_first=False, limit=MOST_LISTED)
        return gr.HTML(summary_html(page, words), visible=True)

    @staticmethod
    def chosen(
        vault: Vault, fingerprint: str, listed: Sequence[str] | None, words: str | None, offered: str | None
    ) -> dict[str, Any]:
        """The keys, as `ui.jobs.requests` takes them: those left in the list, or all matching keys if none was removed
        from it, including keys made since it was read.

        Raises:
            IrwmError: the list is empty, or one of its keys is no longer in the vault.
        """
        if not offered or not set(offered.split()) - set(listed or ()):
            return {"keys": None, "matching": "" if offered else words}
        if not listed:
            raise IrwmError("no key was chosen", advice="Choose at least one key from the list")
        if set(listed) - set(vault.key_ids(model_fingerprint=fingerprint)):
            raise IrwmError(
                "a key in the list is no longer in the vault",
                advice="Switch to another page and back to reload the keys",
            )
        return {"keys": list(listed), "matching": ""}


def key_choice() -> KeyChoice:
    """Builds the choice at this place of the page; it is hidden until there is an original."""
    listed = gr.Dropdown(
        [],
        multiselect=True,
        label="Keys",
        info="All keys in the vault that were made for this original. Remove those you do not want to try",
        elem_id="keys",
        visible=False,
    )
    words = gr.Textbox(
        label="Keys",
        info="All keys made for this original will be tried. To try only some of them, enter search words here",
        placeholder="A recipient, an owner, a note or the beginning of a fingerprint",
        max_length=200,
        elem_id="key-words",
        visible=False,
    )
    summary, notice = gr.HTML(elem_id="key-summary", visible=False), gr.HTML(elem_id="keys-notice", visible=False)
    return KeyChoice(listed, words, summary, gr.Textbox("", visible=False), notice)


def summary_html(page: Page[KeyRecord], words: str = "") -> str:
    """How many keys will be tried, and the first of them by name."""
    count = number(page.total)
    if not page.total:
        said = Markup("<strong>No key</strong> for this original matches these words.")
    else:
        names = [record.recipient or record.owner for record in page.records[:_EXAMPLES]]
        rest = f" and {number(page.total - len(names))} more" if page.total > len(names) else ""
        which = "matches these words" if page.total == 1 else "match these words"
        what = f"{count} {'key' if page.total == 1 else 'keys'}" if words.strip() else f"All {count} keys"
        said = Markup("<strong>{}</strong> {} will be tried: {}{}.").format(
            what, Markup(f"that {which}") if words.strip() else "", ", ".join(names), rest
        )
    return notices.note_html(said) + _damage(page)


def key_label(record: KeyRecord) -> str:
    """A key in a list: its owner and recipient, the start of its fingerprint, and its note."""
    whom = f"{record.owner} → {record.recipient}" if record.recipient else record.owner
    words = f" · {record.label}" if record.label else ""
    return f"{whom} · {record.commitment[:12]}{words}"


def _damage(page: Page[KeyRecord]) -> str:
    return damage_html(list(page.damaged)) if page.damaged else ""
