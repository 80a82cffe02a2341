"""Settings: those that an officer chooses for this computer, and those that were fixed when the app was started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError
from irwm.language import LANGUAGES
from ui.components import notices
from ui.components.events import PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.header import device_label, header_html
from ui.components.markup import beneath, facts
from ui.components.places import Places, at
from ui.context import Context
from ui.guard import UPLOAD_BYTES, UPLOADS_TOTAL_BYTES
from ui.preferences import (
    LEAST_IDLE_MINUTES,
    LONGEST_PATH,
    MOST_IDLE_MINUTES,
    MOST_ROOTS,
    MOST_SERVERS,
    Preferences,
    PreferencesError,
)
from ui.settings import DEVICE, HOME, HOST, PORT, ROOTS, SCHEDULER, SERVERS
from ui.units import size_text

INTRO = """
# Settings
These settings apply to everyone who opens the app on this computer. They take effect at once, without a restart. A job
that has already started keeps its settings.
"""
# The whole file system, and folders in which the system shows other things as files: process memory, devices.
NEVER_ROOTS = ("/", "/proc", "/sys", "/dev")
DEVICES = [("Automatic", "auto"), ("Processor (CPU)", "cpu"), ("GPU (CUDA)", "cuda")]
THEMES = [("Same as the system", "system"), ("Light", "light"), ("Dark", "dark")]
# Gradio switches by a class, which studio's first.js sets.
SHOW_THEME = "(theme) => theme && window.irwmTheme(theme)"
# Every text of the document is in its language, so it is loaded again.
SHOW_LANGUAGE = "(language) => language && language !== document.documentElement.lang && window.location.reload()"


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    del tab  # unsaved input stays when the user changes to another page and back
    gr.Markdown(INTRO)
    damaged = gr.HTML(visible=False, elem_id="settings-note")
    with gr.Column(elem_classes="settings"):
        fields, notes = choices(context.settings.given)
        places = Places(form=gr.HTML(visible=False, elem_id="settings-notice"), **notes)
        save = gr.Button("Save", variant="primary", elem_id="save-settings")
        saved = gr.HTML(elem_id="settings-saved")
        gr.Markdown("## Fixed while the app runs")
        fixed = gr.HTML(elem_id="settings-fixed")
        # Never shown; for the browser.
        chosen_theme, chosen_language = (gr.Textbox(visible=False, value="") for _ in range(2))
    handlers = Handlers(context)
    shown, turn = [damaged, *fields, fixed], in_turn("settings")
    context.opened.change(guarded(handlers.fill), None, shown, **turn)
    changed = [saved, *shown, chosen_theme, chosen_language, context.top]
    keep = places.told(handlers.keep, len(changed), emptied=1)
    kept = save.click(keep, fields, [*changed, *places.outputs], **turn)
    kept.then(None, chosen_theme, None, js=SHOW_THEME, **PRIVATE)
    kept.then(None, chosen_language, None, js=SHOW_LANGUAGE, **PRIVATE)


def choices(given: frozenset[str]) -> tuple[list[gr.Component], dict[str, gr.HTML]]:
    """The fields that an officer fills in: theme, language, idle minutes, device, folders, servers, folder of backups;
    and the places for their errors.

    Args:
        given: the environment variables that are set; their settings cannot be changed here.
    """
    theme = gr.Radio(THEMES, label="Theme", info="For the pages and the figures", elem_id="set-theme")
    language = gr.Radio(
        [(name, code) for code, name in LANGUAGES.items()],
        label="Language",
        info="Used for the app’s pages and new reports. A report’s JSON file is always in English",
        elem_id="set-language",
    )
    idle = gr.Number(
        label="Lock after (minutes)",
        info=f"The vault locks after this many minutes of inactivity ({LEAST_IDLE_MINUTES} to {MOST_IDLE_MINUTES})",
        elem_id="set-idle",
    )
    idle_notice = gr.HTML(visible=False, elem_id="set-idle-notice")
    device = gr.Radio(
        DEVICES,
        label="Compute device",
        info=_by(DEVICE, given) or "“Automatic” uses a GPU if there is one",
        interactive=DEVICE not in given,
        elem_id="set-device",
    )
    device_notice = gr.HTML(visible=False, elem_id="set-device-notice")
    roots = gr.Textbox(
        label="Folders that may be used",
        info=_by(ROOTS, given)
        or "One full path per line. The app looks for models only in these folders. If this field is empty, it uses "
        "your home folder, the folder in which the app was started, and the demo model",
        lines=3,
        max_lines=12,
        max_length=MOST_ROOTS * LONGEST_PATH,
        interactive=ROOTS not in given,
        elem_classes="path-field",
        elem_id="set-roots",
        html_attributes=gr.InputHTMLAttributes(autocomplete="off", spellcheck=False),
    )
    roots_notice = gr.HTML(visible=False, elem_id="set-roots-notice")
    servers = gr.Textbox(
        label="Servers from which suspects may be read",
        info=_by(SERVERS, given)
        or "One per line, such as huggingface.co, hf.co or s3://BUCKET. Subdomains are included. A server learns "
        "which parts of which models are read, the words of a search, this computer’s address and, if you are logged "
        "in to it, your token. Keys, marks and reports are not sent. If this field is empty, no server is used",
        lines=2,
        max_lines=12,
        max_length=MOST_SERVERS * 256,
        interactive=SERVERS not in given,
        elem_classes="path-field",
        elem_id="set-servers",
        html_attributes=gr.InputHTMLAttributes(autocomplete="off", spellcheck=False),
    )
    servers_notice = gr.HTML(visible=False, elem_id="set-servers-notice")
    backups = gr.Textbox(
        label="Folder for backups",
        info="Each backup of the vault is also copied to this folder, which should be on another disk. If this field "
        "is empty, backups are kept only in the vault’s folder",
        max_lines=1,
        max_length=LONGEST_PATH,
        elem_classes="path-field",
        elem_id="set-backups",
        html_attributes=gr.InputHTMLAttributes(autocomplete="off", spellcheck=False),
    )
    backups_notice = gr.HTML(visible=False, elem_id="set-backups-notice")
    notes = {
        "idle": idle_notice,
        "device": device_notice,
        "roots": roots_notice,
        "servers": servers_notice,
        "backups": backups_notice,
    }
    return [theme, language, idle, device, roots, servers, backups], notes


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of the page's events."""

    context: Context

    def state(self) -> tuple[Any, ...]:
        """The note on damage, the fields and the fixed settings, with their current values."""
        now = self.context.settings
        note = gr.HTML(notices.error_html(now.note), visible=True) if now.note else gr.HTML(visible=False)
        shown = now.roots if ROOTS in now.given else now.preferences.roots
        return (
            note,
            now.preferences.theme,
            now.preferences.language,
            now.preferences.idle_minutes,
            now.device,
            "\n".join(str(root) for root in shown),
            "\n".join(now.servers),
            now.preferences.backups,
            fixed_html(self.context),
        )

    def fill(self, request: gr.Request) -> Any:
        return self.state() if self.context.is_open(request) else (gr.skip(),) * 9

    def keep(
        self,
        theme: str | None,
        language: str | None,
        idle: float | None,
        device: str,
        roots: str | None,
        servers: str | None,
        backups: str | None,
        request: gr.Request,
    ) -> Any:
        context = self.context
        vault = context.require(request)
        before, given = context.settings.preferences, context.settings.given
        # A page that was opened a moment ago has not filled in its choices yet.
        chosen = replace(before, theme=theme or before.theme, language=language or before.language)
        with at("idle"):
            chosen = replace(chosen, idle_minutes=whole_minutes(idle))
        with at("roots"):
            chosen = chosen if ROOTS in given else replace(chosen, roots=named_roots(roots or "", before.roots))
        with at("servers"):
            named = tuple(dict.fromkeys((servers or "").casefold().split()))
            chosen = chosen if SERVERS in given else replace(chosen, servers=named)
        with at("backups"):
            folder = backup_folder(backups or "", before.backups, context.settings.home)
            chosen = replace(chosen, backups=folder)
        with at("device"):
            chosen = chosen if DEVICE in given else replace(chosen, device=device)
            # Before any setting is stored: this raises if the chosen GPU does not exist.
            label = _label(context, chosen)
        if chosen == before:
            context.prefer(chosen)
        else:
            # Stored and logged together, so that no one can add folders without a log entry.
            with vault.logged("settings changed", chosen.to_dict()):
                context.prefer(chosen)
        context.device = label
        said = notices.note_html("Saved. The settings apply now and after a restart.", good=True)
        return said, *self.state(), chosen.theme, chosen.language, header_html(context)


