"""Line icons, drawn here so that no icon font is needed. They take the colour and size of the text around them."""

from __future__ import annotations

from markupsafe import Markup

_PATHS = {
    "found": '<circle cx="12" cy="12" r="10"/><path d="m7 12.5 3.5 3.5L17 9"/>',
    "unproven": '<circle cx="12" cy="12" r="10" stroke-dasharray="3.2 2.8"/><path d="m7 12.5 3.5 3.5L17 9"/>',
    "not found": '<circle cx="12" cy="12" r="10"/><path d="M7 12h10"/>',
    "inconclusive": (
        '<circle cx="12" cy="12" r="10" stroke-dasharray="3.2 2.8"/>'
        '<path d="M9.2 9.3a2.9 2.9 0 1 1 4.3 2.9c-1 .6-1.5 1.1-1.5 2.1"/><path d="M12 17.2v.1"/>'
    ),
    "fault": '<path d="M12 3.5 22 20.5H2Z"/><path d="M12 10v5"/><path d="M12 17.6v.1"/>',
    "folder": '<path d="M3 6.5h6l2 2.5h10v10H3Z"/>',
    "model": '<path d="M12 3 3.5 7.5v9L12 21l8.5-4.5v-9Z"/><path d="M3.5 7.5 12 12l8.5-4.5"/><path d="M12 12v9"/>',
    "file": '<path d="M6 3h8l4 4v14H6Z"/><path d="M14 3v4h4"/>',
    "up": '<path d="M12 19V6"/><path d="m6 12 6-6 6 6"/>',
    "lock": '<path d="M5 11h14v9H5Z"/><path d="M8 11V8a4 4 0 0 1 8 0v3"/>',
    "done": '<path d="m5 12.5 4.5 4.5L19 7.5"/>',
    "stopped": '<path d="M7 7h10v10H7Z"/>',
}


def icon(name: str) -> Markup:
    """One icon; decoration only, so it needs a word next to it."""
    return Markup(
        '<svg class="icon" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" '
        f'stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">{_PATHS[name]}</svg>'
    )
