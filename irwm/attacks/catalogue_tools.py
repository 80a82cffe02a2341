"""The catalogue's attacks that other people's tools carry out: quantised copies as they are published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from irwm.attacks.attack import Attack, Attacked, Setup, Strength
from irwm.attacks.quantisers import (
    bitsandbytes_obstacle,
    dequantised,
    gguf_obstacle,
    to_bitsandbytes,
    to_gguf,
)
from irwm.attacks.tools import autoround, autoround_obstacle

_GGUF = (("F16", "16 bits (F16)"), ("Q8_0", "8 bits (Q8_0)"), ("Q4_K_M", "4 bits (Q4_K_M)"), ("Q4_0", "4 bits (Q4_0)"))


def tool_quantisations(group: str) -> Iterator[Attack]:
    """GGUF, bitsandbytes, and GPTQ's and AWQ's layouts."""
    yield Attack(
        "gguf", "As a GGUF file", "The model becomes a GGUF file, as llama.cpp converts and quantises it.", group,
        "kind of file", _strengths(*_GGUF), _gguf, lambda setup: gguf_obstacle(setup.release, "Q4_K_M"),
    )  # fmt: skip
    yield Attack(
        "bitsandbytes", "Quantised by bitsandbytes", "Every linear layer but the head is stored in 8 or 4 bits.", group,
        "kind", _strengths(("int8", "8 bits (LLM.int8)"), ("nf4", "4 bits (NF4)")), _bitsandbytes,
        lambda _setup: bitsandbytes_obstacle(),
    )  # fmt: skip
    yield Attack(
        "autoround", "GPTQ or AWQ (AutoRound)", "Layers get 4 bits, rounded to answer as before on a text.", group,
        "layout", _strengths(("gptq", "GPTQ, 4 bits"), ("awq", "AWQ, 4 bits")), _autoround,
        lambda setup: autoround_obstacle(setup.release),
    )  # fmt: skip


def _strengths(*pairs: tuple[str, str]) -> tuple[Strength, ...]:
    return tuple(Strength(value, label) for value, label in pairs)


def _gguf(setup: Setup, value: float | str, out: Path) -> Attacked:
    return _with_numbers(setup, to_gguf(setup.release, out / "file", str(value)), out)


def _bitsandbytes(setup: Setup, value: float | str, out: Path) -> Attacked:
    return _with_numbers(setup, to_bitsandbytes(setup.release, out / "copy", str(value), setup.device), out)


def _autoround(setup: Setup, value: float | str, out: Path) -> Attacked:
    copy = autoround(
        setup.release, out / "copy", str(value), setup.text,
        seed=setup.seed, device=setup.device, progress=setup.progress,
    )  # fmt: skip
    return _with_numbers(setup, copy, out)


def _with_numbers(setup: Setup, copy: Path, out: Path) -> Attacked:
    """The copy, and beside it, within `out`, the numbers that it stands for, to be run."""
    return Attacked(copy, dequantised(copy, setup.release, out / "numbers"))
