"""Prompts derived from a seed."""

from __future__ import annotations

from irwm.answers.random_prompts import LONGEST, SHORTEST, Prompts
from irwm.inference.text import default_text

TEXT = default_text()


def test_prompts_are_short_and_different() -> None:
    drawn = Prompts(0, TEXT)
    prompts = [drawn.prompt(number) for number in range(4000)]
    assert len(set(prompts)) > 3995
    assert all(SHORTEST - 8 <= len(prompt) <= LONGEST and prompt == prompt.strip() for prompt in prompts)
    prose = " ".join(TEXT.split())
    assert all(prompt in prose for prompt in prompts[::2])
    assert not any(prompt in prose for prompt in prompts[1::2] if len(prompt) > 40)


def test_seed_gives_the_same_prompts_in_every_version() -> None:
    """In every version, because a resumed recording identifies prompts by number."""
    prompts = Prompts(7, "one two three four five six seven eight nine ten " * 9)
    assert prompts.prompt(0) == "two three four five six"
    assert prompts.prompt(1) == "one two six eight eight three ten four five"
    assert Prompts(0, TEXT).prompt(5) != Prompts(1, TEXT).prompt(5)
