"""As much of DER (X.690) as a time-stamp needs: definite lengths, one-byte tags, every byte accounted for.

Hostile bytes end in ValueError, never in a large allocation: a value is a slice of what was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BOOLEAN, INTEGER, OCTETS, NULL, OID, SEQUENCE, SET = 0x01, 0x02, 0x04, 0x05, 0x06, 0x30, 0x31
TAG_0, TAG_0_PRIMITIVE = 0xA0, 0x80
_CONSTRUCTED, _LONG_TAG = 0x20, 0x1F


@dataclass(frozen=True, slots=True)
class Value:
    """One tag, length, value.

    Attributes:
        tag: the identifier octet.
        raw: the whole encoding.
        content: the part behind tag and length.
    """

    tag: int
    raw: bytes
    content: bytes

    def children(self) -> tuple[Value, ...]:
        """The values inside a constructed one.

        Raises:
            ValueError: it is not constructed, or its content is not a row of values.
        """
        if not self.tag & _CONSTRUCTED:
            raise ValueError(f"tag {self.tag:#x} holds no further values")
        return tuple(values(self.content))

    def expect(self, tag: int) -> Value:
        """Itself.

        Raises:
            ValueError: it has another tag.
        """
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} where {tag:#x} was expected")
        return self

    def integer(self) -> int:
        self.expect(INTEGER)
        if not self.content:
            raise ValueError("an integer without digits")
        return int.from_bytes(self.content, "big", signed=True)

    def oid(self) -> str:
        """The object identifier in dotted form."""
        self.expect(OID)
        if not self.content or self.content[-1] & 0x80:
            raise ValueError("a broken object identifier")
        arcs, value = [], 0
        for byte in self.content:
            value = value << 7 | byte & 0x7F
            if value.bit_length() > 128:
                raise ValueError("a broken object identifier")
            if not byte & 0x80:
                arcs.append(value)
                value = 0
        first = min(arcs[0] // 40, 2)
        return ".".join(map(str, [first, arcs[0] - 40 * first, *arcs[1:]]))


def values(data: bytes) -> Iterator[Value]:
    """The values that `data` is a row of.

    Raises:
        ValueError: an indefinite or wasteful length, a long tag, or bytes that are missing.
    """
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a value without a length")
        tag, size, start = data[at], data[at + 1], at + 2
        if tag & _LONG_TAG == _LONG_TAG:
            raise ValueError("a tag of more than one byte")
        if size >= 0x80:
            count = size & 0x7F
            digits = data[start : start + count]
            if not 1 <= count <= 4 or len(digits) != count or digits[0] == 0:
                raise ValueError("a length that DER does not know")
            size, start = int.from_bytes(digits, "big"), start + count
            if size < 0x80:
                raise ValueError("a length that DER does not know")
        stop = start + size
        if stop > len(data):
            raise ValueError("a value longer than what holds it")
        yield Value(tag, data[at:stop], data[start:stop])
        at = stop


def value(data: bytes, tag: int = SEQUENCE) -> Value:
    """The one value that `data` is.

    Raises:
        ValueError: it is none, more than one, or has another tag.
    """
    found = tuple(values(data))
    if len(found) != 1:
        raise ValueError(f"{len(found)} values where one was expected")
    return found[0].expect(tag)


def encode(tag: int, *parts: bytes) -> bytes:
    """A value of the joined parts."""
    content = b"".join(parts)
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    digits = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + content


def encode_integer(number: int) -> bytes:
    """A non-negative integer."""
    return encode(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def encode_oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = b""
    for arc in (40 * first + second, *rest):
        digits = [arc & 0x7F]
        while arc := arc >> 7:
            digits.append(arc & 0x7F | 0x80)
        content += bytes(reversed(digits))
    return encode(OID, content)
