"""A second implementation of docs/key-format.md, with only numpy and a library's ChaCha20."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def stream(key: bytes, count: int) -> bytes:
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(count))


def long_words(key: bytes, count: int) -> NDArray[np.uint64]:
    return np.frombuffer(stream(key, 8 * count), dtype="<u8")


def short_words(key: bytes, count: int) -> NDArray[np.uint32]:
    return np.frombuffer(stream(key, 4 * count), dtype="<u4")


def orders(key: bytes, count: int, n: int) -> Ints:
    return np.argsort(long_words(key, count * n).reshape(count, n), axis=1, kind="stable")


def public(seed: int, info: bytes) -> bytes:
    return hkdf(seed.to_bytes(16, "little", signed=True), b"irwm", info)


def canonical(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Part:
    """A key in one place."""

    def __init__(self, key: dict[str, Any], place: str) -> None:
        self.place, fields = place, dict(key)
        facts = {n: key[n] for n in ("parameters", "excluded_rows", "vocab_size", "hidden_size", "layer0_digest")}
        if place == "head":
            fields |= key["head"]
            halved = {n: value / 2 if n == "spread" else value for n, value in key["parameters"].items()}
            facts |= {
                "parameters": halved,
                "excluded_rows": key["head"]["excluded_rows"],
                "head_beside_embedding": key["model_fingerprint"],
            }
        self.fields, self.p = fields, facts["parameters"]
        self.bound = hashlib.sha256(b"irwm/v3/binding\0" + canonical(facts)).digest()
        self.s, self.d, self.t, self.l = (
            key["vocab_size"],
            key["hidden_size"],
            self.p["constraints"],
            self.p["positions"],
        )
        self.scale = fields["scale"]
        usable = np.ones(self.s, dtype=bool)
        for start, stop in fields["excluded_rows"]:
            usable[start:stop] = False
        ids = np.flatnonzero(usable)
        frequent = ids[: max(4 * (self.t + self.d), len(ids) // 4)]
        drawn = frequent[orders(self.purpose("tokens", False), 1, frequent.size)[0]]
        self.reference, self.query = drawn[: self.d], drawn[self.d : self.d + self.t]
        rest = np.setdiff1d(ids[len(ids) // 8 :], drawn[: self.d + self.t])
        self.marked = rest[orders(self.purpose("marked-rows", True), 1, rest.size)[0][: self.l]]
        self.row_orders = orders(self.purpose("row-permutations", True), self.l, self.d)
        self.samples = hkdf(bytes.fromhex(fields["secret"]), b"irwm", b"irwm/v3/samples")

    def purpose(self, name: str, recipient: bool) -> bytes:
        info = b"irwm/v3" + self.bound
        for text in (self.fields["owner"], self.fields["recipient"] if recipient else "", name):
            info += struct.pack("<I", len(text.encode())) + text.encode()
        salt = bytes.fromhex(self.fields["model_fingerprint"])
        return hkdf(bytes.fromhex(self.fields["secret"]), salt, info)

    def constraint_orders(self, attempt: int) -> Ints:
        return orders(self.purpose(f"constraint-permutations/{attempt}", True), self.t, self.d)

    def basis(self, tokens: Ints) -> Basis:
        return Basis(self.purpose("basis", False), self.d, tokens, self.s)

    def places(self, tokens: Ints) -> tuple[Ints, Ints]:
        m, d = self.p["noise_coordinates"], self.d
        words = short_words(self.purpose("noise", True), self.s * (m + 1)).reshape(self.s, m + 1)[tokens]
        half, edges = (words >> 1).astype(np.int64), np.arange(m + 1) * d // m
        at = ((half[:, :1] * d >> 31) + edges[:-1] + (half[:, 1:] * np.diff(edges) >> 31)) % d
        # If the noise is added, each place has its own sign; else they alternate.
        signs = words[:, 1:] if self.p["spread"] else words[:, :1] + np.arange(m, dtype=np.uint32)
        return at, 1 - 2 * (signs & 1).astype(np.int64)

    def sizes(self, tokens: Ints) -> Floats:
        key = hkdf(self.purpose("noise", True), b"irwm", b"irwm/v3/noise-size")
        return np.sqrt(-np.log((short_words(key, self.s)[tokens] + 1.0) / 2**32))

    def derived(self, rows: int) -> dict[str, Ints]:
        """The values of tools/key_vectors.py; bases and noise of the first rows only."""
        found = {
            "query_tokens": self.query,
            "reference_tokens": self.reference,
            "marked_rows": self.marked,
            "row_permutations": self.row_orders,
            "constraint_permutations": self.constraint_orders(self.fields["attempt"]),
        }
        tokens = np.arange(rows)
        if self.p["hidden"]:
            basis = self.basis(tokens)
            signs = np.stack((basis.outer, basis.inner), axis=1).reshape(2 * rows, self.d)
            found |= {"basis_order": basis.order, "basis_signs": signs.astype(np.int64)}
        if self.p["noise_coordinates"]:
            found["noise_places"], found["noise_signs"] = self.places(tokens)
            if not self.p["spread"]:
                # In billionths, because the last digit of a logarithm varies between platforms.
                found["noise_sizes"] = np.rint(1e9 * self.sizes(tokens)).astype(np.int64)
        return found


class Basis:
    """Dense cosine transforms, from the formula."""

    def __init__(self, key: bytes, d: int, tokens: Ints, s: int) -> None:
        j, k = np.arange(d)[:, None], np.arange(d)[None, :]
        self.c = np.sqrt(2 / d) * np.cos(np.pi * (2 * j + 1) * k / (2 * d))
        self.c[:, 0] = np.sqrt(1 / d)
        self.order = orders(key, 1, d)[0]
        w = -(-d // 32)
        words = short_words(hkdf(key, b"irwm", b"irwm/v3/row-signs"), s * 2 * w).reshape(s, 2, w)[tokens]
        bits = (words[..., None] >> np.arange(32, dtype=np.uint32) & 1).reshape(len(tokens), 2, 32 * w)[:, :, :d]
        self.outer, self.inner = (1.0 - 2.0 * bits[:, which] for which in (0, 1))

    def into(self, rows: Floats) -> Floats:
        return (((rows * self.outer) @ self.c)[:, self.order] * self.inner) @ self.c

    def out_of(self, rows: Floats) -> Floats:
        mixed = np.empty_like(rows)
        mixed[:, self.order] = (rows @ self.c.T) * self.inner
        return (mixed @ self.c.T) * self.outer
