"""The look of every page: one light and one dark palette, one typeface from our own disk.

Other modules take colours from here (`LIGHT`, `DARK`), so that a figure and its page have the same colours.
The pairs that carry text are checked for contrast in tests/ui/test_theme.py.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from gradio.themes import Base, Color
from gradio.themes.utils import sizes
from gradio.themes.utils.fonts import Font

SANS = "IBM Plex Sans"
MONO = "IBM Plex Mono"
FONTS_URL = "/studio/fonts"


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one mode, named for their purpose.

    Attributes:
        paper: the page.  surface: a panel on it.  raised: a panel on a panel, a hovered row.
        ink: text.  quiet: secondary text.  line: hairlines.  edge: borders of controls, which must be seen.
        accent: the one colour: primary action, focus, the observed value.  accent_soft: a wash of it.
        on_accent: text on the accent.  accent_hover: the accent under the pointer.
        fault: errors only.  fault_soft: a wash of it.
        amber: what is not settled yet.  amber_soft: a wash of it.
        null: what chance would give, in figures; always grey.
    """

    paper: str
    surface: str
    raised: str
    ink: str
    quiet: str
    line: str
    edge: str
    accent: str
    accent_hover: str
    accent_soft: str
    on_accent: str
    fault: str
    fault_soft: str
    amber: str
    amber_soft: str
    null: str


LIGHT = Palette(
    paper="#ffffff",
    surface="#f6f8f8",
    raised="#edf1f1",
    ink="#14211f",
    quiet="#546361",
    line="#dfe6e5",
    edge="#7c8a85",
    accent="#0b5b60",
    accent_hover="#084548",
    accent_soft="#e4f0f0",
    on_accent="#ffffff",
    fault="#9a2c17",
    fault_soft="#fbefec",
    amber="#7a4b00",
    amber_soft="#fbf3e2",
    null="#86948f",
)
DARK = Palette(
    paper="#0f1514",
    surface="#161e1d",
    raised="#1f2a28",
    ink="#e6edeb",
    quiet="#9fb1ad",
    line="#293533",
    edge="#6c7f7b",
    accent="#6fcac7",
    accent_hover="#8fdbd8",
    accent_soft="#16312f",
    on_accent="#06211f",
    fault="#f3a491",
    fault_soft="#33201b",
    amber="#ebc06d",
    amber_soft="#2f2615",
    null="#74837f",
)

# Subsets of the typeface and the characters in each, as published (fontsource 5.3.0).
LATIN = (
    "U+0000-00FF,U+0131,U+0152-0153,U+02BB-02BC,U+02C6,U+02DA,U+02DC,U+0304,U+0308,U+0329,U+2000-206F,U+20AC,"
    "U+2122,U+2191,U+2193,U+2212,U+2215,U+FEFF,U+FFFD"
)
LATIN_EXT = (
    "U+0100-02BA,U+02BD-02C5,U+02C7-02CC,U+02CE-02D7,U+02DD-02FF,U+0304,U+0308,U+0329,U+1D00-1DBF,U+1E00-1E9F,"
    "U+1EF2-1EFF,U+2020,U+20A0-20AB,U+20AD-20C0,U+2113,U+2C60-2C7F,U+A720-A7FF"
)
GREEK = "U+0370-0377,U+037A-037F,U+0384-038A,U+038C,U+038E-03A1,U+03A3-03FF"
FACES = (
    (SANS, "ibm-plex-sans-latin", 400, LATIN),
    (SANS, "ibm-plex-sans-latin", 600, LATIN),
    (SANS, "ibm-plex-sans-latin-ext", 400, LATIN_EXT),
    (SANS, "ibm-plex-sans-latin-ext", 600, LATIN_EXT),
    (SANS, "ibm-plex-sans-greek", 400, GREEK),  # the paper's symbols
    (MONO, "ibm-plex-mono-latin", 400, LATIN),
    (MONO, "ibm-plex-mono-latin", 600, LATIN),
)

# Gradio needs eleven steps of each hue; components that we do not set by name use them.
TEAL = Color(
    "#f0f7f7", "#e4f0f0", "#c4dfdf", "#93c3c4", "#549ea1", "#0b5b60", "#084f53", "#084548", "#063a3d", "#052f31",
    "#032123", name="teal-ink",
)  # fmt: skip
STONE = Color(
    "#f9fbfb", "#f6f8f8", "#edf1f1", "#dfe6e5", "#b4c0be", "#7d8c89", "#546361", "#3b4947", "#1f2a28", "#161e1d",
    "#0f1514", name="stone",
)  # fmt: skip


