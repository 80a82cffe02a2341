"""The file format for answers: written files can be read, and invalid files are refused before they cost time."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import irwm
from irwm.checkpoint import recorded
from irwm.checkpoint.recorded import RecordedAnswers, Requests, Source, write_answers
from irwm.errors import AnswersError, AnswersFileError

N, V, R, VOCABULARY = 6, 40, 9, 600
SOURCE = Source("http://127.0.0.1:1/v1/completions", "m", "openai", "ab" * 32, VOCABULARY, 3, "all tokens",
                "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:09.000Z")  # fmt: skip


def answers() -> RecordedAnswers:
    rng = np.random.default_rng(0)
    table = -np.abs(rng.standard_normal((N, V))).astype(np.float32)
    table[2, 5] = np.nan
    requests = Requests(
        rng.integers(0, 3, R), np.arange(R), *(rng.integers(0, 256, (R, 32), dtype=np.uint8) for _ in range(2))
    )
    return RecordedAnswers(
        table, rng.permutation(VOCABULARY)[:V], SOURCE, ("a", "é\u202e", "c"), np.arange(N) % 3, requests
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.safetensors"
    write_answers(path, answers())
    return path


def test_a_written_recording_can_be_read(file: Path, tmp_path: Path) -> None:
    wanted, found = answers(), irwm.read_answers(file)
    assert found.log_probabilities.dtype == np.float32
    assert np.array_equal(found.log_probabilities, wanted.log_probabilities, equal_nan=True)
    assert (found.source, found.prompts) == (SOURCE, wanted.prompts)
    assert found.token_ids is not None
    assert found.prompt_of is not None
    assert (found.token_ids == wanted.token_ids).all()
    assert (found.prompt_of == wanted.prompt_of).all()
    assert found.requests is not None
    assert wanted.requests is not None
    for name in ("prompt", "time_ms", "request_sha256", "response_sha256"):
        assert np.array_equal(getattr(found.requests, name), getattr(wanted.requests, name))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "é" not in repr(found), "prompts may be any text, and thousands are not printed"
    whole = tmp_path / "whole"
    write_answers(whole, replace(answers(), token_ids=None))
    assert irwm.read_answers(whole).token_ids is None


def test_an_existing_recording_is_not_overwritten(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(FileExistsError):
        write_answers(file, answers())
    assert file.read_bytes() == before


def test_recorded_file_matches_the_documentation(file: Path) -> None:
    """docs/answers.md lists every tensor and every entry of the metadata."""
    document = (Path(__file__).parents[2] / "docs" / "answers.md").read_text("utf-8")
    section = document[document.index("## The file") : document.index("## Requirements")]
    header = json.loads(file.read_bytes()[8 : 8 + int.from_bytes(file.read_bytes()[:8], "little")])
    for name in (*header.pop("__metadata__"), *header):
        assert f"`{name}`" in section, name


def rewritten(file: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    tensors = {name: np.array(each) for name, each in load_file(file).items()}
    raw = file.read_bytes()
    about = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    change(tensors, about)
    file.unlink()
    about = {name: each for name, each in about.items() if each is not None}
    save_file({name: np.ascontiguousarray(each) for name, each in tensors.items()}, file, about or None)


METADATA: list[dict[str, str | None]] = [
    *({"format": "pt"}, {"version": "2"}, {"endpoint": None}, {"prompt_seed": "1e3"}, {"scale": "octaves"}),
    *({"vocab_size": size} for size in ("-1", "9" * 19, "0", "30")),
]
TENSORS: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda t: {"other": np.zeros(3)},
    lambda t: {"log_probabilities": t["log_probabilities"].astype(np.float64)},
    lambda t: {"log_probabilities": t["log_probabilities"].ravel()},
    lambda t: {"log_probabilities": t["log_probabilities"][:, :-1]},
    lambda t: {"log_probabilities": t["log_probabilities"][:-1]},
    lambda t: {"log_probabilities": np.full((N, V), np.nan, np.float32)},
    lambda t: {"log_probabilities": np.full((N, V), -np.inf, np.float32)},
    lambda t: {"token_ids": t["token_ids"].astype(np.int32)},
    lambda t: {"token_ids": np.zeros(V, np.int64)},
    lambda t: {"token_ids": t["token_ids"] - VOCABULARY},
    lambda t: {"token_ids": t["token_ids"] + VOCABULARY},
    lambda t: {"prompt_of": np.full(N, 3)},
    lambda t: {"requests.prompt": np.full(R, -1)},
    lambda t: {"requests.request_sha256": np.zeros((R, 31), np.uint8)},
    *(
        lambda t, text=text: {"prompts": np.frombuffer(text, np.uint8)}
        for text in (b'["a","a","c"]', b'{"a":1}', b"[1,2,3]", b"[" * 9999, b'["a')
    ),
]


def breaks_a_rule(file: Path, original: irwm.Checkpoint | None = None) -> None:
    with pytest.raises(AnswersFileError) as caught:
        irwm.read_answers(file, original)
    assert caught.value.file == str(file)
    assert isinstance(caught.value, AnswersError)
    assert caught.value.advice


@pytest.mark.parametrize("change", METADATA, ids=str)
def test_metadata_that_breaks_a_rule_is_refused(file: Path, change: dict[str, str | None]) -> None:
    rewritten(file, lambda tensors, about: about.update(change))
    breaks_a_rule(file)


@pytest.mark.parametrize("change", TENSORS)
def test_a_tensor_that_breaks_a_rule_is_refused(file: Path, change: Callable) -> None:
    rewritten(file, lambda tensors, about: tensors.update(change(tensors)))
    breaks_a_rule(file)


@pytest.mark.parametrize("name", ["log_probabilities", "prompts", "requests.time_ms", "__metadata__"])
def test_a_missing_part_is_refused(file: Path, name: str) -> None:
    rewritten(file, lambda tensors, about: about.clear() if name == "__metadata__" else tensors.pop(name))
    breaks_a_rule(file)


def test_truncated_recording_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in [*range(0, 64), *range(64, len(whole), 97), len(whole) - 1, len(whole) + 1]:
        file.write_bytes((whole + b"x")[:length])
        breaks_a_rule(file)


def test_files_without_answers_are_refused(tmp_path: Path, gemma_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    contents = (b"", b"GGUF" + bytes(100), b"\x80\x02}", b"<html>", b"version https://git-lfs", bytes(9))
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    for path in (tmp_path / "nothing", gemma_path / "model.safetensors", tmp_path, *tmp_path.iterdir()):
        breaks_a_rule(path)


def test_an_oversized_recording_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file is cheap to make."""
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, recorded.MOST_BYTES + 1)
    breaks_a_rule(path)
    small = tmp_path / "small"
    write_answers(small, answers())
    assert irwm.read_answers(small).prompts
    monkeypatch.setattr(recorded, "MOST_PROMPT_BYTES", 10)
    breaks_a_rule(small)


