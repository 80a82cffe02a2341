"""Real servers on this machine: of a small model, or with scripted answers; and recordings of them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import irwm
from irwm.checkpoint.recorded import RecordedAnswers
from irwm.inference.text import default_text
from tools.answering import Answering, Serving
from tools.small_models import write_llama
from tools.waiting import PATIENCE
from ui.recording.journal import Journal
from ui.recording.plan import Plan, plan
from ui.recording.recorder import record
from ui.recording.sending import Pace, Permission, Sender

FAST = Pace(rate=1000, timeout=PATIENCE, tries=3, first_pause=0.001)
WIDTH, VOCABULARY = 16, 4096


def write_served(folder: Path, tokenizer: Path) -> Path:
    """A tiny tied model with random weights and a real tokenizer of 4 096 tokens."""
    write_llama(folder, vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=32, tie_word_embeddings=True,
                num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256)  # fmt: skip
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder)
    return folder


def planned(original: Path, url: str, **given: Any) -> Plan:
    return plan(irwm.open_checkpoint(original), **({"endpoint": url, "model": "served", "text": default_text(),
                                                   "pace": FAST} | given))  # fmt: skip


def recorded(
    original: Path, url: str, out: Path, clock: Callable[[], float] = time.monotonic, **given: Any
) -> RecordedAnswers:
    """The whole process: plan, record, read back."""
    made = planned(original, url, **given)
    with (
        Sender(Permission(made.url), made.pace, most_bytes=made.most_bytes, clock=clock) as sender,
        Journal(out, made.settings) as journal,
    ):
        record(made, sender, journal, out)
    return irwm.read_answers(out, irwm.open_checkpoint(original))


@contextmanager
def answering(model: Path, before: Callable[[int], None] | None = None, **serving: Any) -> Iterator[Answering]:
    """A server of a model."""
    with Answering([model], Serving(**serving), before=before).running() as server:
        yield server


@dataclass
class Script:
    """A server that gives a test's answers in order, and repeats the last one.

    Attributes:
        answers: status, body and headers.
        seen: headers and body of each request.
    """

    answers: list[tuple[int, bytes, Mapping[str, str]]]
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""


@contextmanager
def scripted(*answers: tuple[int, bytes, Mapping[str, str]]) -> Iterator[Script]:
    script = Script(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            script.seen.append((dict(self.headers), body))
            status, content, headers = script.answers[min(len(script.seen), len(script.answers)) - 1]
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | dict(headers)).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        script.url = f"http://127.0.0.1:{server.server_address[1]}/v1/completions"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
