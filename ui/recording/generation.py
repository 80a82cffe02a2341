"""Records generated text with the log-probability of each token, as far as the server gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from irwm.answers.answers import Answers
from irwm.answers.random_prompts import LONGEST, Prompts
from irwm.answers.recorded_responses import (
    MOST_RESPONSE_BYTES,
    Exchange,
    ResponsesSource,
    read_responses,
    write_responses,
)
from irwm.answers.responses import generated_in, prompt_tokens
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.files import parse_json, require_bounded
from irwm.errors import AnswersError, CheckpointError
from irwm.inference.loading import open_tokenizer
from irwm.report.numbers import counted, number
from ui.recording.chosen_prompts import Chosen, chosen_prompts
from ui.recording.dialects import CHAT, GENERATING, OPENAI, Order, messages, order_body
from ui.recording.errors import RecordingError, RefusedError, ServerError
from ui.recording.journal import Journal, Server
from ui.recording.plan import MOST_ANSWERS, checked_prompts, checked_server
from ui.recording.recorder import ASK_OTHERWISE, MOST_USELESS, Unsent, publish
from ui.recording.sending import Pace, Response, Sender, host_of

# 8 192 tokens: enough with log-probabilities, unless the copy was changed much (docs/answers-measured.md).
ANSWERS, MAX_TOKENS = 64, 128
MOST_TOKENS, HOTTEST = 4096, 2.0
RANDOM, CHOSEN = "random", "chosen"  # prompts
# How many tokens name one of 60 recipients, extrapolated from docs/answers-measured.md by the root: as served, and with
# noise on the weights. A copy that was changed more is never named.
WITH_LOG_PROBABILITIES, TEXT_ALONE = (500, 15_000), (20_000, 300_000)
# Of all answers of a file together.
MOST_IN_ALL = 500_000
# Of one token with the likeliest one in its place, as text, bytes and numbers.
_BYTES_PER_TOKEN = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """A recording of generated text before it begins.

    Attributes:
        url: the server's address.
        model: its name there.
        api: one of `dialects.GENERATING`.
        original: the unmarked original.
        answers: how many responses are wanted.
        max_tokens: tokens of each at most.
        temperature: for sampling.
        prompts: the prompts, or those from which some are chosen.
        choose: whether the prompts are chosen (`chosen_prompts`), before the first request.
        pace: the rate and the time limits.
    """

    url: str
    model: str
    api: str
    original: Checkpoint
    answers: int
    max_tokens: int
    temperature: float
    prompts: Prompts
    choose: bool
    pace: Pace

    @property
    def most_bytes(self) -> int:
        """Largest size of a response."""
        return min((1 << 20) + _BYTES_PER_TOKEN * self.max_tokens, MOST_RESPONSE_BYTES)

    @property
    def source(self) -> ResponsesSource:
        """The file's description of the server."""
        return ResponsesSource(self.url, self.model, self.api, self.original.fingerprint, self.prompts.seed,
                               self.temperature, self.max_tokens)  # fmt: skip

    @property
    def settings(self) -> dict[str, object]:
        """The settings that must stay the same when a recording is resumed."""
        return {
            "content": "generated text, chosen prompts" if self.choose else "generated text",
            "endpoint": self.url,
            "model": self.model,
            "api": self.api,
            "original": self.original.fingerprint,
            "seed": self.prompts.seed,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }

    def kept(self, journal: Journal) -> int:
        """How many responses a journal holds."""
        return journal.rows

    def document(self, kept: int) -> dict[str, object]:
        """The plan as JSON values.

        Args:
            kept: responses that an earlier run recorded already.
        """
        return {
            "host": host_of(self.url),
            "url": self.url,
            "model": self.model,
            "answers": self.answers,
            "answers_kept": kept,
            "max_tokens": self.max_tokens,
            "tokens_at_most": self.answers * self.max_tokens,
            "tokens_needed": {"with_log_probabilities": WITH_LOG_PROBABILITIES, "text_alone": TEXT_ALONE},
            "temperature": self.temperature,
            "prompt_seed": self.prompts.seed,
            "prompts": CHOSEN if self.choose else RANDOM,
            "prompt_characters": LONGEST,
            "requests": self.answers,
            "requests_a_second": self.pace.rate,
            "sent": self.sent,
        }

    @property
    def sent(self) -> str:
        """The data that leaves the machine, in one sentence."""
        return (
            f"It sends the model's name and short prompts in English (at most {LONGEST} characters each). It never "
            "sends keys or weights."
        )

    def words(self, kept: int) -> str:
        """The plan as text for the user."""
        there = f"; already recorded: {number(kept)}" if kept else ""
        least, most = map(number, WITH_LOG_PROBABILITIES)
        fewest, many = map(number, TEXT_ALONE)
        first = "Before the first request it runs the original here to choose the prompts. " if self.choose else ""
        return (
            f"This command asks {host_of(self.url)} for {counted(self.answers, 'answer')} of at most "
            f"{number(self.max_tokens)} tokens, {number(self.answers * self.max_tokens)} tokens in total{there}. "
            f"Number of requests: {number(self.answers)}; at most {self.pace.rate:g} per second. With the "
            f"log-probability of each token, about {least} to {most} tokens are needed to identify a recipient; with "
            f"text alone, about {fewest} to {many} (extrapolated from measurements on small models). {first}{self.sent}"
        )