def test_recorded_tokens_must_exist_in_original(file: Path, tiny_path: Path, gemma_path: Path, tmp_path: Path) -> None:
    assert irwm.read_answers(file, irwm.open_checkpoint(tiny_path)).log_probabilities.shape == (N, V)
    with pytest.raises(AnswersFileError, match=r"4096 tokens.*600 tokens"):
        irwm.read_answers(file, irwm.open_checkpoint(gemma_path))
    np.savez(tmp_path / "bare.npz", log_probabilities=np.zeros((2, 601), np.float32))
    breaks_a_rule(tmp_path / "bare.npz", irwm.open_checkpoint(tiny_path))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpy_archive_is_read(tmp_path: Path, dtype: type, save: Any) -> None:
    table = -np.ones((N, V), dtype)
    save(tmp_path / "a.npz", log_probabilities=table, token_ids=np.arange(V, dtype=np.int32))
    found = irwm.read_answers(tmp_path / "a.npz")
    assert found.log_probabilities.dtype == np.float32
    assert (found.log_probabilities == -1).all()
    assert found.token_ids is not None
    assert found.token_ids.dtype == np.int64
    assert (found.source, found.prompts, found.requests) == (None, (), None)
    save(tmp_path / "b.npz", log_probabilities=table)
    assert irwm.read_answers(tmp_path / "b.npz").token_ids is None


TABLE = np.zeros((2, 3))


@pytest.mark.parametrize(
    "arrays",
    [
        {"logits": TABLE},
        *({"log_probabilities": table} for table in (np.zeros((2, 3), int), np.zeros(3), np.zeros((0, 3)))),
        *({"log_probabilities": table} for table in (np.array([[object()]]), np.full((2, 3), np.nan))),
        *({"log_probabilities": TABLE, "token_ids": ids} for ids in (np.zeros(3), np.arange(2), np.array([1, 2, 2]))),
    ],
)
def test_other_archive_is_refused(tmp_path: Path, arrays: Any) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    breaks_a_rule(tmp_path / "a.npz")


def archive_of(path: Path, shape: str, content: bytes) -> Path:
    """An archive whose table claims to have this shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log_probabilities.npy", b"\x93NUMPY\x01\x00" + bytes([118, 0]) + header + content)
    return path


@pytest.mark.parametrize(
    "shape",
    [
        *("(True, 4)", "(0, 10000000000000000000000)", "(-1, 4)", "('a', 4)", "((2, 2), 4)"),
        "(1000000000, 1000000000)",  # more than the archive holds
    ],
)
def test_array_with_an_impossible_shape_is_refused(tmp_path: Path, shape: str) -> None:
    breaks_a_rule(archive_of(tmp_path / "a.npz", shape, bytes(16)))


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, log_probabilities=np.full((20, 30), -3.0))
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the flag in the member's header, and in the directory's copy
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    breaks_a_rule(path)
