"""Run in a child process: reads the descriptions of a PyTorch file's tensors, but not their numbers.

Since 1.6 torch.save writes a ZIP archive of stored entries: a pickle, `data.pkl`, and one entry `data/KEY` for each
storage, a run of numbers that one or more tensors share. The pickle is a program that builds tensors. torch's own
restricted unpickler, which allows only the few calls for that, runs it on the device "meta", where tensors have no
data.

Torch never sees the archive itself. It gets one that is made here from the same pickle and empty storages, so that
every storage's position comes from the archive's own list. The checks below reject a ZIP file that two readers could
read as two different archives. Only `torch.load` and the offset that it sets on each storage are used.

Why not only `torch.load(path, map_location="meta", mmap=True)`, which takes two thirds of the time (1.4 s and not 2.2
for 20 000 tensors): if the archive has a `.format_version`, torch 2.13 computes the positions from the pickle, which
gives wrong ones for a repacked archive; it reads compressed weights as if they were plain; and mapping a file needs as
much address space as the file is long, so this process could not be limited to 2 GB.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import IO, Any

import torch

from irwm.checkpoint.dtypes import TORCH
from irwm.checkpoint.magic import DOWNLOAD_AGAIN, SAVE_ADVICE
from irwm.errors import CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError, printable

# As many tensors as the safetensors reader takes, each with a separate storage, and the few other entries.
MAX_ENTRIES = 200_000 + 100
# 200 000 tensors take some 30 MB.
_MAX_PICKLE_BYTES = 64 * 1024 * 1024
# Keys under which training programs store the weights when they save other data as well.
_UNDER = ("state_dict", "model", "module")
# The ZIP format: the header before an entry's name, and the records at an archive's end.
_LOCAL_HEADER_BYTES = 30
_UTF8 = 0x800
_END_BYTES, _LOCATOR_BYTES, _LARGE_END_BYTES = 22, 20, 56
_ARCHIVE = "archive"
# The end of a GLOBAL opcode, the only opcode from which torch's unpickler takes names.
_BUFFER = b"\nbytearray\n"
_NAMES = {dtype: name for name, dtype in TORCH.items()} | {
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.complex64: "C64",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
}


@dataclass(frozen=True, slots=True)
class Archive:
    """The needed parts of the archive: the pickle, and each storage's byte range in the file by its key."""

    pickle: bytes
    storages: Mapping[str, tuple[int, int]]


def parse(path: str) -> dict[str, object]:
    """The file's tensors.

    Returns:
        "tensors": a list of [name, number format, shape, strides, first element, storage's first byte and end], the
        strides and the first element counted in elements from the storage's beginning; "under": the name that the
        tensors were found under, or None; "ignored": the number of other objects.

    Raises:
        NotACheckpointError: an archive that PyTorch did not write.
        UnsupportedCheckpointError: TorchScript, compressed, big-endian, or objects other than tensors.
        CorruptCheckpointError: it breaks the format's rules.
    """
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            content = read_archive(archive, file)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise CorruptCheckpointError(
            "The PyTorch file's ZIP archive cannot be read; usually this means that the file is truncated",
            found=str(error),
            advice=DOWNLOAD_AGAIN,
        ) from error
    loaded, keys = unpickled(content)
    tensors, under, ignored = named_tensors(loaded)
    described = [described_tensor(name, tensor, keys, content.storages) for name, tensor in tensors.items()]
    return {"tensors": described, "under": under, "ignored": ignored}


