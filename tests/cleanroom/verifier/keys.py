"""The key: its canonical bytes, its commitment, and everything that follows from its secret (docs/key-format.md)."""

from __future__ import annotations

import hashlib
import json
import struct
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def canonical(value: Any) -> bytes:
    """The only spelling of a JSON value that the pages allow."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def strict_json(data: bytes) -> Any:
    """JSON without repeated names."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in items]
        if len(set(names)) != len(names):
            raise ValueError("a JSON object names something twice")
        return dict(items)

    return json.loads(data.decode(), object_pairs_hook=pairs)


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA256, 32 bytes."""
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(secret)


def stream(key: bytes, start: int, stop: int, bits: int) -> np.ndarray:
    """Words start to stop - 1 of the ChaCha20 keystream under a key, counter and nonce zero."""
    size = bits // 8
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    data = cipher.update(bytes(stop * size))
    return np.frombuffer(data, dtype=f"<u{size}")[start:]


def orders(key: bytes, count: int, n: int) -> np.ndarray:
    """`count` orders of n, shape (count, n)."""
    words = stream(key, 0, count * n, 64).reshape(count, n)
    return np.argsort(words, axis=1, kind="stable")


def draw(n: int, wanted: int, secret: bytes = bytes(32)) -> np.ndarray:
    """maps.md: all of n, or `wanted` of them, ascending."""
    if n <= wanted:
        return np.arange(n)
    return np.sort(orders(hkdf(secret, b"irwm", b"irwm/v1/alignment-sample"), 1, n)[0][:wanted])


def public_orders(seed: int, permutations: int, positions: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """The shared orders and one order for each position, behind every rank."""
    number = int(seed).to_bytes(16, "little", signed=True)
    shared = orders(hkdf(number, b"irwm", b"irwm/v3/null-shared"), permutations, d)
    return shared, orders(hkdf(number, b"irwm", b"irwm/v3/null-positions"), positions, d)


def cosine_transform(d: int) -> np.ndarray:
    """The orthonormal DCT-II as a matrix C, applied as y C."""
    j, k = np.arange(d)[:, None], np.arange(d)[None, :]
    matrix = np.sqrt(2 / d) * np.cos(np.pi * ((2 * j + 1) * k % (4 * d)) / (2 * d))
    matrix[:, 0] = np.sqrt(1 / d)
    return matrix


class Key:
    """A key as read from its bytes."""

    def __init__(self, data: bytes) -> None:
        self.fields: dict[str, Any] = strict_json(data)
        if canonical(self.fields) != data:
            raise ValueError("the key is not in canonical form")
        if self.fields["format"] != "irwm-key" or self.fields["version"] != 3:
            raise ValueError("not a key of version 3")
        self.commitment = hashlib.sha256(b"irwm/v3/commitment\0" + data).hexdigest()

    def place(self, place: str) -> PlaceKey:
        """The key of one place, the embedding or the head."""
        return PlaceKey(self.fields, place)

    def decoy(self, number: int) -> Key:
        """A key that was never inserted (docs/verifying.md); its attempt, scale and digest are still this key's."""
        seed = hkdf(bytes.fromhex(self.fields["secret"]), b"irwm", b"irwm/v3/controls")[:15] + b"\0"
        secret = hkdf(seed, b"irwm", f"irwm/v3/decoy/{number}".encode()).hex()
        return Key(canonical(self.fields | {"secret": secret, "recipient": f"decoy {number}"}))

    @property
    def places(self) -> list[str]:
        """The places that carry a mark by this key."""
        return ["embedding"] + (["head"] if "head" in self.fields else [])

    @property
    def all_places(self) -> int:
        """The number of places with a mark or a fingerprint by this key."""
        return len(self.places) + ("neurons" in self.fields)

    def out_of_range(self) -> list[str]:
        """Settings that a reader must refuse."""
        p, wrong = self.fields["parameters"], []
        ranges = {
            "positions": (1, 10_000),
            "constraints": (2, min(64, self.fields["hidden_size"] - 1)),
            "condition_limit": (1, 10_000),
            "rank_threshold": (0.001, 0.5),
            "permutations": (0, 1_000_000),
            "required_positions": (1, p["positions"]),
            "noise_coordinates": (0, 4096),
            "spread": (0, 1),
        }
        if p["scale"] != "auto":
            ranges["scale"] = (1, 10_000)
        for name, (low, high) in ranges.items():
            if name in p and not low <= p[name] <= high:
                wrong.append(name)
        if p["noise_coordinates"] and not p["hidden"]:
            wrong.append("noise without hidden")
        if p.get("noise_level") == "global" and p.get("spread", 0) > 0:
            wrong.append("global noise level with a spread")
        over_numbers = bool(p["noise_coordinates"]) and p.get("spread") == 0.0
        if over_numbers != ("noise_level" in p):
            wrong.append("noise_level")
        for name in ("head", "neurons"):
            if name in self.fields and name not in p["places"]:
                wrong.append(name)
        allowed = [["embedding"], ["embedding", "head"], ["embedding", "head", "neurons"]]
        if (
            p["places"] not in allowed
            or (p["places"] != ["embedding"] and (not p["hidden"] or over_numbers))
            or ("neurons" in p["places"] and not p["noise_coordinates"])
        ):
            wrong.append("places")
        return wrong


