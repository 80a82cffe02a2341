"""Whether HTML is well formed."""

from __future__ import annotations

import re


def assert_balanced(page: str) -> None:
    """Every tag of the page is closed, in order."""
    stack: list[str] = []
    for closing, tag, single in re.findall(r"<(/?)(\w+)[^>]*?(/?)>", page):
        if single or tag == "wbr":
            continue
        if closing:
            assert stack.pop() == tag
        else:
            stack.append(tag)
    assert stack == []
