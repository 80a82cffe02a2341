"""The files at an address: names, sizes, digests as the server states them, and the commit that fixes them."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from irwm.checkpoint.remote.address import HUB, WEB, Address
from irwm.checkpoint.remote.servers import require_allowed
from irwm.errors import RemoteError, printable

MOST_FILES = 10_000
# Sizes are signed 64-bit numbers on every system.
MOST_BYTES = 2**63 - 1
_INDEX = ".index.json"
COMMIT = re.compile(r"[0-9a-f]{40,64}")
MOST_INDEX_BYTES, MOST_SHARDS = 32 << 20, 2_000
# Distinguishes the mirrors of two processes where a server states no versions, so that bytes of two are never mixed.
_PROCESS = os.urandom(8).hex()


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file on a server.

    Attributes:
        name: relative to the checkpoint's folder, with "/" between its parts.
        size: in bytes.
        url: where its bytes are; for an object store, the bucket and the key.
        etag: the server's mark of this version; "" if it states none.
        sha256: of the whole file, hex, as the server states it; "" if it states none.
    """

    name: str
    size: int
    url: str
    etag: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files at an address, at one moment.

    Attributes:
        address: the address that was given.
        scheme: how their bytes are read: "hf", "https", "http", "s3" or "gs".
        server: the host, or the bucket, that listed them.
        commit: of a repository, 40 hex digits; "" elsewhere.
        name: the name of the folder or file to open.
        opens: the file to open; "" for the folder.
        files: all files, sorted by name.
        process: a mark of this process if the server states no version of a file; "" otherwise.
    """

    address: str
    scheme: str
    server: str
    commit: str
    name: str
    opens: str
    files: tuple[RemoteFile, ...]
    process: str = ""

    @property
    def versioned(self) -> bool:
        """Whether the server states the version of every file, so that a change is noticed."""
        return not self.process

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def of_json(cls, text: str) -> Listing:
        value = json.loads(text)
        return cls(**value | {"files": tuple(RemoteFile(**each) for each in value["files"])})


def listing_of(address: Address) -> Listing:
    """Lists the files at an address, which takes one to three requests.

    Raises:
        RemoteError: the server cannot be reached, refuses, or lists nothing that can be a checkpoint.
    """
    lists = _of_hub if address.scheme == HUB else _of_web if address.scheme in WEB else _of_store
    listed = lists(address)
    if not all(file.etag for file in listed.files):
        listed = replace(listed, process=_PROCESS)
    names = [file.name for file in listed.files]
    if not names or (listed.opens and listed.opens not in names):
        raise RemoteError(
            "There is no such file or folder on the server", file=address.text, advice="Check the address"
        )
    if len(names) > MOST_FILES:
        raise too_many(address.text)
    for file in listed.files:
        _require_plain(address, file)
    if len({name.casefold() for name in names}) < len(names):
        raise RemoteError("Two files on the server have the same name", file=address.text)
    return listed


def too_many(address: str, most: int = MOST_FILES) -> RemoteError:
    return RemoteError(
        "There are too many files on the server",
        file=address,
        expected=f"at most {most}",
        advice="Use the address of a folder in it, or of a single weight file",
    )


def _require_plain(address: Address, file: RemoteFile) -> None:
    """Rejects a name that would lead out of the mirror's folder, or an impossible size."""
    parts = file.name.split("/")
    plain = file.name.isprintable() and "\\" not in file.name and ":" not in file.name and len(file.name) < 1024
    if not plain or {"", ".", ".."} & set(parts) or max(map(len, parts)) > 200:
        raise RemoteError("A file on the server has an invalid name", file=address.text, found=printable(file.name, 80))
    if not 0 <= file.size <= MOST_BYTES:
        raise RemoteError("A file on the server has an impossible size", file=file.name, found=f"{file.size} bytes")


def _of_hub(address: Address) -> Listing:
    from huggingface_hub import constants, hf_hub_url

    from irwm.checkpoint.remote.web import hub_api, json_pages

    revision = quote(address.revision or "main", safe="")
    about = next(json_pages(hub_api("models", address.path, "revision", revision), address.text))
    commit = about.get("sha") if isinstance(about, dict) else None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise RemoteError("The hub did not report the commit", file=address.text, found=printable(str(commit), 80))
    tree = json_pages(hub_api("models", address.path, "tree", commit) + "?recursive=true", address.text)
    listed = list(islice((each for page in tree for each in _page(address, page)), MOST_FILES + 1))
    if len(listed) > MOST_FILES:  # those that are left out may be weights
        raise too_many(address.text)
    inside = address.inside.strip("/")
    is_file = any(path == inside for path, *_ in listed)
    folder = posixpath.dirname(inside) if is_file else inside
    below = f"{folder}/" if folder else ""
    files = [
        RemoteFile(path.removeprefix(below), size, hf_hub_url(address.path, path, revision=commit), etag, sha256)
        for path, size, etag, sha256 in listed
        if path.startswith(below)
    ]
    name = posixpath.basename(folder) or address.name
    return Listing(
        address=address.text,
        scheme=HUB,
        server=urlsplit(constants.ENDPOINT).netloc,
        commit=commit,
        name=f"{name}@{commit[:12]}",
        opens=posixpath.basename(inside) if is_file else "",
        files=tuple(sorted(files, key=lambda file: file.name)),
    )


