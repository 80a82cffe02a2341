"""The fonts that a printed report is set in, and which characters they have.

An archival PDF must hold every glyph that it shows, and must not depend on the fonts installed on a machine. So only
these files are used, and a character that they lack is written as its Unicode number, as `irwm.errors.printable` writes
control characters. The same is done for scripts that run from right to left: an untrusted name in one of them could
reorder the words next to it.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

FONTS = Path(__file__).with_name("fonts")
# Semibold has its own family name.
SANS, BOLD, MONO, FALLBACK = "IBM Plex Sans", "IBM Plex Sans SmBld", "IBM Plex Mono", "DejaVu Sans"
# The Simplified Chinese characters of GB 2312, from IBM Plex Sans SC.
CHINESE, CHINESE_BOLD = "IRWM Sans SC", "IRWM Sans SC SmBld"
_CHINESE_FILE = FONTS / "IRWMSansSC-Regular.ttf"
_SANS_FILE = FONTS / "IBMPlexSans-Regular.ttf"
_FILES = (
    _SANS_FILE,
    FONTS / "IBMPlexSans-SemiBold.ttf",
    FONTS / "IBMPlexSans-Italic.ttf",
    FONTS / "IBMPlexMono-Regular.ttf",
    _CHINESE_FILE,
    FONTS / "IRWMSansSC-SemiBold.ttf",
)
# Classes of characters that are laid out from right to left, or that may turn digits around.
_TURNING = frozenset(("R", "AL", "AN"))


def files() -> tuple[Path, ...]:
    """Every font file: those of this package, and matplotlib's for characters that they lack."""
    return (*_FILES, _fallback())


def folders() -> tuple[Path, ...]:
    """The folders of these files; a document must name its families, because the folders have other fonts too."""
    return tuple(dict.fromkeys(path.parent for path in files()))


def _fallback() -> Path:
    # Found without importing matplotlib, which takes a second.
    spec = find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"


# Cached: `settable` needs it for every text, and reading the fonts takes a thirtieth of a second.
@lru_cache(maxsize=1)
def _covered() -> frozenset[str]:
    from fontTools.ttLib import TTFont

    known: set[int] = set()
    for path in (_SANS_FILE, _CHINESE_FILE, _fallback()):
        with TTFont(path, lazy=True) as font:
            known |= set(font.getBestCmap())
    return frozenset(c for c in map(chr, known) if unicodedata.bidirectional(c) not in _TURNING)


def settable(text: str) -> str:
    """`text` with the Unicode number of every character that cannot be set; line ends and spaces stay."""
    covered = _covered()
    return "".join(c if c in covered or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)