class PlaceKey:
    """The values that a key derives for one place."""

    def __init__(self, fields: dict[str, Any], place: str) -> None:
        if place == "neurons":
            self._init_neurons(fields)
            return
        head = place == "head"
        own: dict[str, Any] = fields["head"] if head else fields
        self.name = place
        self.parameters: dict[str, Any] = dict(fields["parameters"])
        if head and "spread" in self.parameters:
            self.parameters["spread"] = self.parameters["spread"] / 2
        self.s, self.d = int(fields["vocab_size"]), int(fields["hidden_size"])
        self.t, self.l = int(self.parameters["constraints"]), int(self.parameters["positions"])
        self.m, self.spread = int(self.parameters["noise_coordinates"]), float(self.parameters.get("spread", 0.0))
        self.fingerprint, self.rows_digest = str(own["model_fingerprint"]), str(own["rows_digest"])
        self.excluded, self.attempt, self.scale = own["excluded_rows"], int(own["attempt"]), float(own["scale"])
        self.layer0_digest, self.owner, self.recipient = fields["layer0_digest"], fields["owner"], fields["recipient"]
        self.secret = bytes.fromhex(fields["secret"])
        bound = {
            "excluded_rows": self.excluded,
            "hidden_size": self.d,
            "layer0_digest": self.layer0_digest,
            "parameters": self.parameters,
            "vocab_size": self.s,
        }
        if head:
            bound["head_beside_embedding"] = fields["model_fingerprint"]
        self.binding = hashlib.sha256(b"irwm/v3/binding\0" + canonical(bound)).digest()

    def _init_neurons(self, fields: dict[str, Any]) -> None:
        """The values for the neurons, which have no mark. `s`, the number of neurons, is set from the original."""
        own: dict[str, Any] = fields["neurons"]
        self.name, self.parameters = "neurons", dict(fields["parameters"])
        self.mlps, self.s, self.d = list(own["mlps"]), 0, int(own["width"])
        self.m, self.spread = int(self.parameters["noise_coordinates"]), float(self.parameters["spread"])
        self.fingerprint, self.owner, self.recipient = own["fingerprint"], fields["owner"], fields["recipient"]
        self.secret = bytes.fromhex(fields["secret"])
        bound = {name: fields[name] for name in ("excluded_rows", "layer0_digest", "parameters", "vocab_size")}
        bound |= {"hidden_size": self.d, "mlps": self.mlps, "neurons_beside_embedding": fields["model_fingerprint"]}
        self.binding = hashlib.sha256(b"irwm/v3/binding\0" + canonical(bound)).digest()

    def purpose(self, purpose: str, recipient: bool) -> bytes:
        """The purpose key, with the key's recipient or with an empty one."""
        info = b"irwm/v3" + self.binding
        for text in (self.owner, self.recipient if recipient else "", purpose):
            info += struct.pack("<I", len(text.encode())) + text.encode()
        return hkdf(self.secret, bytes.fromhex(self.fingerprint), info)

    @property
    def sample_key(self) -> bytes:
        """The seed of the samples of a least-squares map."""
        return hkdf(self.secret, b"irwm", b"irwm/v3/samples")

    @cached_property
    def tokens(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Query tokens, reference tokens, marked rows."""
        usable = np.ones(self.s, bool)
        for start, stop in self.excluded:
            usable[start:stop] = False
        rows = np.flatnonzero(usable)
        u = len(rows)
        frequent = rows[: max(4 * (self.t + self.d), u // 4)]
        order = orders(self.purpose("tokens", False), 1, len(frequent))[0]
        reference, query = frequent[order[: self.d]], frequent[order[self.d : self.d + self.t]]
        markable = np.setdiff1d(rows[u // 8 :], np.concatenate([reference, query]))
        order = orders(self.purpose("marked-rows", True), 1, len(markable))[0]
        return query, reference, markable[order[: self.l]]

    @cached_property
    def row_permutations(self) -> np.ndarray:
        """The l orders of a marked row's numbers."""
        return orders(self.purpose("row-permutations", True), self.l, self.d)

    def constraint_permutations(self, attempt: int) -> np.ndarray:
        """The t orders of A's rows for one attempt."""
        return orders(self.purpose(f"constraint-permutations/{attempt}", True), self.t, self.d)

    @cached_property
    def _basis(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cosine transform, P, and the words of the diagonals, (s, 2w)."""
        key = self.purpose("basis", False)
        w = -(-self.d // 32)
        words = stream(hkdf(key, b"irwm", b"irwm/v3/row-signs"), 0, 2 * w * self.s, 32).reshape(self.s, 2 * w)
        return cosine_transform(self.d), orders(key, 1, self.d)[0], words

    def _signs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words = self._basis[2][rows]
        bits = (words[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1
        signs = 1.0 - 2.0 * bits.reshape(len(rows), 2, -1)[:, :, : self.d]
        return signs[:, 0], signs[:, 1]

    def into_basis(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """y B_i for each row i."""
        if not self.parameters["hidden"]:
            return y.copy()
        c, p, _ = self._basis
        first, second = self._signs(rows)
        return (((y * first) @ c)[:, p] * second) @ c

    def out_of_basis(self, z: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """z B_i transposed for each row i."""
        if not self.parameters["hidden"]:
            return z.copy()
        c, p, _ = self._basis
        first, second = self._signs(rows)
        return (((z @ c.T) * second)[:, np.argsort(p)] @ c.T) * first

    def noise(self, purpose: str = "noise") -> tuple[np.ndarray, np.ndarray]:
        """Places and signs of every row's noise, (s, m) each; a purpose selects a decoy's."""
        m, d = self.m, self.d
        words = stream(self.purpose(purpose, purpose == "noise"), 0, self.s * (m + 1), 32).reshape(self.s, m + 1)
        words = words.astype(np.int64)
        edges = np.array([j * d // m for j in range(m + 1)])
        start = (words[:, :1] // 2) * d >> 31
        inside = (words[:, 1:] // 2) * np.diff(edges)[None] >> 31
        places = (start + edges[None, :-1] + inside) % d
        parity = words[:, 1:] if self.spread > 0 else words[:, :1] + np.arange(m)[None]
        return places, 1.0 - 2.0 * (parity % 2)

    def noise_sizes(self) -> np.ndarray:
        """Factors of noise written over numbers, where each row has its own level."""
        words = stream(hkdf(self.purpose("noise", True), b"irwm", b"irwm/v3/noise-size"), 0, self.s, 32)
        return np.sqrt(-np.log((words.astype(np.float64) + 1) / 2.0**32))

    @cached_property
    def run_words(self) -> np.ndarray:
        """The eight words that place the runs of a first pass."""
        return stream(hkdf(self.purpose("basis", False), b"irwm", b"irwm/v3/first-pass"), 0, 8, 64)
