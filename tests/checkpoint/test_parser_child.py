"""A parser in its own process: its answers get through, and all its failures end in a typed error."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from irwm.checkpoint.child_process import script_command
from irwm.checkpoint.formats import parser_child
from irwm.checkpoint.formats.parser_child import ParserLimits
from irwm.errors import CheckpointError, CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError
from tools.waiting import PATIENCE, until

REPOSITORY = Path(__file__).resolve().parents[2]
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a parser with the given text, or body of `parse`, on a file."""
    monkeypatch.setattr(parser_child, "FOLDER", tmp_path)
    (tmp_path / "file").write_bytes(b"content")

    def start(body: str, opening: str = "", **limits: int) -> dict[str, Any]:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (tmp_path / "parser.py").write_text(f"import os, sys, signal\n{opening}\ndef parse(path):\n{lines}")
        return parser_child.run_parser(
            "parser", tmp_path / "file", "test file", ParserLimits(**({"seconds": 20} | limits))
        )

    return start


def refused(run: Run, body: str, opening: str = "", **limits: int) -> CorruptCheckpointError:
    with pytest.raises(CorruptCheckpointError) as caught:
        run(body, opening, **limits)
    assert caught.value.file is not None
    assert caught.value.file.endswith("file")
    assert str(caught.value).isprintable()
    return caught.value


def until_nothing_runs(folder: Path) -> None:
    """Waits until no process reads the folder."""
    until(lambda: not processes(folder), f"the end of every process that reads {folder}")


def processes(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(folder) in line:
                found.append(line.decode(errors="replace"))
    return found


def test_an_answer_may_contain_any_json_value(run: Run) -> None:
    answer = run("file = open(path)\nreturn {'read': file.read(), 'n': [1, None, 'é\\ud800', float('nan')]}")
    assert answer["read"] == "content"
    assert answer["n"][:3] == [1, None, "é\ud800"]
    assert math.isnan(answer["n"][3])


def test_printed_output_does_not_get_into_the_answer(run: Run) -> None:
    assert run("print('{'); os.write(1, b'}'); return {'a': 1}", opening="print('loading')") == {"a": 1}


def test_large_stderr_output_neither_blocks_nor_is_kept(run: Run) -> None:
    body = "os.write(2, b'x' * 5_000_000 + b'last words'); os._exit(7)"
    error = refused(run, body)
    assert "exit status 7" in error.problem
    assert (error.found or "").endswith("last words")
    assert len(error.found or "") <= 300


@pytest.mark.parametrize("kind", [CorruptCheckpointError, UnsupportedCheckpointError, NotACheckpointError])
def test_a_typed_error_of_the_parser_is_raised_here_with_the_file(run: Run, kind: type[CheckpointError]) -> None:
    details = {"tensor": "w", "expected": "x", "found": "y", "advice": "Go"}
    with pytest.raises(kind) as caught:
        run(f"raise {kind.__name__}('It fails', **{details})", opening=f"from irwm.errors import {kind.__name__}")
    error = caught.value
    assert type(error) is kind
    assert error.problem == "It fails"
    assert {name: getattr(error, name) for name in details} == details
    assert (error.file or "").endswith("file")


def test_the_parser_may_import_from_the_packages_without_loading_all_of_them(run: Run) -> None:
    body = "return {'loaded': sorted(name for name in sys.modules if name.split('.')[0] in ('irwm', 'torch', 'numpy'))}"
    loaded = run(body, opening="from irwm.checkpoint.magic import SAVE_ADVICE")["loaded"]
    assert loaded == ["irwm", "irwm.checkpoint", "irwm.checkpoint.magic", "irwm.errors", "irwm.lazy"]


@pytest.mark.slow
def test_memory_limit_excludes_the_libraries(run: Run) -> None:
    body = "torch.ones(2**20); return {'v': torch.__version__}"
    assert run(body, opening="import torch", memory=2**27) == {"v": torch.__version__}
    refused(run, "torch.ones(2**26)", opening="import torch", memory=2**27)


@pytest.mark.parametrize(
    ("body", "limits", "reason"),
    [
        ("while True: pass", {"cpu_seconds": 1}, "more than 1 seconds of CPU time"),
        ("a = []\nwhile True: a.append(bytes(2**24))", {"memory": 2**28}, "more memory than allowed"),
        ("return {'a': 'x' * 10_000_000}", {"output": 2**20}, "more than 1 MB"),
    ],
)
def test_a_parser_beyond_its_limits_is_ended(run: Run, body: str, limits: dict[str, int], reason: str) -> None:
    assert reason in refused(run, body, **limits).problem


@pytest.mark.parametrize("waiting", ["signal.pause()", "os.close(1); os.close(2)\nwhile True: signal.pause()"])
def test_endless_waiting_is_ended(run: Run, tmp_path: Path, waiting: str) -> None:
    waiting = "signal.alarm(0)\n" + waiting  # so that it does not end itself and runs until it is killed
    refused(run, waiting, seconds=1)
    until_nothing_runs(tmp_path)


def test_processes_started_by_the_parser_are_ended(run: Run, tmp_path: Path) -> None:
    refused(run, "os.fork(); os.fork()\nsignal.pause()", seconds=1)
    until_nothing_runs(tmp_path)
    assert run("if os.fork() == 0:\n os.close(1); os.close(2); os.close(3); signal.pause()\nreturn {}") == {}
    until_nothing_runs(tmp_path)


def test_child_answers_of_any_length_are_read(run: Run) -> None:
    assert len(run("return {'a': 'x' * 10_000_000}")["a"]) == 10_000_000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ran out of memory"),
        ("os.kill(os.getpid(), 40)", ""),
        ("os._exit(0)", ""),
        ("sys.exit(5)", "exit status 5"),
        ("raise KeyboardInterrupt", "SIGINT"),
        ("raise ValueError('\\x1b[31m' + 'x' * 5000)", r"ValueError: \x1b[31mxxx"),
        ("return {1, 2}", "TypeError"),
        ("return [1]", ""),
        ("return {'error': 'a text'}", ""),
        ("return {'error': {'problem': 7, 'kind': [], 'tensor': {}}}", ""),
        ("return parse(path)", "nested"),
        ("[os.write(n, b'{') for n in range(3, 8) if os.path.exists(f'/proc/self/fd/{n}')]; os._exit(0)", "JSON"),
    ],
)
def test_every_failure_of_the_parser_is_a_typed_error(run: Run, body: str, words: str) -> None:
    assert words in str(refused(run, body))


