"""The tiers of the tests: `make test` runs the quick one, `make slow` the slow one.

    pytest                  both tiers
    pytest --tier quick     `make test`: every concept once, within minutes
    pytest --tier slow      `make slow`: all the rest
    pytest --every          all parameters of sampled tests too, which neither tier runs

Four marks decide, and a test without any of them is quick:

    slow            the whole test, or module, is of the slow tier
    browser         slow as well: the test drives a real browser; the fixture `chromium` implies it
    sweep           the first of its parameters is quick, the others are slow
    quick(reason)   quick despite the marks above

Each tier is the other's complement by construction, so no mark can lose a test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

QUICK, SLOW = "quick", "slow"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=(QUICK, SLOW), help="run this tier only; both where not given")
    parser.addoption("--every", action="store_true", help="run all parameters of sampled tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes tests that are not sampled, then those of the other tier."""
    kept = items if config.getoption("--every") else sampled(items)
    tier = config.getoption("--tier")
    if tier is not None:
        kept = [item for item, its in zip(kept, tiers(kept), strict=True) if its == tier]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Keeps one in n parameters of a test marked `sampled(n)`, at varying places; drops tests marked `in_full`."""
    met: Counter[str] = Counter()
    kept = []
    for item in items:
        if item.get_closest_marker("in_full"):
            continue
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            (n,) = marker.args
            turn, place = divmod(met[function_of(item)], n)
            met[function_of(item)] += 1
            if place != turn % n:
                continue
        kept.append(item)
    return kept


def tiers(items: Sequence[pytest.Item]) -> list[str]:
    """The tier of each test; for a sweep, its first test counts as the quick one."""
    met: set[str] = set()
    found = []
    for item in items:
        slow = any(item.get_closest_marker(name) for name in ("slow", "browser"))
        slow = slow or "chromium" in getattr(item, "fixturenames", ())
        if item.get_closest_marker("sweep"):
            slow = slow or function_of(item) in met
            met.add(function_of(item))
        found.append(SLOW if slow and not item.get_closest_marker("quick") else QUICK)
    return found


def function_of(item: pytest.Item) -> str:
    """The test's address without its parameters."""
    return item.nodeid.partition("[")[0]
