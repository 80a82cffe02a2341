"""Run in a child process: reads a GGUF file's header, which holds settings, vocabulary and the tensors' positions.

The format, all of it little-endian: "GGUF", a version, the number of tensors and of settings; the settings, each a
name, a type and a value; the tensors' entries, each a name, a shape with its fastest dimension first, the number of a
GGML type and an offset; and from the next multiple of the alignment on, the tensors' bytes. A text is its length in
eight bytes and its UTF-8 bytes.

Why not the gguf package's reader: it makes several NumPy arrays for each entry of each list, so a vocabulary of 128 000
tokens and 280 000 merges took it 9 s and 750 MB; here it takes 0.7 s and 25 MB. It also maps the whole file into
memory, which a memory limit would forbid. `tests/checkpoint/test_gguf_file.py` compares the results of both.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import IO, Any

from irwm.checkpoint.magic import DOWNLOAD_AGAIN
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError

# Real headers have up to about 16 MB (a vocabulary of 262 000 tokens with its merges).
MAX_HEADER_BYTES = 64 * 1024 * 1024
# The shortest setting is an empty name (8), a type (4) and one byte; the shortest tensor has no dimension and no name.
LEAST_SETTING_BYTES, LEAST_TENSOR_BYTES = 13, 24
# Lists that are returned: those with one entry per token, and short ones (head counts per layer).
VOCABULARY = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
_MAX_TOKENS = 1 << 22
_MAX_SHORT = 4096
# The longest text that is returned; chat templates have up to about 20 000 characters.
_MAX_TEXT = 1 << 16
# GGML itself allows 63 bytes and 4 dimensions.
_MAX_NAME_BYTES = 1024
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
ALIGNMENT = "general.alignment"
# The types of settings by number, in the notation of `struct`; the others are text and list.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_UINT32, _FLOAT32, _TEXT, _LIST = 4, 6, 8, 9


def parse(path: str) -> dict[str, object]:
    """The header as plain values.

    Returns:
        "metadata": settings by name; long lists other than the vocabulary's, and very long texts, are left out.
        "tensors": for each its name, the number of its GGML type, its shape with the slowest dimension first, and its
        first byte's place in the file. The caller checks whether these positions are in the file.
        "alignment": the tensors' positions, counted from "data", are multiples of it.
        "data": where the tensors' bytes begin.

    Raises:
        CorruptCheckpointError, UnsupportedCheckpointError: not a valid GGUF header of version 2 or 3.
    """
    with open(path, "rb") as stream:
        header = _Header(stream, os.fstat(stream.fileno()).st_size)
        magic, version, tensor_count, setting_count = struct.unpack("<4sIQQ", header.take(24))
        if magic != b"GGUF" or version not in (2, 3):
            raise UnsupportedCheckpointError("The header is not GGUF version 2 or 3", found=f"{version}")
        header.require_room("settings", setting_count, LEAST_SETTING_BYTES)
        metadata: dict[str, object] = {}
        kinds: dict[str, int] = {}
        for _ in range(setting_count):
            name = header.name("setting")
            if name in kinds:
                raise _corrupt("The header contains a duplicate setting", expected="each setting only once", found=name)
            kinds[name] = header.number("I")
            value = header.value(name, kinds[name])
            if value is not None:
                metadata[name] = value
        alignment = _alignment(metadata.get(ALIGNMENT), kinds)
        header.require_room("tensors", tensor_count, LEAST_TENSOR_BYTES)
        entries = [_tensor(header) for _ in range(tensor_count)]
        data = -(-header.done // alignment) * alignment
    return {
        "metadata": metadata,
        "tensors": [(name, kind, shape, data + offset) for name, kind, shape, offset in entries],
        "alignment": alignment,
        "data": data,
    }


@dataclass(slots=True)
class _Header:
    """The header's bytes, read one after the other.

    Attributes:
        stream: the open file.
        size: of the whole file, in bytes.
        done: how many bytes were read.
    """

    stream: IO[bytes]
    size: int
    done: int = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises if the file is too short."""
        if self.done + count > min(self.size, MAX_HEADER_BYTES):
            if self.done + count > self.size:
                raise _corrupt("The header extends beyond the end of the file", f"at most {self.size} bytes")
            raise _corrupt("The header is implausibly large", f"at most {MAX_HEADER_BYTES} bytes")
        content = self.stream.read(count)
        if len(content) != count:
            raise _corrupt("The file ended while the header was being read", f"{self.size} bytes")
        self.done += count
        return content

    def require_room(self, what: str, count: int, least: int) -> None:
        """Rejects a count of items of at least `least` bytes each if the rest of the file is too short for them."""
        left = min(self.size, MAX_HEADER_BYTES) - self.done
        if count * least > left:
            raise _corrupt(f"The header claims more {what} than it has room for", f"at most {left // least}", count)

    def number(self, kind: str) -> Any:
        code = struct.Struct("<" + kind)
        return code.unpack(self.take(code.size))[0]

    def text(self) -> bytes:
        return self.take(self.number("Q"))

    def name(self, what: str) -> str:
        content = self.text()
        if len(content) > _MAX_NAME_BYTES:
            raise _corrupt(f"The name of a {what} is implausibly long", f"at most {_MAX_NAME_BYTES} bytes")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _corrupt(f"The name of a {what} is not valid UTF-8", found=content[:40].hex(" ")) from error

    def value(self, name: str, kind: int) -> Any:
        """A setting's value; None for one that is not returned."""
        if kind == _LIST:
            return self._list(name)
        if kind == _TEXT:
            content = self.text()
            # Some vocabularies contain bytes that are not valid text alone.
            return content.decode("utf-8", "replace") if len(content) <= _MAX_TEXT else None
        if kind == _FLOAT32:
            return _shortest(self.take(4))
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        raise _corrupt(
            "A setting has a type that GGUF does not define", "a type from 0 to 12", f"type {kind} for {name}"
        )

    def _list(self, name: str) -> list[Any] | None:
        kind, count = self.number("I"), self.number("Q")
        most = _MAX_TOKENS if name in VOCABULARY else _MAX_SHORT
        if kind == _TEXT:
            self.require_room(f"entries in {name}", count, 8)
            if count > _MAX_TOKENS:
                raise _corrupt("A list is implausibly long", f"at most {_MAX_TOKENS} strings", f"{count} in {name}")
            texts = (self.text() for _ in range(count))
            if count <= most:
                return [text.decode("utf-8", "replace") for text in texts]
            for _ in texts:
                pass
            return None
        if kind not in _NUMBERS:
            problem = "A setting is a list of lists" if kind == _LIST else "A list has a type that GGUF does not define"
            raise _corrupt(problem, "a list of numbers or strings", name)
        code = struct.Struct("<" + _NUMBERS[kind])
        self.require_room(f"entries in {name}", count, code.size)
        content = self.take(count * code.size)
        return [value for (value,) in code.iter_unpack(content)] if count <= most else None