def read_archive(archive: zipfile.ZipFile, file: IO[bytes]) -> Archive:
    """The archive's pickle and its storages' positions, after all checks of its structure."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise CorruptCheckpointError(
            "The archive lists more entries than any real model has",
            expected=f"at most {MAX_ENTRIES}",
            found=str(len(entries)),
        )
    # A second archive may be hidden there for readers that look for the beginning elsewhere.
    if archive.comment or min((entry.header_offset for entry in entries), default=-1) != 0 or leads_astray(file):
        raise CorruptCheckpointError(
            "The file contains other data before or after the archive", expected="only a PyTorch file"
        )
    inside = named_entries(entries)
    require_pytorch(inside)
    for name, entry in inside.items():
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise UnsupportedCheckpointError(
                "The archive's entries are compressed or encrypted, but torch.save writes neither",
                expected="uncompressed, unencrypted entries",
                found=f"{printable(name, 80)}, {entry.file_size} bytes compressed to {entry.compress_size}",
                advice="If you trust the source of the file, load it with torch and save it again with torch.save",
            )
        if entry.compress_size != entry.file_size:
            raise CorruptCheckpointError(f"The archive's entry {printable(name, 80)} has two different sizes")
    if inside["data.pkl"].file_size > _MAX_PICKLE_BYTES:
        raise CorruptCheckpointError(
            "The pickle in the archive is implausibly large",
            expected=f"at most {_MAX_PICKLE_BYTES} bytes",
            found=f"{inside['data.pkl'].file_size} bytes",
        )
    require_little_endian(archive, inside)
    storages = {
        name.removeprefix("data/"): place_of(entry, file, archive.start_dir)
        for name, entry in inside.items()
        if name.startswith("data/")
    }
    return Archive(archive.read(inside["data.pkl"]), storages)


def leads_astray(file: IO[bytes]) -> bool:
    """Whether the archive does not end with the file, or a large one's second end record is not right before its
    locator, where zipfile reads it."""
    size = file.seek(0, io.SEEK_END)
    where = file.seek(size - _END_BYTES - _LOCATOR_BYTES)
    locator, end = file.read(_LOCATOR_BYTES), file.read(_END_BYTES)
    large = locator.startswith(b"PK\x06\x07")
    return not end.startswith(b"PK\x05\x06") or (
        large and int.from_bytes(locator[8:16], "little") != where - _LARGE_END_BYTES
    )


def named_entries(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The entries by their names within their common folder."""
    inside: dict[str, zipfile.ZipInfo] = {}
    folded: set[str] = set()  # torch ignores case in names
    top = entries[0].filename.split("/")[0] if entries else ""
    for entry in entries:
        name = entry.filename
        pieces = name.split("/")
        if entry.orig_filename != name or "\\" in name or not name.isprintable() or {"", ".", ".."} & set(pieces):
            raise CorruptCheckpointError(
                "The archive contains an entry whose name is invalid or points outside the archive",
                found=entry.orig_filename,
                advice="Do not unpack this file: it was made to overwrite other files",
            )
        if pieces[0] != top or len(pieces) == 1:
            raise NotACheckpointError(
                "The file is a ZIP archive that was not written by PyTorch",
                expected="one folder with data.pkl and the weights",
                found=name,
                advice="Unpack the archive, and choose the folder with the model's files",
            )
        if name.lower() in folded:
            raise CorruptCheckpointError(
                "The archive contains a duplicate name", found=name, expected="each name only once"
            )
        folded.add(name.lower())
        inside["/".join(pieces[1:])] = entry
    return inside


def require_pytorch(inside: Mapping[str, zipfile.ZipInfo]) -> None:
    if "constants.pkl" in inside or any(name.startswith("code/") for name in inside):
        raise UnsupportedCheckpointError(
            "The file is a TorchScript program, which contains code",
            expected="weights saved with torch.save",
            found="constants.pkl or code/",
            advice="The file was not loaded. If you trust its source, run "
            "torch.save(torch.jit.load(file).state_dict(), new)",
        )
    if "data.pkl" not in inside:
        raise NotACheckpointError(
            "The file is a ZIP archive that was not written by PyTorch",
            expected="an entry named data.pkl",
            found=", ".join(printable(name, 40) for name in list(inside)[:8]) or "an empty archive",
            advice="Unpack the archive, and choose the folder with the model's files",
        )


def require_little_endian(archive: zipfile.ZipFile, inside: Mapping[str, zipfile.ZipInfo]) -> None:
    """Files from before 2023 do not state their byte order; like torch, this assumes little-endian."""
    entry = inside.get("byteorder")
    order = b"little" if entry is None else archive.read(entry) if entry.file_size <= 16 else b"?"
    if order == b"big":
        raise UnsupportedCheckpointError(
            "The file was written on a big-endian machine",
            expected="little-endian numbers",
            found="big-endian numbers",
            advice="Load the file with torch on a little-endian machine, and save it again with torch.save",
        )
    if order != b"little":
        raise CorruptCheckpointError(
            "The file states an unknown byte order", expected="little or big", found=order.decode("ascii", "replace")
        )


def place_of(entry: zipfile.ZipInfo, file: IO[bytes], data_stop: int) -> tuple[int, int]:
    """The half-open byte range of a stored entry's content, which must end before the archive's list."""
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    name = entry.filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")
    name_length = int.from_bytes(header[26:28], "little")
    start = entry.header_offset + _LOCAL_HEADER_BYTES + name_length + int.from_bytes(header[28:30], "little")
    stop = start + entry.file_size
    if not header.startswith(b"PK\x03\x04") or file.read(name_length) != name or stop > data_stop:
        raise CorruptCheckpointError(
            "The archive's list of entries does not match its contents",
            expected=f"{printable(entry.filename, 80)} at byte {entry.header_offset}, {entry.file_size} bytes long",
            found="something else at this position" if stop <= data_stop else f"only {data_stop} bytes of content",
            advice=DOWNLOAD_AGAIN,
        )
    return start, stop


