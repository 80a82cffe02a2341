"""The parts of this app with their licences: bundled works and required libraries.

Versions are read from the installed packages, so that a bug report names the version that ran.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, metadata
from typing import cast

import irwm
from irwm.report.items import LAYOUT, installed_versions
from irwm.report.typefaces import FONTS
from ui.settings import DEMO, REPOSITORY

# The extras' files name optional packages that some users install.
REQUIREMENTS = (
    "requirements.txt",
    "requirements-cluster.txt",
    "requirements-harness.txt",
    "requirements-release.txt",
    "requirements-stores.txt",
    "requirements-tools.txt",
)
# Python packages that no requirements file names, and that the attacks use if they are installed.
OPTIONAL = ("bitsandbytes", "libggml-python", "peft", "compressed-tensors")
LICENCE_NAME = "Apache-2.0"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# SPDX spelling of the licences of packages without an SPDX expression.
_SPELLED = {
    "Apache Software License": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Python Software Foundation License": "Matplotlib licence, based on PSF-2.0",
}
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class Bundled:
    """A third-party work that comes with the app.

    Attributes:
        name, what: its name and its purpose here.
        licence: SPDX identifier.
        text: the licence's full text, from the file next to the work.
    """

    name: str
    what: str
    licence: str
    text: str


@dataclass(frozen=True, slots=True)
class Library:
    """An installed direct dependency of the app.

    Attributes:
        licence: SPDX expression if its package gives one, else its own words; "not stated" if it has none.
    """

    name: str
    version: str
    licence: str


@lru_cache(maxsize=1)
def bundled() -> tuple[Bundled, ...]:
    """The app itself, and the works bundled with it."""
    parts = (
        ("IRWM Studio", "This program", LICENCE_NAME, REPOSITORY / "LICENSE"),
        ("IBM Plex Sans", "Typeface for pages and reports", "OFL-1.1", FONTS / "OFL-IBM-Plex-Sans.txt"),
        ("IBM Plex Mono", "Typeface for paths and hashes", "OFL-1.1", FONTS / "OFL-IBM-Plex-Mono.txt"),
        ("IBM Plex Sans SC", "Typeface for reports in Chinese", "OFL-1.1", FONTS / "OFL-IBM-Plex-Sans-SC.txt"),
        ("Demo model", "Trained on the Python documentation", "PSF-2.0", DEMO / "LICENSE-PSF-2.0.txt"),
    )
    return tuple(
        Bundled(name, what, licence, path.read_text("utf-8", "replace") if path.is_file() else "")
        for name, what, licence, path in parts
    )


@lru_cache(maxsize=1)
def libraries() -> tuple[Library, ...]:
    """The direct dependencies that are installed, by name; extras that are not installed are left out."""
    names = [name for file in REQUIREMENTS for name in _named_in(file)]
    found = {}
    for name in (*names, *OPTIONAL):
        try:
            about = cast(Message, metadata(name))
        except PackageNotFoundError:
            continue
        found[name.lower()] = Library(str(about["Name"] or name), str(about["Version"]), licence_of(about))
    return tuple(found[name] for name in sorted(found))


def licence_of(about: Message) -> str:
    """A package's own statement of its licence, shortest first: an SPDX expression, a classifier, a line of text."""
    expression = str(about.get("License-Expression") or "").strip()
    if expression:
        return expression
    classified = [
        entry.rsplit(" :: ", 1)[-1]
        for entry in about.get_all("Classifier") or []
        if entry.startswith("License :: OSI Approved :: ")
    ]
    words = classified[0] if classified else str(about.get("License") or "").strip().partition("\n")[0]
    words = _SPELLED.get(words, words)
    return words if 0 < len(words) <= _LONGEST_NAME else "not stated"


def version_lines() -> list[str]:
    """Name and version of everything that can matter in a bug report, one per line; no path and no person's name."""
    known = installed_versions()
    own = {"IRWM Studio": irwm.__version__} | {name: known[name] for name in ("Python", "System", LAYOUT)}
    return [f"{name} {value}" for name, value in (own | {each.name: each.version for each in libraries()}).items()]


def _named_in(file: str) -> list[str]:
    path = REPOSITORY / file
    if not path.is_file():
        return []
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    return [match.group() for line in lines if (match := _NAME.match(line))]
