"""Write the fonts of Chinese reports: the characters of GB 2312 from IBM Plex Sans SC, under a name of their own.

    python -m tools.chinese_font FOLDER

FOLDER has IBMPlexSansSC-Regular.woff and IBMPlexSansSC-SemiBold.woff, from the npm package @ibm/plex-sans-sc.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

FONTS = Path(__file__).resolve().parents[1] / "irwm" / "report" / "fonts"
NAMES = {"Regular": "IRWM Sans SC", "SemiBold": "IRWM Sans SC SmBld"}
# Numbers of the name table: family, style, unique name, full name, PostScript name; and names of other styles.
FAMILY, STYLE, FULL, POSTSCRIPT, OTHERS = (1, 16), (2, 17), (3, 4), 6, (18, 21, 22, 25)


def characters() -> Iterator[int]:
    """The code points of GB 2312 from CJK punctuation on; the reports' own font has the others."""
    for first in range(0xA1, 0xF8):
        for second in range(0xA1, 0xFF):
            try:
                code = ord(bytes((first, second)).decode("gb2312"))
            except UnicodeDecodeError:
                continue
            if code >= 0x2E80:
                yield code
    yield from range(0x3000, 0x3020)
    yield from range(0xFF00, 0xFFF0)


def named(font: TTFont, name: str) -> None:
    table = font["name"]
    for number in OTHERS:
        table.removeNames(nameID=number)
    texts = dict.fromkeys((*FAMILY, *FULL), name) | dict.fromkeys(STYLE, "Regular")
    texts[POSTSCRIPT] = name.replace(" ", "")
    for record in [each for each in table.names if each.nameID in texts]:
        table.setName(texts[record.nameID], record.nameID, record.platformID, record.platEncID, record.langID)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    options = subset.Options(hinting=False, layout_features=["locl", "vert"], name_IDs=["*"], notdef_outline=True)
    for weight, name in NAMES.items():
        font = TTFont(folder / f"IBMPlexSansSC-{weight}.woff", recalcTimestamp=False)
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=characters())
        subsetter.subset(font)
        named(font, name)
        font.flavor = None
        font.save(FONTS / f"IRWMSansSC-{weight}.ttf")


if __name__ == "__main__":
    main()