@dataclass(frozen=True, slots=True)
class Generated:
    """A finished recording of generated text.

    Attributes:
        file: where it is stored.
        answers: responses in it.
        tokens: generated tokens that a tracing scores.
        log_probabilities: whether the server gave them.
    """

    file: Path
    answers: int
    tokens: int
    log_probabilities: bool

    @property
    def document(self) -> dict[str, object]:
        """The result as JSON values."""
        return {"answers": self.answers, "tokens": self.tokens, "log_probabilities": self.log_probabilities}


def generation(
    original: Checkpoint, *, endpoint: str, model: str, api: str = OPENAI, answers: int | None = None,
    max_tokens: int | None = None, temperature: float | None = None, text: str, seed: int = 0, choose: bool = False,
    pace: Pace | None = None,
) -> Generation:  # fmt: skip
    """A checked plan; it sends nothing.

    Args:
        original: the unmarked original that the served model is compared with later. Its tokenizer is needed.
        endpoint: the server's address as typed by a user.
        answers, max_tokens, temperature: None for `ANSWERS`, `MAX_TOKENS` and 1.
        text: prose from which prompts are made.
        choose: whether `irwm.choose_prompts` chooses from them.

    Raises:
        RecordingError: a value cannot be used.
        AnswersError: the original has no chat template, which a chat needs.
        UnsupportedCheckpointError: the original has no tokenizer that transformers can open.
    """
    url = checked_server(endpoint, model, api, GENERATING)
    count, most = ANSWERS if answers is None else answers, MAX_TOKENS if max_tokens is None else max_tokens
    warmth = 1.0 if temperature is None else temperature
    for what, value, least, largest in (
        ("number of answers", count, 1, MOST_ANSWERS),
        ("number of tokens", most, 1, MOST_TOKENS),
        ("temperature", warmth, 0.0, HOTTEST),
    ):
        if not least <= value <= largest:
            raise RecordingError(
                f"the {what} is out of range", expected=f"{least:g} to {largest:g}", found=f"{value:g}"
            )
    if count * most > MOST_IN_ALL:
        expected = f"at most {number(MOST_IN_ALL)} tokens in total (answers times tokens per answer)"
        raise RecordingError("this is more than one file can contain", expected=expected, found=number(count * most))
    prompts = checked_prompts(seed, text)
    tokenizer = open_tokenizer(original.path)
    if api == CHAT:
        prompt_tokens(messages(prompts.prompt(0)), original, tokenizer)
    return Generation(url, model, api, original, count, most, warmth, prompts, choose, pace or Pace())


