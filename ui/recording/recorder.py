"""Asks a served model for answers one by one and stores each, until there are enough for a file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from irwm.answers.random_prompts import Prompts
from irwm.answers.token_names import Names
from irwm.checkpoint.recorded import SCALES, RecordedAnswers, Requests, Source, write_answers
from irwm.checkpoint.served_source import utc_of
from irwm.errors import OutputExistsError
from storage.files import partial_name, publish_new, sweep
from ui.recording import dialects
from ui.recording.chosen_prompts import Chosen
from ui.recording.common_scale import on_one_scale, parts_of
from ui.recording.dialects import Question, Told
from ui.recording.errors import RecordingError, RefusedError, ServerError
from ui.recording.journal import WHOLE, Entry, Journal, Server
from ui.recording.plan import FIRST_PLACES, NEARLY_ALL, Plan
from ui.recording.sending import Response, Sender

# Added to the logits of the requested tokens: just enough to lift them over all others, because a server may
# compute with few digits. 100 is the most that servers accept.
BIASES = (30.0, 60.0, 100.0)
# The recording stops after this many answers in a row without new information.
MOST_USELESS = 20
# Statuses that mean: not with these fields, or not with this many.
ASK_OTHERWISE = frozenset({400, 413, 422})
Report = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished recording.

    Attributes:
        file: where it is stored.
        answers, tokens: n and v.
        requests: how many were answered in all, including earlier runs.
        whole: whether the server gave all the tokens at once.
    """

    file: Path
    answers: int
    tokens: int
    requests: int
    whole: bool

    @property
    def document(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            "answers": self.answers, "tokens": self.tokens, "requests": self.requests, "told_at_once": self.whole,
        }  # fmt: skip


def record(plan: Plan, sender: Sender, journal: Journal, out: Path, report: Report = lambda *_: None) -> Recorded:
    """Requests the missing answers and writes the file.

    Args:
        plan: the recording's plan.
        sender: for the plan's address.
        journal: of `out`, begun with the plan's settings; its answers are not requested again. It is removed at last.
        out: the recording; no file may have this name.
        report: called with the number of answers, their total, and the current step.

    Raises:
        ServerError: the server cannot be reached, refuses, or gives another kind of answer.
        RecordingError: the disk cannot be written.
        OutputExistsError: there is a file of this name.
    """
    run = _Run(plan, sender, journal, report)
    server = journal.server or run.try_out()
    if server.whole:
        run.whole(server)
    else:
        run.in_parts(server)
    report(plan.answers, plan.answers, "Writing the file")
    answers = _assembled(plan, journal, server)
    publish(out, lambda partial: write_answers(partial, answers))
    requests = journal.requests
    journal.remove()
    n, v = answers.log_probabilities.shape
    return Recorded(out, n, v, requests, server.whole)


class Unsent:
    """Calling it gives the number of the next prompt that was not sent yet, which then counts as sent."""

    def __init__(self, prompts: Prompts | Chosen, journal: Journal) -> None:
        self._prompts, self._journal = prompts, journal
        self._texts = {prompts.prompt(number) for number in journal.asked}

    def __call__(self) -> int:
        number = max(self._journal.asked, default=-1) + 1
        while (text := self._prompts.prompt(number)) in self._texts:
            number += 1
        self._journal.note_asked(number)
        self._texts.add(text)
        return number


