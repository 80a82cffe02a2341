"""Random choices that can be repeated: HKDF-SHA256 and a ChaCha20 keystream, from a secret or from a public seed.

A key that could be chosen freely could be searched position by position until an unmarked row "passes"; a derived
one can only be searched as a whole. ChaCha20 (RFC 8439) and HKDF (RFC 5869) are fixed standards, so a key made today
will give the same choices bit for bit in ten years; a library's random generator does not guarantee this.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

# A ChaCha20 block has 64 bytes; the first bytes of what the library calls the nonce are the block's number.
_WORDS_IN_BLOCK = 16


def derive(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """32 bytes of HKDF-SHA256 (RFC 5869) over `secret`."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=info).derive(secret)


def public_key(seed: int, info: str) -> bytes:
    """The key of a stream that anyone can draw again: 32 bytes of HKDF over a public seed of up to 127 bits."""
    return derive(seed.to_bytes(16, "little", signed=True), b"irwm", info.encode("ascii"))


def words(stream_key: bytes, count: int, first: int = 0) -> NDArray[np.uint64]:
    """`count` little-endian uint64 words of the ChaCha20 keystream under `stream_key`, from word `first` on.

    The nonce is zero: every purpose has its own key, so no key is used with two nonces.
    """
    return words32(stream_key, 2 * first, 2 * count).view("<u8")


def words32(stream_key: bytes, first: int, count: int) -> NDArray[np.uint32]:
    """`count` little-endian uint32 words of the same keystream from word `first` on; earlier ones are not computed."""
    block, skipped = divmod(first, _WORDS_IN_BLOCK)
    encryptor = Cipher(algorithms.ChaCha20(stream_key, block.to_bytes(16, "little")), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(4 * (skipped + count))), dtype="<u4")[skipped:]