def _of_web(address: Address) -> Listing:
    """A weight file, or the index of several, and the files that usually are next to it."""
    from irwm.checkpoint.remote.web import described, whole

    parts = urlsplit(f"{address.scheme}://{address.host}{address.path}")
    folder, name = posixpath.split(parts.path)
    folder = folder.rstrip("/")

    def url_of(other: str) -> str:
        return urlunsplit((parts.scheme, parts.netloc, f"{folder}/{quote(other)}", parts.query, ""))

    opened = described(name, urlunsplit(parts))
    if opened is None:
        raise RemoteError("There is no such file on the server", file=address.text, advice="Check the address")
    files = [opened]
    if name.endswith(_INDEX):
        shards = _of_index(address, whole(opened, MOST_INDEX_BYTES))
        files += [_present(address, shard, described(shard, url_of(shard))) for shard in shards]
    others = (described(other, url_of(other), wanted=False) for other in _next_to_weights())
    files += [file for file in others if file is not None]
    ordered = tuple(sorted({file.name: file for file in files}.values(), key=lambda file: file.name))
    return Listing(address.text, address.scheme, address.host, "", name, name, ordered)


def _next_to_weights() -> tuple[str, ...]:
    """Files that may be next to a weight file, and that an examination reads. A web server cannot list a folder."""
    from irwm.checkpoint.tokens import TOKENIZER_FILES
    from irwm.checkpoint.weight_sets import ADAPTER_CONFIG

    return ("config.json", *TOKENIZER_FILES, ADAPTER_CONFIG)


def _present(address: Address, name: str, file: RemoteFile | None) -> RemoteFile:
    if file is None:
        raise RemoteError("A shard listed in the index is not on the server", file=address.text, found=printable(name))
    return file


def _of_index(address: Address, content: bytes) -> list[str]:
    """The names of the shards in an index; `irwm.checkpoint.weight_sets` checks the rest when the mirror is opened."""
    from irwm.checkpoint.remote.web import parsed

    try:
        names = set(parsed(content, address.text)["weight_map"].values())
    except (TypeError, KeyError, AttributeError) as error:
        raise RemoteError(
            "The index on the server is not a shard index", file=address.text, found=str(error)
        ) from error
    if len(names) > MOST_SHARDS or not all(isinstance(name, str) and "/" not in name for name in names):
        raise RemoteError("The index on the server contains invalid names", file=address.text)
    return sorted(names)


def _of_store(address: Address) -> Listing:
    from irwm.checkpoint.remote.store import store_errors

    system, root = _opened(address)
    with store_errors(address.text):
        single = system.isfile(root)
        folder = posixpath.dirname(root) if single else root
        found = _next_to(system, root, folder) if single else _below(system, root, address)
    name = posixpath.basename(root if single else folder)
    files = _named_below(folder, found)
    return Listing(address.text, address.scheme, address.host, "", name, name if single else "", files)


def files_below(address: Address, most: int = MOST_FILES) -> tuple[RemoteFile, ...]:
    """All files below a folder of a bucket, or the file at an address, with their names below it.

    Raises:
        RemoteError: the bucket cannot be read or may not be asked, or the folder has too many files.
    """
    from irwm.checkpoint.remote.store import store_errors

    system, root = _opened(address)
    with store_errors(address.text):
        if system.isfile(root):
            return _named_below(posixpath.dirname(root), {root: system.info(root)})
        return _named_below(root, _below(system, root, address, most))


def _opened(address: Address) -> tuple[Any, str]:
    """The file system of a bucket, and the key or folder of an address as it spells it."""
    from irwm.checkpoint.remote.store import file_system

    require_allowed(f"{address.scheme}://{address.host}", address.text)
    system = file_system(address.scheme)
    return system, system._strip_protocol(f"{address.host}/{address.path}".rstrip("/"))


def _named_below(folder: str, found: Mapping[str, Mapping[str, Any]]) -> tuple[RemoteFile, ...]:
    files = [
        RemoteFile(key.removeprefix(f"{folder}/"), int(each["size"]), key, mark_of(each)) for key, each in found.items()
    ]
    return tuple(sorted(files, key=lambda file: file.name))


def _below(system: Any, root: str, address: Address, most: int = MOST_FILES) -> dict[str, dict[str, Any]]:
    """Every object below a folder, by its key."""
    found: dict[str, dict[str, Any]] = {}
    for _, _, files in system.walk(root, detail=True):
        found |= {each["name"]: each for each in files.values()}
        if len(found) > most:  # a bucket may have millions
            raise too_many(address.text, most)
    return found


def _next_to(system: Any, key: str, folder: str) -> dict[str, dict[str, Any]]:
    """An object, and the files next to it that an examination reads."""
    found = {key: system.info(key)}
    for name in _next_to_weights():
        other = f"{folder}/{name}"
        if system.isfile(other):
            found[other] = system.info(other)
    return found


def mark_of(info: Mapping[str, Any]) -> str:
    """The mark of an object's version, under the names that stores use."""
    return str(next((info[name] for name in ("ETag", "etag", "version_id", "generation") if info.get(name)), ""))


def _page(address: Address, page: Any) -> Iterator[tuple[str, int, str, str]]:
    """Path, size, version and SHA-256 of each file in one page of a repository's tree."""
    try:
        for each in page:
            if each["type"] == "file":
                large = each.get("lfs") or {}
                sha256 = str(large.get("oid", ""))
                yield str(each["path"]), int(large.get("size", each["size"])), sha256 or str(each["oid"]), sha256
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise RemoteError("The hub's list of files cannot be parsed", file=address.text, found=str(error)) from error