class _Run:
    """Asks until the journal has enough."""

    def __init__(self, plan: Plan, sender: Sender, journal: Journal, report: Report) -> None:
        self._plan, self._sender, self._journal, self._report = plan, sender, journal, report
        self._names = Names(plan.original.path, plan.original.vocab_size)
        self._useless = 0
        self._last: bytes | None = None
        self._never: set[int] = set()
        self._next_prompt = Unsent(plan.prompts, journal)

    def try_out(self) -> Server:
        """Finds the server's capabilities with the first prompt; a complete answer is kept."""
        plan = self._plan
        number = self._next_prompt()
        refusal: RefusedError | None = None
        for top in plan.tops:
            for extensions in (True, False):
                question = Question(plan.prompts.prompt(number), top, extensions=extensions, everywhere=plan.inside)
                self._report(0, plan.answers, f"Asking for {top} log-probabilities at once")
                try:
                    body, response = self._ask(question)
                except RefusedError as error:
                    if error.status not in ASK_OTHERWISE:
                        raise
                    refusal = error
                    if plan.api != dialects.OPENAI or plan.inside:
                        break  # there is no field left to leave out
                    continue
                return self._what_it_tells(number, question, body, response)
        assert refusal is not None
        raise refusal

    def whole(self, server: Server) -> None:
        """Asks for all tokens, one prompt after the other."""
        plan = self._plan
        while self._journal.rows < plan.answers:
            self._report(self._journal.rows, plan.answers, "Recording answers")
            number = self._next_prompt()
            text = plan.prompts.prompt(number)
            question = Question(text, server.top, extensions=server.extensions, everywhere=plan.inside)
            body, response = self._ask(question)
            self._keep(number, body, response, self._rows(self._told(response)))

    def in_parts(self, server: Server) -> None:
        """Asks each prompt for the wanted tokens, a few at a time."""
        plan, journal = self._plan, self._journal
        parts = parts_of(len(plan.wanted), server.told)
        while len(begun := journal.complete(len(parts))) < plan.answers:
            open_ = sorted(number for number, done in journal.parts.items() if len(done) < len(parts))
            number = open_[0] if open_ else self._next_prompt()
            for part, places in enumerate(parts):
                if part not in journal.parts.get(number, ()):
                    what = f"Recording answers, part {part + 1} of {len(parts)}"
                    self._report(len(begun), plan.answers, what)
                    self._ask_for(number, part, places, server)

    def _ask_for(self, number: int, part: int, places: range, server: Server) -> None:
        """One part of one answer, with as much bias as necessary."""
        plan, journal = self._plan, self._journal
        tokens = plan.wanted[[0, *places]]
        for bias in (each for each in BIASES if each >= journal.bias):
            biased = tuple(map(int, tokens))
            question = Question(plan.prompts.prompt(number), server.top, biased, bias, server.extensions)
            body, response = self._ask(question)
            (told,) = self._told(response)
            values = told.row(tokens, plan.original.vocab_size)
            missing = {int(token) for token in tokens[~np.isfinite(values)]} - self._never
            most = bias == BIASES[-1]
            shown = bool(np.isfinite(values[0])) and 2 * np.isfinite(values).sum() >= len(values)
            enough = shown and (most or not missing)
            journal.add(self._entry(number, part, bias, body, response, values[None] if enough else None))
            if enough:
                self._never |= missing  # this server does not have the tokens that no bias makes visible
                return
        raise ServerError(
            "a logit bias has no effect on the log-probabilities of this server",
            expected=f"{len(tokens)} chosen tokens among the {server.told} most likely",
            found=f"{np.isfinite(values).sum()} of them",
            advice="Use a server that returns the whole vocabulary at once; this one does not",
        )

    def _what_it_tells(self, number: int, question: Question, body: bytes, response: Response) -> Server:
        plan = self._plan
        told = self._told(response)
        rows = self._rows(told)
        if len(rows):
            server = Server(question.top, len(plan.wanted), True, question.extensions)
            self._journal.note_server(server)
            self._keep(number, body, response, rows)
            return server
        count = max(len(each.tokens) for each in told)
        if count < question.top:  # the server limits the number, and may have added the token that it chose
            count -= 1
        if plan.inside or count < 2:
            raise ServerError(
                "this server returns too few log-probabilities",
                expected="the whole vocabulary" if plan.inside else "3 or more",
                found=str(count), advice="Leave out --inside" if plan.inside else "Use another server",
            )  # fmt: skip
        server = Server(question.top, count, False, question.extensions)
        self._journal.add(self._entry(number, WHOLE, 0.0, body, response, None))
        self._journal.note_server(server)
        return server

    def _rows(self, told: list[Told]) -> NDArray[np.float32]:
        """(rows, v) of the answers that contain nearly all wanted tokens."""
        plan = self._plan
        size, wanted = plan.original.vocab_size, plan.wanted
        used = told[FIRST_PLACES:] if plan.inside else told
        # An embedding may have more rows than there are tokens: the last ones are padding, and no server returns them.
        last = max((int(each.tokens.max(initial=-1)) for each in used), default=-1)
        there = self._names.sayable(wanted) & (wanted <= last)
        rows = [each.row(wanted, size) for each in used]
        kept = [row for row in rows if there.any() and np.isfinite(row[there]).mean() >= NEARLY_ALL]
        return np.array(kept, dtype=np.float32).reshape(len(kept), len(wanted))

    def _keep(self, number: int, body: bytes, response: Response, rows: NDArray[np.float32]) -> None:
        """Keeps a complete answer; one with few tokens, or equal to the one before, is kept as evidence only."""
        same = len(rows) > 0 and rows[-1].tobytes() == self._last
        useful = len(rows) > 0 and not same
        self._last = rows[-1].tobytes() if len(rows) else self._last
        self._journal.add(self._entry(number, WHOLE, 0.0, body, response, rows if useful else None))
        self._useless = 0 if useful else self._useless + 1
        if self._useless >= MOST_USELESS:
            problem = "returns the same answer to different prompts" if same else "no longer returns all tokens"
            raise ServerError(
                f"the server {problem}", found=f"{self._useless} answers in a row",
                advice="Earlier answers are kept; contact the server's operator",
            )  # fmt: skip

    def _ask(self, question: Question) -> tuple[bytes, Response]:
        body = dialects.body(self._plan.api, self._plan.model, question)
        return body, self._sender.ask(body)

    def _told(self, response: Response) -> list[Told]:
        return dialects.told(self._plan.api, response.body, self._names, everywhere=self._plan.inside)

    def _entry(self, number: int, part: int, bias: float, body: bytes, response: Response,
               values: NDArray[np.float32] | None) -> Entry:  # fmt: skip
        return Entry(number, part, bias, response.time_ms, hashlib.sha256(body).hexdigest(),
                     hashlib.sha256(response.body).hexdigest(), values)  # fmt: skip


