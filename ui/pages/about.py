"""About: what this program does, where its data are, the versions for a bug report, and all licences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gradio as gr
from markupsafe import Markup

import irwm
from irwm.errors import printable
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.glossary import TITLE, glossary_html
from ui.components.guarded import guarded
from ui.components.header import NAME
from ui.components.markup import each, facts, table
from ui.context import Context
from ui.licences import Bundled, Library, bundled, libraries, version_lines

INTRO = f"""
# About {NAME}
This app marks the weights of a language model before release and later determines whose copy a suspect checkpoint
is.
"""
PAPER = "Invariant-based Robust Weights Watermark for LLMs"
PAPER_ID = "arXiv:2507.08288"
NOT_PROMISED = (
    "A mark in the weights does not survive training from scratch or distillation: a model that was trained only on "
    "another model’s answers contains none of that model’s weights."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    del tab  # nothing changes while the app runs
    gr.Markdown(INTRO)
    # Filled in when the vault is opened: installed versions and paths are shown only after the passphrase.
    shown = gr.HTML(elem_id="about")
    gr.Markdown(f"## {TITLE}")
    gr.HTML(glossary_html(), elem_id="about-glossary")

    @guarded
    def fill(request: gr.Request) -> Any:
        return about_html(context) if context.is_open(request) else gr.skip()

    context.opened.change(fill, None, shown, **PRIVATE)


def about_html(context: Context) -> str:
    """The whole page below its heading."""
    versions = "\n".join(version_lines())
    rows = (
        ("Version", irwm.__version__),
        ("Method", Markup("{}<br>{}").format(PAPER, notices.copyable(PAPER_ID))),
        ("Compute device", printable(context.device, 80)),
        (
            "Your data",
            Markup("{}<br>{}").format(
                "Everything stays on this computer: no sign-up, no telemetry, no update checks. The vault, jobs "
                "and cases are in this folder, which only your system account can read:",
                notices.copyable(str(context.settings.home)),
            ),
        ),
        ("Limitations", NOT_PROMISED),
    )
    return str(
        Markup(
            '<div class="about">{}'
            "<h2>Versions</h2><p>For bug reports. The list contains no paths or personal names.</p>"
            '<p class="copyable"><button type="button" class="use" data-copy="{}" data-shown="version-list">'
            "Copy the list</button></p>"
            '<pre class="log" id="version-list" tabindex="0" aria-label="Versions">{}</pre>'
            "<h2>Licences</h2><h3>Included in the program</h3>{}"
            "<h3>Libraries used by the program</h3><p>Installed separately, each under its own licence.</p>{}</div>"
        ).format(facts(rows), versions, versions, bundled_html(bundled()), libraries_html(libraries()))
    )


def bundled_html(parts: Iterable[Bundled]) -> Markup:
    """Each part with its licence, whose text can be unfolded."""
    return each(
        '<details class="licence"><summary><strong>{0}</strong> <span class="quiet">{1}</span>'
        '<span class="licence-name">{2}</span></summary>'
        '<pre class="log" tabindex="0" aria-label="Licence of {0}">{3}</pre></details>',
        (
            (part.name, part.what, part.licence, part.text or "The licence text is missing from this installation.")
            for part in parts
        ),
    )


def libraries_html(found: Iterable[Library]) -> Markup:
    """Name, version and licence of each library."""
    rows = (
        Markup('<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>').format(
            *(printable(text, 160) for text in (library.name, library.version, library.licence))
        )
        for library in found
    )
    return table("Libraries", ("Library", "Version", "Licence"), rows, "libraries")
