"""The tables in docs/ name the command that wrote them, and say whether they are older than the code."""

from __future__ import annotations

import json
import platform
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import sources, written
from tools import families, layer0

PAGE = """\
# Figures

<!-- one -->
<!-- python -m benchmarks.calibration --write, from sources {sources} -->

| a |
|---|
| 1 |

<!-- /one -->
"""


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(written, "DOCS", tmp_path)
    return tmp_path


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of three modules: a command, a module that it imports, and one that it does not."""
    (tmp_path / "irwm").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "irwm" / "__init__.py").write_text("if TYPE_CHECKING:\n    from irwm.scheme import rank as rank\n")
    (tmp_path / "irwm" / "scheme.py").write_text('"""Ranks."""\n\nrank = 1\n')
    (tmp_path / "irwm" / "page.py").write_text("title = 1\n")
    (tmp_path / "benchmarks" / "one.py").write_text("import irwm\n\nprint(irwm.rank)\n")
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def forgotten() -> None:
    for kept in (sources.digest, sources._tree, sources._text, sources._hash):
        kept.cache_clear()


def after(file: Path, text: str) -> str:
    """The digest of the command after a module was changed."""
    file.write_text(text)
    for kept in (sources.digest, sources._tree, sources._text, sources._hash):
        kept.cache_clear()
    return sources.digest("benchmarks.one")


def test_bundled_models_and_texts_that_code_names_count(tree: Path) -> None:
    model, text = tree / "assets" / "demo" / "model.safetensors", tree / "benchmarks" / "words.txt"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"1")
    text.write_text("one")
    command = "print('words.txt', 'assets', 'demo')\n"
    before = after(tree / "benchmarks" / "one.py", command)
    text.write_text("two")
    changed = after(tree / "benchmarks" / "one.py", command)
    model.write_bytes(b"2")
    assert len({before, changed, after(tree / "benchmarks" / "one.py", command)}) == 3


def test_commands_of_single_experiments_are_left_to_the_one_of_all() -> None:
    every, one, other = "python -m a", "python -m a --only b", "python -m c --only b"
    assert written.commands([one, every, other, every]) == [every, other]
    assert written.commands([one, one]) == [one]


def test_commands_after_a_failed_one_run(capfd: pytest.CaptureFixture[str]) -> None:
    failing, working = "python -m benchmarks.transplant --tool no-such-program", "python -m platform"
    assert written.run([failing, working]) == [failing]
    said = capfd.readouterr()
    assert "no program no-such-program" in said.err
    assert platform.platform() in said.out


def test_exported_name_resolves_to_its_module(tree: Path) -> None:
    assert sources.needed("benchmarks.one") == {"benchmarks.one", "irwm", "irwm.scheme"}
    with pytest.raises(ModuleNotFoundError):
        sources.digest("benchmarks.two")


def test_one_claim_depends_on_its_own_module(tree: Path) -> None:
    (tree / "benchmarks" / "all").mkdir()
    (tree / "benchmarks" / "all" / "first.py").write_text("import irwm\n")
    assert sources.module_of("benchmarks.all", " --only first --write") == "benchmarks.all.first"
    assert sources.module_of("benchmarks.all", " --only second --write") == "benchmarks.all"
    assert sources.module_of("benchmarks.all", " --write") == "benchmarks.all"
    assert sources.module_of("benchmarks.all", " --only first second --write") == "benchmarks.all"
    assert sources.module_of("benchmarks.all", "python -m benchmarks.all --only first") == "benchmarks.all.first"


def test_comments_do_not_change_the_digest_and_code_does(tree: Path) -> None:
    before = sources.digest("benchmarks.one")
    scheme = tree / "irwm" / "scheme.py"
    assert after(scheme, '"""Ranks, from 0 to 1."""\n\n# One.\nrank = (\n    1)\n') == before
    assert after(tree / "irwm" / "page.py", "title = 2\n") == before
    assert after(scheme, "rank = 2\n") != before


def test_texts_of_errors_do_not_change_the_digest_and_their_types_do(tree: Path) -> None:
    scheme = tree / "irwm" / "scheme.py"
    before = after(scheme, 'rank = 1\nif rank:\n    raise ValueError(f"no rank {rank}", "wait")\n')
    assert after(scheme, 'rank = 1\nif rank:\n    raise ValueError(f"no rank: {rank}", "retry")\n') == before
    assert after(scheme, 'rank = 1\nif rank:\n    raise KeyError(f"no rank {rank}", "wait")\n') != before


def test_sentences_do_not_change_the_digest_and_labels_do(tree: Path) -> None:
    scheme = tree / "irwm" / "scheme.py"
    before = after(scheme, 'rank = 1\nsaid = f"the rank is {rank} here", "rank of row"\n')
    assert after(scheme, 'rank = 1\nsaid = f"{rank} is the rank", "rank of row"\n') != before, "too short to be sure"
    before = after(scheme, 'rank = 1\nsaid = "the row has this rank", "rank of row"\n')
    assert after(scheme, 'rank = 1\nsaid = "this rank is the row\'s", "rank of row"\n') == before
    assert after(scheme, 'rank = 1\nsaid = "the row has this rank", "rank of it"\n') != before
    before = after(tree / "benchmarks" / "one.py", 'prompt = "Tell me a long story"\n')
    assert after(tree / "benchmarks" / "one.py", 'prompt = "Tell me a short story"\n') != before


def test_a_reader_counts_only_for_a_command_that_imports_it(tree: Path) -> None:
    report = tree / "irwm" / "report"
    report.mkdir()
    before = after(tree / "irwm" / "scheme.py", "from irwm.report.page import title\n\nrank = 1\n")
    assert after(report / "page.py", "from irwm.report.words import words as title\n") == before
    (report / "words.py").write_text("words = 1\n")
    command = "import irwm\nfrom irwm.report.page import title\n\nprint(irwm.rank, title)\n"
    before = after(tree / "benchmarks" / "one.py", command)
    assert after(report / "words.py", "words = 2\n") != before


def test_a_table_older_than_the_code_says_so_until_it_is_written_again(docs: Path) -> None:
    page = docs / "page.md"
    page.write_text(PAGE.format(sources="0" * 12))
    written.mark(page)
    written.mark(page)
    assert page.read_text().count(written.OLDER) == 1
    page.write_text(page.read_text().replace("0" * 12, sources.digest("benchmarks.calibration")))
    written.mark(page)
    assert page.read_text() == PAGE.format(sources=sources.digest("benchmarks.calibration"))


def test_output_is_written_between_the_markers(
    docs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = docs / "page.md"
    page.write_text(PAGE.format(sources="0" * 12))
    monkeypatch.setattr("sys.orig_argv", ["python", "-m", "benchmarks.calibration", "--write"])
    monkeypatch.setattr("sys.argv", ["calibration.py", "--write"])
    with written.printed_table("page.md", "one", write=True):
        print("| b |\n|---|\n| 2 |")
    assert page.read_text() == PAGE.format(sources=sources.digest("benchmarks.calibration")).replace(
        "| a |\n|---|\n| 1 |", "| b |\n|---|\n| 2 |"
    )
    assert "| 2 |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        written.write_table("page.md", "two", "")
    with pytest.raises(SystemExit, match="no place for two"), written.printed_table("page.md", "two", write=True):
        pytest.fail("the work started without a place for its table")


def test_every_command_of_a_table_exists() -> None:
    stamps = written.stamps()
    assert {stamp.page.name for stamp in stamps} >= {"method.md", "collusion.md", "adaptive.md", "peers.md"}
    assert [stamp.command for stamp in stamps if find_spec(stamp.module) is None] == []
    marker = re.compile(r"^<!-- ([\w ]+) -->\n(?!<!-- python -m)", re.M)
    assert [page for page in written.DOCS.rglob("*.md") if marker.search(page.read_text(encoding="utf-8"))] == []


def test_every_table_states_whether_it_is_outdated(tmp_path: Path) -> None:
    """`python -m benchmarks.written --mark` writes these lines."""
    for page in {stamp.page for stamp in written.stamps()}:
        copy = tmp_path / page.name
        copy.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
        written.mark(copy)
        assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8"), page.name


def test_pages_of_the_families_are_those_that_the_tools_write(capsys: pytest.CaptureFixture[str]) -> None:
    families.main()
    assert (written.DOCS / "families.md").read_text(encoding="utf-8") == capsys.readouterr().out
    assert json.loads(layer0.TABLE.read_text(encoding="utf-8")) == json.loads(json.dumps(layer0.table()))