def _assembled(plan: Plan, journal: Journal, server: Server) -> RecordedAnswers:
    """The table of a complete journal, with the evidence of all its requests."""
    table = np.empty((plan.answers, len(plan.wanted)), dtype=np.float32)
    prompt_of = np.empty(plan.answers, dtype=np.int64)
    parts = parts_of(len(plan.wanted), server.told) if not server.whole else []
    complete = frozenset(journal.complete(len(parts))) if parts else frozenset()
    waiting: dict[int, dict[int, NDArray[np.float32]]] = {}
    numbers: dict[int, int] = {}  # of a prompt: its place in the file
    evidence: list[tuple[int, int, str, str]] = []
    filled = 0
    for entry in journal.entries():
        place = numbers.setdefault(entry.prompt, len(numbers))
        evidence.append((place, entry.time_ms, entry.request_sha256, entry.response_sha256))
        if entry.values is None or filled == plan.answers:
            continue
        if server.whole:
            rows = entry.values[: plan.answers - filled]
        else:
            if entry.prompt not in complete:
                continue
            mine = waiting.setdefault(entry.prompt, {})
            mine[entry.part] = entry.values[0]
            if len(mine) < len(parts):
                continue
            told = waiting.pop(entry.prompt)
            rows = on_one_scale(table.shape[1], ((parts[part], values) for part, values in told.items()))[None]
        if rows.shape[1:] != table.shape[1:]:
            raise RecordingError("this unfinished recording is damaged", file=journal.path)
        table[filled : filled + len(rows)], prompt_of[filled : filled + len(rows)] = rows, place
        filled += len(rows)
    assert filled == plan.answers
    times = [time for _, time, _, _ in evidence]
    source = Source(
        endpoint=plan.url, model=plan.model, api=plan.api, original=plan.original.fingerprint,
        vocab_size=plan.original.vocab_size, prompt_seed=plan.prompts.seed,
        scale=SCALES[0] if server.whole else SCALES[1],
        began=utc_of(min(times)), ended=utc_of(max(times)),
    )  # fmt: skip
    requests = Requests(
        np.array([place for place, _, _, _ in evidence], dtype=np.int64), np.array(times, dtype=np.int64),
        _digests([sent for _, _, sent, _ in evidence]), _digests([received for _, _, _, received in evidence]),
    )  # fmt: skip
    texts = tuple(plan.prompts.prompt(number) for number in numbers)
    return RecordedAnswers(table, plan.tokens, source, texts, prompt_of, requests)


def _digests(hexes: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex("".join(hexes)), dtype=np.uint8).reshape(len(hexes), 32)


def output_exists(out: Path) -> OutputExistsError:
    """The error if a file of this name exists; files are never overwritten."""
    return OutputExistsError("a file with this name already exists", file=out, advice="Use another --out")


def publish(out: Path, write: Callable[[Path], None]) -> None:
    """Writes a finished recording under another name, then renames it.

    Raises:
        OutputExistsError: there is a file of this name.
        RecordingError: the disk cannot be written.
    """
    sweep(out.parent, re.compile(re.escape(out.name) + r"\.[0-9a-f]{16}\.partial"))  # of a killed run
    partial = partial_name(out)
    try:
        write(partial)
        publish_new(partial, out)
    except FileExistsError as error:
        raise output_exists(out) from error
    except OSError as error:
        raise RecordingError(
            "the recording cannot be written", file=out, found=error.strerror or type(error).__name__,
            advice="Free up some space, then run the same command again. No requests will be repeated",
        ) from error  # fmt: skip
    finally:
        partial.unlink(missing_ok=True)
