"""Prompts that `irwm.choose_prompts` takes from those of a seed. A recording keeps them and continues with the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from irwm.answers.prompts import choose_prompts
from irwm.answers.random_prompts import Prompts
from irwm.checkpoint import Checkpoint
from ui.recording.dialects import CHAT, messages
from ui.recording.journal import Journal

# Prompts of the pool for each that is chosen, and of the pool at most, unless even more are chosen.
POOL_FOR_EACH, LARGEST_POOL = 8, 2048
# The part of an answer that is measured. The prompt has little influence on what comes later.
MEASURED = 16


@dataclass(frozen=True, slots=True)
class Chosen:
    """Chosen prompts, and after them those of the seed that were not in the pool.

    Attributes:
        texts: the chosen ones.
        others: all prompts of the seed.
        pool: how many of them were in the pool.
    """

    texts: tuple[str, ...]
    others: Prompts
    pool: int

    def prompt(self, number: int) -> str:
        """The prompt of this number, from 0 on."""
        if number < len(self.texts):
            return self.texts[number]
        return self.others.prompt(self.pool + number - len(self.texts))


def chosen_prompts(
    prompts: Prompts, original: Checkpoint, api: str, answers: int, max_tokens: int, journal: Journal,
    report: Callable[[int, int, str], None],
) -> Chosen:  # fmt: skip
    """The journal's prompts, or newly chosen ones, which are then stored in it.

    Args:
        answers: how many are chosen.
        max_tokens: of an answer.

    Raises:
        RecordingError: the disk cannot be written.
        IrwmError: the original cannot be run.
    """
    pool = max(2 * answers, min(POOL_FOR_EACH * answers, LARGEST_POOL))
    if journal.texts is None:
        texts = list(dict.fromkeys(prompts.prompt(number) for number in range(pool)))
        asked = {repr(messages(text)): text for text in texts} if api == CHAT else {repr(text): text for text in texts}
        given = [messages(text) for text in texts] if api == CHAT else texts
        found = choose_prompts(original, min(answers, len(texts)), given, min(max_tokens, MEASURED), progress=report)
        journal.note_texts([asked[repr(each)] for each in found.prompts])
    assert journal.texts is not None
    return Chosen(journal.texts, prompts, pool)