def generate(
    plan: Generation, sender: Sender, journal: Journal, out: Path,
    report: Callable[[int, int, str], None] = lambda *_: None,
) -> Generated:  # fmt: skip
    """Requests the missing responses and writes the file; arguments as `ui.recording.recorder.record`.

    Raises:
        ServerError: the server cannot be reached, refuses, or gives another kind of answer.
        RecordingError: the disk cannot be written.
        OutputExistsError: there is a file of this name.
    """
    _Run(plan, sender, journal, report).to_the_end()
    report(plan.answers, plan.answers, "Writing the file")
    exchanges = list(journal.exchanges())
    read: list[Answers] = []

    def write(partial: Path) -> None:
        write_responses(partial, plan.source, exchanges)
        read.append(read_responses(partial, plan.original))  # if it cannot be used, the journal stays

    publish(out, write)
    journal.remove()
    (answers,) = read
    return Generated(out, len(exchanges), answers.tokens, answers.log_probabilities is not None)


class _Run:
    """Asks until the journal has enough."""

    def __init__(
        self, plan: Generation, sender: Sender, journal: Journal, report: Callable[[int, int, str], None]
    ) -> None:
        self._plan, self._sender, self._journal, self._report = plan, sender, journal, report
        self._prompts: Prompts | Chosen = plan.prompts
        if plan.choose:
            self._prompts = chosen_prompts(
                plan.prompts, plan.original, plan.api, plan.answers, plan.max_tokens, journal, report
            )
        self._next_prompt = Unsent(self._prompts, journal)

    def to_the_end(self) -> None:
        """Requests the missing responses."""
        plan, journal, empty = self._plan, self._journal, 0
        while journal.rows < plan.answers:
            server = journal.server
            what = "Recording text without log-probabilities" if server and not server.told else "Recording text"
            self._report(journal.rows, plan.answers, what)
            number = self._next_prompt()
            order, exchange = self._asked(self._prompts.prompt(number))
            some, told = _content(exchange)
            if some and server is None:
                journal.note_server(Server(int(order.log_probabilities), int(told), False, order.extensions))
            elif some and server is not None and told != bool(server.told):
                raise ServerError(
                    "the server returns log-probabilities for only some of its answers",
                    advice="Record each model behind this address separately. Earlier answers are kept",
                )
            journal.add_exchange(number, exchange)
            empty = 0 if some else empty + 1
            if empty >= MOST_USELESS:
                raise ServerError(
                    "the server generated no text", found=f"{empty} empty answers in a row",
                    advice="Earlier answers are kept; try another --api or --seed",
                )  # fmt: skip

    def _asked(self, prompt: str) -> tuple[Order, Exchange]:
        """A response, to the request with the most fields that this server accepts."""
        plan, server = self._plan, self._journal.server
        if server is not None:
            ways = [(bool(server.top), server.extensions)]
        else:
            ways = [(True, True), (True, False), (False, False)]
        refusal: RefusedError | None = None
        for log_probabilities, extensions in ways:
            order = Order(prompt, plan.temperature, plan.max_tokens, log_probabilities, extensions)
            body = order_body(plan.api, plan.model, order)
            try:
                response = self._sender.ask(body)
            except RefusedError as error:
                if error.status not in ASK_OTHERWISE:
                    raise
                refusal = error
                continue
            return order, _exchange(body, response)
        assert refusal is not None
        raise refusal


def _exchange(body: bytes, response: Response) -> Exchange:
    try:
        return Exchange(body.decode(), response.body.decode(), response.time_ms)
    except UnicodeDecodeError as error:
        raise ServerError("the server's response is not UTF-8 text", advice="Check --api and --endpoint") from error


def _content(exchange: Exchange) -> tuple[bool, bool]:
    """Whether a response holds generated text, and its log-probabilities."""
    data, here = exchange.response.encode(), Path("response")
    try:
        require_bounded(data, here, "answer")
        return generated_in(parse_json(data, here, "answer", strict=False))
    except (CheckpointError, AnswersError) as error:
        raise ServerError(
            "the server's response contains no generated text", expected=error.expected,
            found=error.found or error.problem, advice="Check --api and --endpoint",
        ) from error  # fmt: skip
