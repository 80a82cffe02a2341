"""If a GPU has too little memory, the processor continues, with a notice. Uses a GPU's exceptions instead of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import irwm
from irwm.checkpoint.rows import enough_memory
from irwm.errors import DeviceMemoryError
from irwm.evidence import detection
from irwm.evidence.devices import NOT_ENOUGH, on_device
from tests.conftest import Marked


def no_room(device: str) -> str:
    if device != "cpu":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return "done"


def test_processor_continues_with_a_notice() -> None:
    said: list[str] = []
    assert on_device(no_room, "cuda", said.append) == ("done", "cpu")
    assert said == [NOT_ENOUGH]
    assert on_device(no_room, "cpu", said.append) == ("done", "cpu")
    assert said == [NOT_ENOUGH]


def test_failure_on_the_processor_is_raised() -> None:
    def never(device: str) -> None:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        on_device(never, "cpu")
    with pytest.raises(torch.OutOfMemoryError):
        on_device(never, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["alignment", "reading"])
def test_a_detection_is_the_same_with_a_warning(
    release_of: Callable[[str], Marked], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    model, key, release = release_of("gemma")
    expected = irwm.detect(irwm.open_checkpoint(release), model, key)
    told: list[str] = []
    there = irwm.Examination(irwm.open_checkpoint(release), model)
    plain = detection._Detection.finding

    def on(_: irwm.Examination, device: str) -> irwm.Examination:
        if where == "alignment":
            no_room(device)
        return there  # no GPU to align on here

    def finding(self, statistic: str, invariant: str):
        if where == "reading" and not told:
            told.append("")
            no_room("cuda")
        return plain(self, statistic, invariant)

    monkeypatch.setattr(irwm.Examination, "on", on)
    monkeypatch.setattr(detection._Detection, "finding", finding)
    found = irwm.detect(irwm.open_checkpoint(release), model, key, device="cuda")
    assert found.warnings == (*expected.warnings, NOT_ENOUGH)
    assert (found.verdict, found.reading.ranks.tolist()) == (expected.verdict, expected.reading.ranks.tolist())


def test_out_of_gpu_memory_is_not_reported_as_file_too_large(demo_path: Path) -> None:
    entry = irwm.open_checkpoint(demo_path).tensors["model.embed_tokens.weight"]
    with pytest.raises(DeviceMemoryError), enough_memory(entry):
        raise torch.OutOfMemoryError("CUDA out of memory")

    def read(device: str) -> str:
        if device != "cpu":
            with enough_memory(entry):
                raise torch.OutOfMemoryError("CUDA out of memory")
        return "read"

    assert on_device(read, "cuda") == ("read", "cpu")