def whole_minutes(typed: float | None) -> int:
    """The number of minutes that was typed; `Preferences` checks the range.

    Raises:
        PreferencesError: the field is empty, or its number is not whole.
    """
    if not isinstance(typed, (int, float)) or isinstance(typed, bool) or typed != typed or typed % 1:
        raise PreferencesError(
            "the time until the vault locks is missing or not a whole number",
            expected=f"a number of minutes from {LEAST_IDLE_MINUTES} to {MOST_IDLE_MINUTES}",
            advice="Enter a whole number of minutes",
        )
    return int(typed)


def named_roots(typed: str, known: Sequence[str]) -> tuple[str, ...]:
    """The folders in these lines, each once, as full paths.

    Args:
        known: those that were set before; one of them may be missing now, such as a disk that is not plugged in.

    Raises:
        PreferencesError: a line names no folder, or the whole computer, or a system folder that is not on a disk.
    """
    found = []
    for line in filter(None, (line.strip().strip('"').strip() for line in typed.splitlines())):
        try:
            path = Path(line).expanduser()
            usable = path.is_absolute() and (str(path) in known or path.is_dir())
            everything = usable and _is_too_much(path.resolve())
        except (OSError, RuntimeError, ValueError):  # a NUL, an unknown ~user, no permission to look
            usable = everything = False
        if everything:
            raise PreferencesError(
                "this folder is too broad",
                file=line,
                expected="a folder in this account or on a disk, but not " + ", ".join(NEVER_ROOTS),
                advice="enter the folders that contain models",
            )
        if not usable:
            raise PreferencesError(
                "this line is not a folder path",
                file=line,
                expected="the full path of an existing folder",
                advice="correct the line, or remove it",
            )
        found.append(str(path))
    return tuple(dict.fromkeys(found))


