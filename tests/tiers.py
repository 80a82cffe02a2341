"""The tiers of the tests: `make test` runs the quick one, `make slow` the slow one.

    pytest                  both tiers
    pytest --tier quick     `make test`: every concept once, within minutes
    pytest --tier slow      `make slow`: all the rest
    pytest --every          all parameters of sampled tests too, which neither tier runs
    pytest --note-durations how long each module takes is written to tests/durations.json

Four marks decide, and a test without any of them is quick:

    slow            the whole test, or module, is of the slow tier
    browser         so is what drives a real browser; the fixture `chromium` says so as well
    sweep           the first of its parameters is quick, the others are slow
    quick(reason)   quick despite the marks above

Each tier is the other's complement by construction, so no mark can lose a test.

Modules run in the order of `tests/durations.json`, the longest first, so that two workers that take one module after
another end at about the same time. Nothing depends on that file being up to date.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

QUICK, SLOW = "quick", "slow"
DURATIONS = Path(__file__).with_name("durations.json")
UNKNOWN_SECONDS = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=(QUICK, SLOW), help="run this tier only; both where not given")
    parser.addoption("--every", action="store_true", help="run all parameters of sampled tests")
    parser.addoption("--note-durations", action="store_true", help="write how long each module takes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--note-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config.getoption("--tier") or "both"), "durations")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not sampled, then what is of the other tier."""
    kept = items if config.getoption("--every") else sampled(items)
    tier = config.getoption("--tier")
    if tier is not None:
        kept = [item for item, its in zip(kept, tiers(kept), strict=True) if its == tier]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    seconds = known_durations().get(tier or SLOW, {})
    # A module that nobody has measured may be a long one.
    items[:] = sorted(kept, key=lambda item: -seconds.get(module_of(item.nodeid), UNKNOWN_SECONDS))


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of a test marked `sampled(n)`, one in n of its parameters, and never the same one of n; none marked `in_full`."""
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
    """The tier of each test; of a sweep, the first that is met stands for all."""
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


def module_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def known_durations() -> dict[str, dict[str, float]]:
    """Seconds by tier and module."""
    return json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}


class Durations:
    """Adds up how long the tests of each module take, with their fixtures, and writes it at the end."""

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[module_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        longest_first = {name: round(seconds, 1) for name, seconds in self._seconds.most_common()}
        known = known_durations() | {self._tier: longest_first}
        DURATIONS.write_text(json.dumps(known, indent=1, sort_keys=False) + "\n", encoding="utf-8")