def unpickled(content: Archive) -> tuple[Any, dict[int, str]]:
    """The result of the pickle, and the storages' keys by the offsets that torch.load sets on them."""
    # Of the few calls that torch allows in a pickle, this one allocates memory of a stated size; weights need none.
    if _BUFFER in content.pickle:
        raise UnsupportedCheckpointError(
            "The file contains objects other than tensors",
            expected="a mapping from names to tensors, as torch.save(model.state_dict(), file) writes it",
            found="bytearray",
            advice="The file was not loaded. " + SAVE_ADVICE,
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as stand_in:
        stand_in.writestr(f"{_ARCHIVE}/data.pkl", content.pickle)
        stand_in.writestr(f"{_ARCHIVE}/version", b"3")
        keys = {}
        for key in content.storages:
            name = f"{_ARCHIVE}/data/{key}"
            keys[buffer.tell() + _LOCAL_HEADER_BYTES + len(name.encode())] = key
            stand_in.writestr(name, b"")
    buffer.seek(0)
    try:
        return torch.load(buffer, map_location="meta", weights_only=True), keys
    except UnpicklingError as error:
        text = str(error)
        foreign = re.search(r"GLOBAL (\S+) w", text)  # "was not an allowed global", "whose module is blocked"
        raise UnsupportedCheckpointError(
            "The file contains objects other than tensors, and loading them can run code",
            expected="a mapping from names to tensors, as torch.save(model.state_dict(), file) writes it",
            found=foreign[1] if foreign is not None else printable(text.split("\n\n")[-1].strip()),
            advice="The file was not loaded. " + SAVE_ADVICE,
        ) from error
    except NotImplementedError as error:  # from the device "meta", for torch's quantised tensors
        raise UnsupportedCheckpointError(
            "The file contains tensors of an unsupported type",
            expected="plain numbers",
            found=printable(str(error), 120),
            advice="Dequantise the model and save it as float32, float16 or bfloat16",
        ) from error


def named_tensors(loaded: Any) -> tuple[dict[str, torch.Tensor], str | None, int]:
    """The tensors by name, the key that they were found under, and the number of other objects."""
    if not isinstance(loaded, Mapping):
        raise UnsupportedCheckpointError(
            "The file does not contain named tensors",
            expected="a mapping from names to tensors",
            found=type(loaded).__name__,
            advice="Save the model's weights with torch.save(model.state_dict(), file)",
        )
    places = [(None, loaded)] + [(name, loaded[name]) for name in _UNDER if isinstance(loaded.get(name), Mapping)]
    for under, place in places:
        tensors = {
            name: value for name, value in place.items() if isinstance(name, str) and isinstance(value, torch.Tensor)
        }
        if tensors:
            others = len(place) - len(tensors) + (0 if under is None else len(loaded) - 1)
            return tensors, under, others
    raise UnsupportedCheckpointError(
        "The file contains no tensors where a model's weights are expected",
        expected="named tensors at the top level, or one level down under one of " + ", ".join(_UNDER),
        found=", ".join(printable(str(name), 40) for name in list(loaded)[:8]) or "an empty mapping",
        advice="If the file contains a trainer's state, choose the file with the model's weights, "
        "or save them with torch.save",
    )


def described_tensor(
    name: str, tensor: torch.Tensor, keys: Mapping[int, str], storages: Mapping[str, tuple[int, int]]
) -> list[Any]:
    """[name, number format, shape, strides, first element, storage's first byte and end] of one tensor."""
    tensor = torch.detach(tensor)  # removes attributes that the pickle may have added
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_conj() and not tensor.is_neg()
    storage = tensor.untyped_storage() if plain and tensor.device.type == "meta" else None
    offset = getattr(storage, "_checkpoint_offset", None)
    if storage is None or offset is None or offset not in keys or tensor.dtype not in _NAMES:
        raise UnsupportedCheckpointError(
            "A tensor has an unsupported type",
            tensor=name,
            expected="plain, dense numbers",
            found=f"{tensor.layout}, {tensor.dtype}",
            advice="Save the model as float32, float16 or bfloat16",
        )
    start, stop = storages[keys[offset]]
    if storage.nbytes() != stop - start:
        raise CorruptCheckpointError(
            "The size of a tensor's storage differs between the archive and the pickle",
            tensor=name,
            expected=f"{storage.nbytes()} bytes",
            found=f"{stop - start} bytes",
        )
    first = tensor.storage_offset()
    return [name, _NAMES[tensor.dtype], list(tensor.shape), list(tensor.stride()), first, start, stop]
