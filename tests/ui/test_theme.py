from __future__ import annotations

import re

import pytest

from ui.server import FONTS, STATIC, STYLE
from ui.theme import CHINESE, DARK, FACES, LIGHT, Palette, theme

# WCAG 2.2, success criterion 1.4.11 (borders of controls, figures). tests/browser/test_axe.py checks that of text.
GRAPHIC = 3.0


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("line", ["edge", "null", "accent"])
def test_border_and_line_contrast_is_sufficient(palette: Palette, line: str) -> None:
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast(getattr(palette, line), palette.paper) >= GRAPHIC


def test_typeface_is_bundled_with_its_licence() -> None:
    for _, name, _, characters in FACES:
        data = (FONTS / name).read_bytes()
        assert data[:4] == (b"\0\1\0\0" if characters == CHINESE else b"wOF2"), name
        assert len(data) < (2_000_000 if characters == CHINESE else 40_000), "a subset is small"
    for name in ("OFL-IBM-Plex-Sans.txt", "OFL-IBM-Plex-Mono.txt", "OFL-IBM-Plex-Sans-SC.txt"):
        assert "SIL OPEN FONT LICENSE Version 1.1" in (FONTS / name).read_text("utf-8")


def test_style_has_no_external_addresses() -> None:
    assert theme()._stylesheets == [], "Gradio loads no stylesheet for the fonts"
    texts = [theme()._get_theme_css(), STYLE.read_text("utf-8")]
    texts += [path.read_text("utf-8") for path in STATIC.iterdir()]
    for text in texts:
        addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)
        assert [a for a in addresses if "www.w3.org" not in a] == [], "only the name of the SVG namespace"


def test_style_uses_only_colours_of_the_palette() -> None:
    # A tick in an image cannot use a variable.
    text = re.sub(r'url\(".*?"\)', "", STYLE.read_text("utf-8"))
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s,)])", text) == []
