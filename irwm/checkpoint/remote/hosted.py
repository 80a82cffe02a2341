"""The models that servers list: those of an organisation, of a search on the hub, or below a folder of a bucket."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from irwm.checkpoint.files import listed
from irwm.checkpoint.remote.address import HUB, STORES, WEB, is_address, parse
from irwm.checkpoint.remote.listing import COMMIT, RemoteFile, files_below, listing_of
from irwm.errors import ParameterError, RemoteError, printable

# The fields of a search on the hub.
_ASKED = ("author", "search", "filter")
FORMS = "hf://ORGANISATION, hf://?search=WORDS, hf://?filter=base_model:ORGANISATION/NAME, or the address of a model"
_NAME = re.compile(r"\w[\w.-]{0,95}", re.ASCII)
_PAGE = 1000
# Objects of a bucket that are listed.
MOST_OBJECTS = 1_000_000
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_OF_A_FOLDER = ("config.json", "adapter_config.json")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A model that a server lists.

    Attributes:
        name: as the server names it.
        address: of this version of it, if the server keeps versions.
        version: the commit, or a digest of what the server states about its files; "" if it states nothing.
    """

    name: str
    address: str
    version: str


def is_listing(source: str) -> bool:
    """Whether a source is an organisation of the hub, or a search there, and not one model."""
    scheme, _, rest = source.strip().partition("://")
    return scheme.lower() == HUB and bool(rest.strip("/")) and (rest.startswith("?") or "/" not in rest.strip("/"))


def check_source(source: str) -> None:
    """Rejects an address that is not one of a source.

    Raises:
        ParameterError
    """
    if is_listing(source):
        _query(source)
        return
    address = parse(source)
    if "?" in address.path and address.scheme in WEB:
        raise ParameterError(
            "A signed address ends after a time, and it is a secret, so it is not a source of models",
            found=address.text,
            advice="Enter it on the page Investigate",
        )


def hosted(source: str) -> Iterator[Hosted]:
    """The models of a source, on the hub the latest first.

    Args:
        source: `hf://ORGANISATION`, `hf://?` with the fields author, search and filter, or the address of a model or of
            a folder of a bucket.

    Raises:
        ParameterError: the source is none of these.
        RemoteError: the server cannot be reached, refuses, may not be asked, or lists something that is no model;
            after all others were listed.
    """
    check_source(source)
    if is_listing(source):
        yield from _of_hub(source.strip())
        return
    address = parse(source)
    if address.scheme in STORES:
        yield from _of_store(source.strip(), files_below(address, MOST_OBJECTS))
        return
    listing = listing_of(address)
    text = address.text
    if address.scheme == HUB:
        inside = f"/{address.inside}" if address.inside else ""
        text = f"{HUB}://{address.path}@{listing.commit}{inside}"
    yield Hosted(address.text, text, listing.commit or _digest(listing.files))


def _of_hub(source: str) -> Iterator[Hosted]:
    from irwm.checkpoint.remote.web import hub_api, json_pages

    asked = _query(source)
    fixed = [("sort", "lastModified"), ("direction", "-1"), ("limit", str(_PAGE)), ("expand[]", "sha")]
    url = f"{hub_api('models')}?{urlencode([*asked, *fixed])}"
    unknown: list[str] = []
    for page in json_pages(url, source):
        for each in page if isinstance(page, list) else [None]:
            name, commit = (each.get("id"), each.get("sha")) if isinstance(each, dict) else (None, None)
            address = f"{HUB}://{name}@{commit}"
            if isinstance(name, str) and isinstance(commit, str) and COMMIT.fullmatch(commit) and _is_model(address):
                yield Hosted(name, address, commit)
            else:
                unknown.append(printable(str(each), 80))
    if unknown:
        raise RemoteError("The hub lists something that is not a model", file=source, found=listed(unknown))


def _query(source: str) -> list[tuple[str, str]]:
    """The fields of a search, of which an organisation's name is one.

    Raises:
        ParameterError: it has other fields, or none.
    """
    rest = source.partition("://")[2].strip("/")
    asked = parse_qsl(rest[1:]) if rest.startswith("?") else [("author", rest)]
    plain = all(name in _ASKED and value.isprintable() for name, value in asked)
    if not asked or not plain or not all(_NAME.fullmatch(value) for name, value in asked if name == "author"):
        raise ParameterError("This is not a source of models", expected=FORMS, found=printable(source, 200))
    return asked


def _is_model(address: str) -> bool:
    try:
        return is_address(address) and not is_listing(address) and bool(parse(address).revision)
    except ParameterError:
        return False


def _of_store(source: str, files: Iterable[RemoteFile]) -> Iterator[Hosted]:
    """Each folder with a config, and each weight file elsewhere."""
    folders: dict[str, list[RemoteFile]] = {}
    for file in files:
        folders.setdefault(posixpath.dirname(file.name), []).append(file)
    for folder, inside in sorted(folders.items()):
        weights = [file for file in inside if file.name.lower().endswith(_WEIGHTS)]
        if not weights:
            continue
        if any(posixpath.basename(file.name) in _OF_A_FOLDER for file in inside):
            yield Hosted(folder or ".", _below(source, folder), _digest(inside))
            continue
        for file in weights:
            yield Hosted(file.name, _below(source, file.name), _digest([file]))


def _below(source: str, name: str) -> str:
    return f"{source.rstrip('/')}/{quote(name)}" if name else source


def _digest(files: Iterable[RemoteFile]) -> str:
    stated: list[tuple[Any, ...]] = sorted((file.name, file.size, file.etag) for file in files)
    return hashlib.sha256(repr(stated).encode()).hexdigest()[:40] if all(etag for *_, etag in stated) else ""
