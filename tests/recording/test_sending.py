"""Requests over real HTTP: permission, the token, retries, limits."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.recording.servers import FAST, Script, scripted
from ui.recording.errors import NotAllowedError, RecordingError, RefusedError, ServerError
from ui.recording.sending import TOKEN, Pace, Permission, Sender, checked_url, token_for

FINE = (200, b'{"fine": true}', {})
SECRET = "sk-very-secret-0123456789"


@contextlib.contextmanager
def sender(script: Script, pace: Pace = FAST, most: int = 1000, **more: object) -> Iterator[Sender]:
    with Sender(Permission(script.url), pace, most_bytes=most, **more) as each:  # type: ignore[arg-type]
        yield each


def test_nothing_is_sent_without_permission() -> None:
    with scripted(FINE) as script:
        with pytest.raises(NotAllowedError):
            Sender(None, FAST, most_bytes=1000)
        assert not script.seen
        with sender(script) as allowed:
            before = time.time_ns() // 1_000_000
            answer = allowed.ask(b"{}")
            assert before <= answer.time_ms <= time.time_ns() // 1_000_000
            assert answer.body == FINE[1]
        assert len(script.seen) == 1


@pytest.mark.parametrize(
    "first",
    [
        *((status, b"busy", {}) for status in (408, 429, 500, 502, 503, 504)),
        *((200, body, {}) for body in (b'{"choices": [{"te', b"", b"<html>", b"[" * 900, b"\xff\xfe")),
        (200, b'{"a"', {"Content-Length": "1000"}),
    ],
)
def test_temporary_failure_is_retried_and_a_lasting_one_ends(first: tuple[int, bytes, dict[str, str]]) -> None:
    notes: list[str] = []
    with scripted(first, first, FINE) as script, sender(script, note=notes.append) as asking:
        assert asking.ask(b'{"a": 1}').body == FINE[1]
    assert [content for _, content in script.seen] == [b'{"a": 1}'] * 3
    assert len(notes) == 2
    with scripted(first) as script, sender(script) as asking, pytest.raises(ServerError):
        asking.ask(b"{}")
    assert len(script.seen) == FAST.tries


def test_refused_connection_and_silence_end_with_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        quick = replace(FAST, timeout=0.2, tries=2)
        with Sender(Permission(url), quick, most_bytes=10) as asking, pytest.raises(ServerError):
            asking.ask(b"{}")
    with Sender(Permission(url), quick, most_bytes=10) as asking, pytest.raises(ServerError):
        asking.ask(b"{}")  # nothing listens there any more


def test_pauses_grow_and_the_server_may_name_one() -> None:
    pauses: list[float] = []
    pace = Pace(rate=1000, tries=6, first_pause=1, longest_pause=5)
    script_of = [(429, b"", {"Retry-After": "7"}), (503, b"", {}), (500, b"", {"Retry-After": "soon"}), (429, b"", {})]
    with (
        scripted(*script_of, (429, b"", {"Retry-After": "99999999"})) as script,
        sender(script, pace, pause=lambda s: pauses.append(s) if s > 0.5 else None) as asking,
        pytest.raises(ServerError),
    ):
        asking.ask(b"{}")
    assert pauses == [7, 2, 4, 5, 300]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((403, b"not \x1b[31m you\nhere", {}), RefusedError),
        ((200, b"1" * 500_000, {"Content-Length": str(10**12)}), ServerError),  # too large, noticed while it arrives
        ((200, b"x", {"Content-Encoding": "gzip"}), ServerError),
    ],
)
def test_answer_that_a_retry_would_not_change_is_refused_at_once(
    answer: tuple[int, bytes, dict[str, str]], kind: type[ServerError]
) -> None:
    with scripted(answer) as script, sender(script) as asking, pytest.raises(kind) as caught:
        asking.ask(b"{}")
    assert getattr(caught.value, "status", None) == (403 if kind is RefusedError else None)
    assert str(caught.value).isprintable()
    ((headers, _),) = script.seen
    assert headers["Accept-Encoding"] == "identity"


def test_requests_go_only_to_the_allowed_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to the target of a redirection, nor through a proxy of the environment."""
    with scripted(FINE) as elsewhere, scripted((307, b"", {"Location": elsewhere.url})) as script:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, elsewhere.url.removesuffix("/v1/completions"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        with sender(script) as asking, pytest.raises(RefusedError):
            asking.ask(b"{}")
        assert (len(script.seen), elsewhere.seen) == (1, [])


def test_rate_limit_is_kept() -> None:
    now, pauses, asked = [100.0], [], []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    with scripted(FINE) as script, sender(script, Pace(rate=50), pause=pause, clock=lambda: now[0]) as asking:
        for taken in (0, 0, 0.005, 0.015, 0, 1, 0, 0):  # seconds that pass after an answer
            asking.ask(b"{}")
            asked.append(now[0])
            now[0] += taken
    assert asked == pytest.approx([100, 100.02, 100.04, 100.06, 100.08, 100.1, 101.1, 101.12])
    assert pauses == pytest.approx([0.02, 0.02, 0.015, 0.005, 0.02, 0.02])


def test_the_token_is_in_the_header_and_nowhere_else() -> None:
    notes: list[str] = []
    said = f"your token {SECRET} is wrong".encode()
    with (
        scripted((503, said, {}), (401, said, {})) as script,
        sender(script, token=SECRET, note=notes.append) as asking,
        pytest.raises(RefusedError) as caught,
    ):
        asking.ask(b"{}")
    headers, content = script.seen[0]
    assert headers["Authorization"] == f"Bearer {SECRET}"
    shown = "".join([*notes, str(caught.value), repr(caught.value), content.decode(), str(vars(caught.value))])
    assert SECRET not in shown


def test_token_from_environment_is_never_sent_unencrypted() -> None:
    given = {TOKEN: f" {SECRET}\n"}
    assert token_for("http://127.0.0.1:1/", given) == SECRET
    assert token_for("http://[::1]:1/", given) == token_for("http://localhost/", given) == SECRET
    assert token_for("https://example.org/", given) == SECRET
    assert token_for("http://example.org/", {}) is None
    assert token_for("http://example.org/", {TOKEN: " "}) is None
    for url in ("http://example.org/", "http://127.0.0.1.example.org/", "http://10.0.0.1/", "http://0.0.0.0/"):
        with pytest.raises(RecordingError) as caught:
            token_for(url, given)
        assert SECRET not in str(caught.value)
    for wrong in ("two words", "line\r\nHost: evil", "tökén"):
        with pytest.raises(RecordingError) as caught:
            token_for("https://example.org/", {TOKEN: wrong})
        assert wrong not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["", "example.org", "ftp://example.org", "file:///etc/passwd", "http://", "http://h:99999", "http://h:x",
     "http://a b/", "http://h/\r\nX: y", "http://h/é", "//h/v1", "http://[::1/", "https://me:hush@h/v1",
     "https://h/v1?key=hush", "https://h/v1#hush"],
)  # fmt: skip
def test_invalid_address_or_one_with_a_secret_is_refused_and_the_secret_not_repeated(url: str) -> None:
    with pytest.raises(RecordingError) as caught:
        checked_url(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("pace", [{"rate": 0}, {"rate": -1}, {"rate": float("nan")}, {"rate": 1e9}, {"timeout": 0}])
def test_a_pace_out_of_range_is_refused(pace: dict[str, float]) -> None:
    with pytest.raises(RecordingError):
        Pace(**pace)  # type: ignore[arg-type]
