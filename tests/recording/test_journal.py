"""The file that a recording grows in, after various faults."""

from __future__ import annotations

import multiprocessing
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from irwm.answers.recorded_responses import Exchange
from ui.recording.errors import RecordingError
from ui.recording.journal import WHOLE, Entry, Journal, Server, journal_of

SETTINGS = {"endpoint": "http://h/", "seed": 3}


def entry(prompt: int, part: int = WHOLE, values: object = ((0.5, -1.0),), bias: float = 0.0) -> Entry:
    table = None if values is None else np.array(values, dtype=np.float32)
    return Entry(prompt, part, bias, 1000 + prompt, "ab" * 32, "cd" * 32, table)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A journal with two answers, one as evidence only, and a prompt that was sent and never answered."""
    out = tmp_path / "a.safetensors"
    with Journal(out, SETTINGS) as journal:
        journal.note_asked(0)
        journal.note_server(Server(20, 19, False, True))
        journal.add(entry(0, 0))
        journal.add(entry(0, 1, None, 60.0))
        journal.note_asked(1)
    return out


def test_journal_entries_survive_reopening(begun: Path) -> None:
    with Journal(begun, SETTINGS) as journal:
        assert (journal.asked, journal.parts, journal.requests) == ({0, 1}, {0: {0}}, 2)
        assert (journal.bias, journal.server) == (60.0, Server(20, 19, False, True))
        first, second = journal.entries()
        assert first.values is not None
        assert first.values.tolist() == [[0.5, -1.0]]
        assert (first.prompt, first.part, first.time_ms, first.request_sha256) == (0, 0, 1000, "ab" * 32)
        assert second.values is None
        journal.add(entry(2, WHOLE, [[1, 2], [3, 4]]))
        assert journal.rows == 2
        journal.remove()
    assert not list(begun.parent.iterdir())


def test_cut_at_any_byte_loses_at_most_the_last_line(begun: Path, tmp_path: Path) -> None:
    """Cut after every possible byte, it opens, keeps every whole line and can be resumed."""
    whole = journal_of(begun).read_bytes()
    lines = whole.splitlines(keepends=True)
    for length in range(len(whole)):
        out = tmp_path / "torn"
        journal_of(out).write_bytes(whole[:length])
        with Journal(out, SETTINGS) as journal:
            kept = sum(length >= len(b"".join(lines[: i + 1])) for i in range(len(lines)))
            assert journal.requests == max(0, min(kept - 3, 2)), length
            journal.note_asked(9)
        with Journal(out, SETTINGS) as journal:
            assert 9 in journal.asked


def test_exchanges_survive_reopening_and_a_torn_line(tmp_path: Path) -> None:
    sent = [Exchange('{"prompt":"é"}', '{"content":"\u2028"}', 5), Exchange("{}", "{}", 6)]
    with Journal(tmp_path / "a", SETTINGS) as journal:
        for number, each in enumerate(sent):
            journal.add_exchange(number, each)
        assert journal.rows == 2
    path = journal_of(tmp_path / "a")
    path.write_bytes(path.read_bytes()[:-9])
    with Journal(tmp_path / "a", SETTINGS) as journal:
        assert list(journal.exchanges()) == sent[:1]
        assert (journal.rows, journal.asked) == (1, {0})


def test_journal_is_private_and_used_by_one_process_at_a_time(begun: Path) -> None:
    assert journal_of(begun).stat().st_mode & 0o777 == 0o600
    with Journal(begun, SETTINGS), pytest.raises(RecordingError):
        Journal(begun, SETTINGS)
    with Journal(begun, SETTINGS):
        pass


def killed(out: Path) -> None:
    journal = Journal(out, SETTINGS)
    journal.add(entry(5))
    os.kill(os.getpid(), 9)


def test_killed_process_leaves_no_lock_and_keeps_its_entries(tmp_path: Path) -> None:
    out = tmp_path / "a"
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(out,))
    process.start()
    process.join()
    assert process.exitcode == -9
    with Journal(out, SETTINGS) as journal:
        assert (journal.requests, journal.asked) == (1, {5})


def test_other_settings_are_refused(begun: Path) -> None:
    before = journal_of(begun).read_bytes()
    with pytest.raises(RecordingError) as caught:
        Journal(begun, SETTINGS | {"seed": 4})
    assert (caught.value.expected, caught.value.found) == ("3", "4")
    assert journal_of(begun).read_bytes() == before


def test_damage_in_the_middle_or_a_line_of_another_form_is_refused(begun: Path) -> None:
    path = journal_of(begun)
    whole = path.read_bytes()
    places = range(0, len(whole.splitlines(keepends=True)[0]) + 40, 7)
    contents = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    for line in (
        b"[]",
        b"{}",
        b'{"what":"answer"}',
        b'{"what":"server","top":null}',
        b'{"what":"asked","prompt":"x"}',
        b'{"what":"exchange","prompt":3,"time":1}',
    ):
        contents.append(whole + b"%08x %s\n" % (zlib.crc32(line), line) + b"%08x {}\n" % zlib.crc32(b"{}"))
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(RecordingError):
            Journal(begun, SETTINGS)
        assert path.read_bytes() == content, "no part of it was cut off"


def test_link_in_its_place_is_not_followed_and_a_full_disk_is_reported(begun: Path, tmp_path: Path) -> None:
    """Simulated: the descriptor belongs to a file that is always full."""
    (tmp_path / "elsewhere").write_text("mine")
    journal_of(tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordingError):
        Journal(tmp_path / "a", SETTINGS)
    assert (tmp_path / "elsewhere").read_text() == "mine"
    with Journal(begun, SETTINGS) as journal, open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), journal._descriptor)
        with pytest.raises(RecordingError, match="No space left"):
            journal.add(entry(7))