def backup_folder(typed: str, known: str, home: Path) -> str:
    """The folder for copies of backups, as a full path; "" for none.

    Args:
        known: the one that was set before; it may be missing now, such as a disk that is not plugged in.
        home: the folder of the vault.

    Raises:
        PreferencesError: it is not a folder, or it is inside the vault's folder.
    """
    line = typed.strip().strip('"').strip()
    if line in ("", known):
        return line
    try:
        path = Path(line).expanduser()
        usable = path.is_absolute() and path.is_dir()
        inside = usable and home.resolve() in (path.resolve(), *path.resolve().parents)
    except (OSError, RuntimeError, ValueError):
        usable = inside = False
    if not usable or inside:
        raise PreferencesError(
            "this folder is inside the vault’s folder" if inside else "this is not a folder path",
            file=line,
            expected="the full path of an existing folder outside the vault’s folder, on another disk if possible",
            advice="choose another folder, or leave the field empty",
        )
    return str(path)


def _is_too_much(resolved: Path) -> bool:
    top, *inner = map(Path, NEVER_ROOTS)
    # The top of another drive too, on systems with drives.
    return resolved in (top, Path(resolved.anchor)) or any(each in (resolved, *resolved.parents) for each in inner)


def fixed_html(context: Context) -> str:
    """The settings that only the environment sets, with the variables' names."""
    settings, given = context.settings, context.settings.given

    def source(variable: str) -> str:
        return (
            f"Set by {variable}"
            if variable in given
            else f"Default. To change it, set {variable} before you next start the app"
        )

    rows = (
        ("Vault, jobs and cases", notices.copyable(str(settings.home)), source(HOME)),
        ("Address", notices.copyable(f"http://{HOST}:{settings.port}"), source(PORT)),
        ("Cluster for tracing", settings.scheduler or "None (this computer only)", source(SCHEDULER)),
        (
            "Uploads",
            f"{size_text(UPLOAD_BYTES)} per file, {size_text(UPLOADS_TOTAL_BYTES)} in total",
            "For larger models, enter the path",
        ),
    )
    lines = ((label, Markup("{} {}").format(value, beneath(why))) for label, value, why in rows)
    return str(facts(lines, "facts settings-facts"))


def _by(variable: str, given: frozenset[str]) -> str:
    return (
        f"Set by {variable}. To choose a value here, start the app without this variable" if variable in given else ""
    )


def _label(context: Context, chosen: Preferences) -> str:
    wanted = replace(context.settings, preferences=chosen).with_preferences(chosen).device
    try:
        return device_label(wanted)
    except IrwmError as error:
        raise PreferencesError(
            "this computer has no usable GPU",
            expected="a CUDA device that PyTorch can see",
            advice="choose “Automatic”, or fix the driver",
        ) from error
