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
# A browser loads a file only for a page with characters in it.
CHINESE = "U+3000-303F,U+4E00-9FFF,U+FF00-FFEF"
FACES = (
    (SANS, "ibm-plex-sans-latin-400-normal.woff2", 400, LATIN),
    (SANS, "ibm-plex-sans-latin-600-normal.woff2", 600, LATIN),
    (SANS, "ibm-plex-sans-latin-ext-400-normal.woff2", 400, LATIN_EXT),
    (SANS, "ibm-plex-sans-latin-ext-600-normal.woff2", 600, LATIN_EXT),
    (SANS, "ibm-plex-sans-greek-400-normal.woff2", 400, GREEK),  # the paper's symbols
    (MONO, "ibm-plex-mono-latin-400-normal.woff2", 400, LATIN),
    (MONO, "ibm-plex-mono-latin-600-normal.woff2", 600, LATIN),
    (SANS, "IRWMSansSC-Regular.ttf", 400, CHINESE),
    (SANS, "IRWMSansSC-SemiBold.ttf", 600, CHINESE),
    (MONO, "IRWMSansSC-Regular.ttf", 400, CHINESE),
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

# Gradio's variables, by the colour of the palette that they take in light and in dark.
COLOURED = {
    name: (light, dark)
    for light, dark, names in (
        ("paper", "paper", "body_background_fill background_fill_primary block_background_fill "
                           "table_even_background_fill"),
        ("surface", "surface", "background_fill_secondary code_background_fill panel_background_fill "
                               "table_odd_background_fill"),
        ("paper", "surface", "input_background_fill checkbox_label_background_fill button_secondary_background_fill "
                             "button_cancel_background_fill"),
        ("surface", "raised", "checkbox_label_background_fill_hover"),
        ("raised", "raised", "button_secondary_background_fill_hover"),
        ("ink", "ink", "body_text_color block_label_text_color block_title_text_color button_secondary_text_color "
                       "checkbox_label_text_color_selected button_secondary_border_color_hover"),
        ("quiet", "quiet", "body_text_color_subdued block_info_text_color input_placeholder_color"),
        ("line", "line", "border_color_primary border_color_accent_subdued block_border_color panel_border_color "
                         "checkbox_label_border_color table_border_color"),
        ("edge", "edge", "input_border_color checkbox_border_color button_secondary_border_color"),
        ("accent", "accent", "border_color_accent link_text_color link_text_color_active link_text_color_visited "
                             "input_border_color_focus checkbox_background_color_selected slider_color loader_color "
                             "checkbox_border_color_selected button_primary_background_fill "
                             "button_primary_border_color"),
        ("accent_hover", "accent_hover", "link_text_color_hover button_primary_background_fill_hover "
                                         "button_primary_border_color_hover"),
        ("accent_soft", "accent_soft", "color_accent_soft checkbox_label_background_fill_selected "
                                       "stat_background_fill"),
        ("on_accent", "on_accent", "button_primary_text_color"),
        ("fault", "fault", "error_border_color error_text_color error_icon_color button_cancel_border_color "
                           "button_cancel_text_color button_cancel_text_color_hover"),
        ("fault_soft", "fault_soft", "error_background_fill button_cancel_background_fill_hover"),
    )
    for name in names.split()
}  # fmt: skip
# Variables without a colour: no shadows, no boxes around blocks, buttons that do not move.
PLAIN = {
    **dict.fromkeys(("shadow_drop", "shadow_drop_lg", "shadow_inset", "block_shadow"), "none"),
    **dict.fromkeys(("input_shadow", "input_shadow_focus", "input_shadow_focus_dark"), "none"),
    **dict.fromkeys(("button_transform_hover", "button_transform_active"), "none"),
    **dict.fromkeys(("button_primary_shadow", "button_primary_shadow_hover"), "none"),
    **dict.fromkeys(("button_secondary_shadow", "button_secondary_shadow_hover"), "none"),
    **dict.fromkeys(("block_label_background_fill", "block_label_background_fill_dark"), "transparent"),
    **dict.fromkeys(("block_border_width", "block_label_border_width", "block_padding"), "0px"),
    **dict.fromkeys(("input_border_width", "button_border_width"), "1px"),
    **dict.fromkeys(("block_title_text_weight", "button_large_text_weight", "button_medium_text_weight"), "600"),
    "button_small_text_weight": "400",
    "block_title_text_size": "*text_md",
    "block_info_text_size": "*text_sm",
    "button_large_radius": "*radius_md",
    "button_transition": "background-color 120ms ease, border-color 120ms ease",
}


# A little larger than Gradio's: verdicts are read by people, not by developers.
TEXT = sizes.Size(xxs="11px", xs="12px", sm="13px", md="15px", lg="17px", xl="22px", xxl="28px", name="irwm-text")


def font_faces() -> str:
    """The @font-face rules, all pointing at our own server."""
    return "\n".join(
        f"@font-face{{font-family:'{family}';font-style:normal;font-weight:{weight};font-display:swap;"
        f"src:url('{FONTS_URL}/{name}') format('{'woff2' if name.endswith('woff2') else 'truetype'}');"
        f"unicode-range:{characters}}}"
        for family, name, weight, characters in FACES
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
        self.set(
            color_accent=LIGHT.accent,  # Gradio has no separate dark value: see below
            **PLAIN,
            **{name: getattr(LIGHT, light) for name, (light, _) in COLOURED.items()},
            **{f"{name}_dark": getattr(DARK, dark) for name, (_, dark) in COLOURED.items()},
        )
        # Served as /theme.css, which Gradio does not change; it rewrites style.css rule by rule.
        self.custom_css = "\n".join(
            (
                font_faces(),
                f":root{{{variables(LIGHT)}}}",
                # Selected tabs and steps would keep the light accent.
                f":root.dark,:root .dark{{{variables(DARK)}--color-accent:{DARK.accent};}}",
                # style.css cannot reach the container in a media query.
                "@media (max-width:719px){html body .gradio-container"
                "{padding-left:16px !important;padding-right:16px !important}}",
            )
        )


def theme() -> StudioTheme:
    """The theme to pass to `launch`."""
    return StudioTheme()