def test_child_cannot_write_files_and_opens_few(run: Run, tmp_path: Path) -> None:
    body = f"with open({str(tmp_path / 'loot')!r}, 'wb') as file: file.write(b'x')\nreturn {{}}"
    assert "File too large" in str(refused(run, body))
    assert (tmp_path / "loot").read_bytes() == b""
    assert "Too many open files" in str(refused(run, "a = [open(path) for _ in range(100)]\nreturn {}"))


def test_the_parser_inherits_no_environment_or_descriptors(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_PASSPHRASE", "secret")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    answer = run(
        "return {'env': dict(os.environ), 'path': sys.path, 'stdin': sys.stdin.read(),"
        " 'fds': os.listdir('/proc/self/fd'), 'leads': os.getsid(0) == os.getpid()}"
    )
    assert "secret" not in answer["env"].values()
    assert "/elsewhere" not in answer["path"]
    assert answer["stdin"] == ""
    assert answer["leads"] is True
    assert len(answer["fds"]) <= 5  # the three standard ones, the answer's, and the one that lists them


@pytest.mark.parametrize("fault", ["import no_such_module_at_all", "(", "raise RuntimeError", "/no/such/python"])
def test_a_failed_start_is_not_blamed_on_the_file(run: Run, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault.startswith("/"):
        monkeypatch.setattr(sys, "executable", fault)
    with pytest.raises(CheckpointError) as caught:
        run("return {}", "" if fault.startswith("/") else fault)
    assert type(caught.value) is CheckpointError


def test_a_removed_working_folder_is_no_problem(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rmdir()
    assert run("return {}") == {}


@pytest.mark.parametrize("name", ["-c", "a b", "模型\udcff", "x" * 200])
def test_a_file_of_any_name_reaches_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(parser_child, "FOLDER", tmp_path)
    (tmp_path / name).write_text(name, errors="surrogateescape")
    (tmp_path / "parser.py").write_text("def parse(path): return {'n': len(open(path, 'rb').read()), 'path': path}")
    monkeypatch.chdir(tmp_path)
    answer = parser_child.run_parser("parser", Path(name), "test file")
    assert answer["path"] == str(tmp_path / name)
    assert answer["n"] == len(os.fsencode(name))


@pytest.mark.slow
@pytest.mark.parametrize("without_posix", [False, True])
def test_child_works_in_task_processes_and_without_posix(tmp_path: Path, without_posix: bool) -> None:
    """As in a job: in another session, without input, and with its output going to a log."""
    torch.save({"w": torch.arange(6.0)}, tmp_path / "x.bin")
    script = (
        "import sys, json\nfrom pathlib import Path\nfrom irwm.checkpoint import read_tensor\n"
        "from irwm.checkpoint.formats import PYTORCH\n"
        "print(json.dumps(read_tensor(PYTORCH.read(Path(sys.argv[1])).tensors['w']).tolist()))"
    )
    path = [str(REPOSITORY / "tests" / "without_posix")] * without_posix + [str(REPOSITORY)]
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "x.bin")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_parser_ends_itself_without_its_task(tmp_path: Path) -> None:
    """As after a kill of the task: no one else ends it."""
    (tmp_path / "parser.py").write_text("import signal\ndef parse(path): signal.pause()")
    command = script_command(parser_child._CONFINED, "1,60,1000000000", str(tmp_path / "parser.py"), "file")
    alone = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    alone.communicate(timeout=PATIENCE)
    assert alone.returncode == -signal.SIGALRM