def _tensor(header: _Header) -> tuple[str, int, list[int], int]:
    """The next tensor's name, type, shape with the slowest dimension first, and offset into the data."""
    name = header.name("tensor")
    dimensions = header.number("I")
    if dimensions > _MAX_DIMENSIONS:
        raise _corrupt("A tensor has more dimensions than GGML allows", f"at most {_MAX_DIMENSIONS}", dimensions, name)
    shape = [header.number("Q") for _ in range(dimensions)]
    kind, offset = header.number("I"), header.number("Q")
    if offset > header.size:
        raise _corrupt("A tensor begins beyond the end of the file", f"at most {header.size} bytes", offset, name)
    return name, kind, shape[::-1], offset


def _alignment(stated: Any, kinds: dict[str, int]) -> int:
    alignment = _DEFAULT_ALIGNMENT if stated is None else stated
    if kinds.get(ALIGNMENT, _UINT32) != _UINT32 or alignment < 1 or alignment & (alignment - 1):
        raise _corrupt("The alignment is invalid", "a power of two, as an unsigned 32-bit number", alignment)
    return int(alignment)


def _shortest(content: bytes) -> float:
    """The decimal number with the fewest digits that rounds to this float32: 1e-06 and not 9.99999997e-07."""
    (value,) = struct.unpack("<f", content)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        # A number just below the largest may round to one that float32 cannot represent.
        if abs(short) < 3.4e38 and struct.pack("<f", short) == content:
            return short
    return float(value)


def _corrupt(problem: str, expected: str | None = None, found: Any = None, tensor: str | None = None) -> Exception:
    shown = None if found is None else str(found)
    return CorruptCheckpointError(problem, tensor=tensor, expected=expected, found=shown, advice=DOWNLOAD_AGAIN)
