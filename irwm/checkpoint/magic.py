"""Recognises the format of a misnamed file by its first bytes, and gives advice on how to use it."""

from __future__ import annotations

from dataclasses import dataclass

SAVE_ADVICE = (
    "If you trust the file's source, convert the file on a separate machine: load the model with transformers and call "
    "save_pretrained(folder, safe_serialization=True)"
)
DOWNLOAD_AGAIN = "Download or copy the file again, and compare its SHA-256 with that of the source"
# Weights of other tools. For a folder with only these, the error explains how to convert them. A release omits them,
# since they would contain the unmarked weights.
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
OTHER_WEIGHTS = frozenset(
    {
        *(".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"),  # PyTorch
        *(".gguf", ".ggml", ".llamafile"),
        *(".onnx", ".onnx_data", ".tflite"),
        *(".h5", ".keras", ".msgpack", ".npz", ".npy", ".ot"),  # Keras, Flax, NumPy, rust-bert
        *(".pb", ".pdparams", ".pte"),  # TensorFlow, Paddle, ExecuTorch
        # NeMo, torch.distributed, Tensorizer, diffusers, Core ML
        *(".nemo", ".distcp", ".tensors", ".dduf", ".mlmodel"),
        *_ARCHIVES,
    }
)
# Files that are pieces of a checkpoint, even if their first bytes match a supported format.
PIECES = frozenset({".distcp"})
# How many leading bytes `recognise_magic` needs.
MAGIC_BYTES = 512


@dataclass(frozen=True, slots=True)
class Foreign:
    """A recognised format: its name for a message, the advice, and whether it contains a model."""

    name: str
    advice: str
    is_model: bool
    is_archive: bool = False


def _archive(name: str) -> Foreign:
    return Foreign(name, "Unpack the archive and choose the folder that contains the .safetensors files", False, True)


# Longer prefixes first where one begins another.
_PREFIXES: tuple[tuple[bytes | tuple[bytes, ...], Foreign], ...] = (
    (
        b"version https://git-lfs",
        Foreign(
            "a Git LFS pointer instead of the weights",
            "Download the weights with git lfs pull, or download the file again",
            False,
        ),
    ),
    (b"GGUF", Foreign("a GGUF file", "Rename the file so that its name ends in .gguf", True)),
    (
        (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"),
        Foreign(
            "a ZIP archive, like PyTorch .bin and .pt files",
            "The archive was not unpacked. If it is a PyTorch file, rename it so that its name ends in .bin. "
            "Otherwise, unpack it and choose the folder with the model's files",
            True,
        ),
    ),
    (
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        Foreign(
            "a Python pickle, which can run code when it is loaded; PyTorch versions before 1.6 wrote .bin and .pt "
            "files in this format",
            "The file was not loaded. " + SAVE_ADVICE,
            True,
        ),
    ),
    (b"7z\xbc\xaf\x27\x1c", _archive("a 7z archive")),
    (b"Rar!\x1a\x07", _archive("a RAR archive")),
    (b"\x1f\x8b", _archive("a gzip archive")),
    (b"\xfd7zXZ\x00", _archive("an xz archive")),
    (b"\x28\xb5\x2f\xfd", _archive("a Zstandard archive")),
    (b"BZh", _archive("a bzip2 archive")),
    (b"\x89HDF\r\n\x1a\n", Foreign("an HDF5 file, a format used by Keras", SAVE_ADVICE, True)),
    (b"%PDF-", Foreign("a PDF document", "Choose a model's folder or its .safetensors file", False)),
)
_PAGE = Foreign(
    "a web page",
    "A login or error page was downloaded instead of the file. Download the file again, with an access token if the "
    "model is gated",
    False,
)
_ADVICE = {
    ".distcp": "Gather the weights first: "
    "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER model.pt",
    ".nemo": "Unpack the file with tar and choose the folder that contains the weight files",
}


def advice_for(name: str) -> str:
    """What to do with a weight file of an unsupported format, by its name."""
    ending = name[name.rfind(".") :].lower()
    if ending in _ARCHIVES:
        return "Unpack the file and choose the folder with the model's files"
    return _ADVICE.get(ending, SAVE_ADVICE)


def own_format(start: bytes, size: int) -> str | None:
    """The supported format that matches a file's first bytes; None for any other.

    Args:
        start: up to MAGIC_BYTES.
        size: of the whole file, in bytes.
    """
    if start.startswith(b"GGUF"):
        return "GGUF"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8:
        return "safetensors"
    # torch.save begins with the pickle that locates each tensor.
    return "PyTorch" if start.startswith(b"PK\x03\x04") and b"/data.pkl" in start else None


def recognise_magic(start: bytes) -> Foreign | None:
    """The format that matches a file's first bytes (up to MAGIC_BYTES); None if unknown."""
    for prefix, foreign in _PREFIXES:
        if start.startswith(prefix):
            return foreign
    if start[257:262] == b"ustar":
        return _archive("a tar archive")
    words = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if words.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return _PAGE
    if words[:1] in (b"{", b"["):
        return Foreign("JSON text", "Choose the file that contains the weights", False)
    # Printable ASCII with the usual white space counts as text.
    if start and all(byte in b"\t\n\r\f" or 32 <= byte < 127 for byte in start):
        return Foreign("a text file", "Choose a model's folder or its .safetensors file", False)
    return None