# A little larger than Gradio's: verdicts are read by people, not by developers.
TEXT = sizes.Size(xxs="11px", xs="12px", sm="13px", md="15px", lg="17px", xl="22px", xxl="28px", name="irwm-text")


def face_file(stem: str, weight: int) -> str:
    """File name of one cut of the typeface in irwm/report/fonts."""
    return f"{stem}-{weight}-normal.woff2"


def font_faces() -> str:
    """The @font-face rules, all pointing at our own server."""
    return "\n".join(
        f"@font-face{{font-family:'{family}';font-style:normal;font-weight:{weight};font-display:swap;"
        f"src:url('{FONTS_URL}/{face_file(stem, weight)}') format('woff2');unicode-range:{characters}}}"
        for family, stem, weight, characters in FACES
    )


def variables(palette: Palette) -> str:
    """The palette as CSS custom properties, `--ink` and so on with the prefix `irwm-`."""
    return "".join(f"--irwm-{f.name.replace('_', '-')}:{getattr(palette, f.name)};" for f in fields(palette))


class StudioTheme(Base):
    """Gradio's variables set from the two palettes."""

    def __init__(self) -> None:
        super().__init__(
            primary_hue=TEAL,
            secondary_hue=TEAL,
            neutral_hue=STONE,
            text_size=TEXT,
            spacing_size=sizes.spacing_md,
            radius_size=sizes.radius_sm,
            # Font and not LocalFont: the latter would load Gradio's own copy as well as ours.
            font=(Font(SANS), "system-ui", "sans-serif"),
            font_mono=(Font(MONO), "ui-monospace", "monospace"),
        )
        self.name = "irwm"
        light, dark = LIGHT, DARK
        self.set(
            body_background_fill=light.paper,
            body_background_fill_dark=dark.paper,
            body_text_color=light.ink,
            body_text_color_dark=dark.ink,
            body_text_color_subdued=light.quiet,
            body_text_color_subdued_dark=dark.quiet,
            background_fill_primary=light.paper,
            background_fill_primary_dark=dark.paper,
            background_fill_secondary=light.surface,
            background_fill_secondary_dark=dark.surface,
            border_color_primary=light.line,
            border_color_primary_dark=dark.line,
            border_color_accent=light.accent,
            border_color_accent_dark=dark.accent,
            border_color_accent_subdued=light.line,
            border_color_accent_subdued_dark=dark.line,
            color_accent=light.accent,
            color_accent_soft=light.accent_soft,
            color_accent_soft_dark=dark.accent_soft,
            link_text_color=light.accent,
            link_text_color_dark=dark.accent,
            link_text_color_hover=light.accent_hover,
            link_text_color_hover_dark=dark.accent_hover,
            link_text_color_active=light.accent,
            link_text_color_active_dark=dark.accent,
            link_text_color_visited=light.accent,
            link_text_color_visited_dark=dark.accent,
            code_background_fill=light.surface,
            code_background_fill_dark=dark.surface,
            shadow_drop="none",
            shadow_drop_lg="none",
            shadow_inset="none",
            block_background_fill=light.paper,
            block_background_fill_dark=dark.paper,
            block_border_width="0px",
            block_border_color=light.line,
            block_border_color_dark=dark.line,
            block_shadow="none",
            block_padding="0px",
            block_label_background_fill="transparent",
            block_label_background_fill_dark="transparent",
            block_label_border_width="0px",
            block_label_text_color=light.ink,
            block_label_text_color_dark=dark.ink,
            block_title_text_color=light.ink,
            block_title_text_color_dark=dark.ink,
            block_title_text_weight="600",
            block_title_text_size="*text_md",
            block_info_text_color=light.quiet,
            block_info_text_color_dark=dark.quiet,
            block_info_text_size="*text_sm",
            panel_background_fill=light.surface,
            panel_background_fill_dark=dark.surface,
            panel_border_color=light.line,
            panel_border_color_dark=dark.line,
            input_background_fill=light.paper,
            input_background_fill_dark=dark.surface,
            input_border_color=light.edge,
            input_border_color_dark=dark.edge,
            input_border_color_focus=light.accent,
            input_border_color_focus_dark=dark.accent,
            input_border_width="1px",
            input_placeholder_color=light.quiet,
            input_placeholder_color_dark=dark.quiet,
            input_shadow="none",
            input_shadow_focus="none",
            input_shadow_focus_dark="none",
            checkbox_border_color=light.edge,
            checkbox_border_color_dark=dark.edge,
            checkbox_background_color_selected=light.accent,
            checkbox_background_color_selected_dark=dark.accent,
            checkbox_border_color_selected=light.accent,
            checkbox_border_color_selected_dark=dark.accent,
            checkbox_label_background_fill=light.paper,
            checkbox_label_background_fill_dark=dark.surface,
            checkbox_label_background_fill_hover=light.surface,
            checkbox_label_background_fill_hover_dark=dark.raised,
            checkbox_label_background_fill_selected=light.accent_soft,
            checkbox_label_background_fill_selected_dark=dark.accent_soft,
            checkbox_label_border_color=light.line,
            checkbox_label_border_color_dark=dark.line,
            checkbox_label_text_color_selected=light.ink,
            checkbox_label_text_color_selected_dark=dark.ink,
            slider_color=light.accent,
            slider_color_dark=dark.accent,
            loader_color=light.accent,
            loader_color_dark=dark.accent,
            error_background_fill=light.fault_soft,
            error_background_fill_dark=dark.fault_soft,
            error_border_color=light.fault,
            error_border_color_dark=dark.fault,
            error_text_color=light.fault,
            error_text_color_dark=dark.fault,
            error_icon_color=light.fault,
            error_icon_color_dark=dark.fault,
            table_border_color=light.line,
            table_border_color_dark=dark.line,
            table_even_background_fill=light.paper,
            table_even_background_fill_dark=dark.paper,
            table_odd_background_fill=light.surface,
            table_odd_background_fill_dark=dark.surface,
            stat_background_fill=light.accent_soft,
            stat_background_fill_dark=dark.accent_soft,
            button_border_width="1px",
            button_transform_hover="none",
            button_transform_active="none",
            button_transition="background-color 120ms ease, border-color 120ms ease",
            button_large_radius="*radius_md",
            button_large_text_weight="600",
            button_medium_text_weight="600",
            button_small_text_weight="400",
            button_primary_background_fill=light.accent,
            button_primary_background_fill_dark=dark.accent,
            button_primary_background_fill_hover=light.accent_hover,
            button_primary_background_fill_hover_dark=dark.accent_hover,
            button_primary_border_color=light.accent,
            button_primary_border_color_dark=dark.accent,
            button_primary_border_color_hover=light.accent_hover,
            button_primary_border_color_hover_dark=dark.accent_hover,
            button_primary_text_color=light.on_accent,
            button_primary_text_color_dark=dark.on_accent,
            button_primary_shadow="none",
            button_primary_shadow_hover="none",
            button_secondary_background_fill=light.paper,
            button_secondary_background_fill_dark=dark.surface,
            button_secondary_background_fill_hover=light.raised,
            button_secondary_background_fill_hover_dark=dark.raised,
            button_secondary_border_color=light.edge,
            button_secondary_border_color_dark=dark.edge,
            button_secondary_border_color_hover=light.ink,
            button_secondary_border_color_hover_dark=dark.ink,
            button_secondary_text_color=light.ink,
            button_secondary_text_color_dark=dark.ink,
            button_secondary_shadow="none",
            button_secondary_shadow_hover="none",
            button_cancel_background_fill=light.paper,
            button_cancel_background_fill_dark=dark.surface,
            button_cancel_background_fill_hover=light.fault_soft,
            button_cancel_background_fill_hover_dark=dark.fault_soft,
            button_cancel_border_color=light.fault,
            button_cancel_border_color_dark=dark.fault,
            button_cancel_text_color=light.fault,
            button_cancel_text_color_dark=dark.fault,
            button_cancel_text_color_hover=light.fault,
            button_cancel_text_color_hover_dark=dark.fault,
        )
        # Served as /theme.css, which Gradio does not change; it rewrites style.css rule by rule.
        self.custom_css = "\n".join(
            (
                font_faces(),
                f":root{{{variables(LIGHT)}}}",
                # Gradio has no separate dark value for the accent; selected tabs and steps would keep the light one.
                f":root.dark,:root .dark{{{variables(DARK)}--color-accent:{dark.accent};}}",
                # style.css cannot reach the container in a media query.
                "@media (max-width:719px){html body .gradio-container"
                "{padding-left:16px !important;padding-right:16px !important}}",
            )
        )


def theme() -> StudioTheme:
    """The theme to pass to `launch`."""
    return StudioTheme()
