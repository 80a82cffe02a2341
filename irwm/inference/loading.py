"""Opening a model folder with transformers: to run it, to train it, or to save it in another number format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError

from irwm.checkpoint import open_checkpoint
from irwm.errors import (
    CorruptCheckpointError,
    InsufficientMemoryError,
    IrwmError,
    UnsupportedCheckpointError,
    lacks_memory,
)
from irwm.families.family import anatomy_of
from irwm.inference.layer_by_layer import placement, recompute

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.txt", "vocab.json")
# No downloads, and code in a model's folder is never run; by default transformers asks on standard input.
_LARGER = "Use a folder of safetensors files, or a computer with more memory"
_TOO_LARGE = "there is too little memory for the whole model, and its layers cannot be read one at a time"
OURS: dict[str, bool] = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that can be run on token ids.

    Attributes:
        model: float32, in evaluation mode; masked or causal.
        masked: whether it predicts masked tokens (BERT) instead of the next one.
        dtype: the dtype of the stored weights.
        headless: no output head is stored (an encoder for embeddings, "BertModel"): the model's head is new and random,
            for training, and its predictions have no meaning.
    """

    model: PreTrainedModel
    masked: bool
    dtype: torch.dtype
    headless: bool


@dataclass(frozen=True, slots=True)
class Opened(Weights):
    """A model that can be run, with the tokenizer in its folder."""

    tokenizer: PreTrainedTokenizerBase


def open_model(folder: str | Path, device: str = "cpu") -> Opened:
    """Open a local folder of weights, config and tokenizer, without downloads and without running code in it.

    The arithmetic is float32 on the weights as stored: bfloat16 sums would differ between machines.

    Args:
        folder: a model folder, or a .gguf file, whose weights transformers dequantises.

    Raises:
        UnsupportedCheckpointError: transformers cannot open the model or its tokenizer, or finds only some of the
            weights under the names that it knows.
    """
    weights = open_weights(folder, device)
    return Opened(weights.model, weights.masked, weights.dtype, weights.headless, open_tokenizer(folder))


def open_weights(folder: str | Path, device: str = "cpu", *, layer_by_layer: bool = False) -> Weights:
    """The model alone; arguments and errors as `open_model`.

    Args:
        layer_by_layer: keeps only the embedding, the output head and one layer in memory, on the processor
            (`irwm.inference.layer_by_layer`). The files must be safetensors, with each tensor as transformers uses it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    place, named = _place(folder)
    with typed(Path(folder), "transformers cannot run this model"), quiet():
        config = AutoConfig.from_pretrained(place, **OURS, **named)
        anatomy = anatomy_of(config.model_type)
        masked = any(name.endswith("ForMaskedLM") for name in config.architectures or ())
        masked = masked or (anatomy is not None and anatomy.encoder)
        kind: Any = AutoModelForMaskedLM if masked else AutoModelForCausalLM
        options: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True, **OURS, **named}
        if layer_by_layer:
            if named:
                raise UnsupportedCheckpointError(
                    _TOO_LARGE,
                    file=folder,
                    expected="safetensors files",
                    found="a GGUF file",
                    advice=_LARGER,
                )
            with torch.device("meta"):
                options["device_map"] = placement(kind.from_config(config))
        # A new head is drawn at random. transformers reads single layers only from tensors that are stored as it uses
        # them, so neither from PyTorch files nor from a mixture of experts.
        with torch.random.fork_rng(), typed(Path(folder), _TOO_LARGE, _LARGER) if layer_by_layer else nullcontext():
            torch.manual_seed(0)
            model, loaded = kind.from_pretrained(place, **options)
    missing = sorted(loaded["missing_keys"])
    body = [name for name in missing if name.startswith(f"{model.base_model_prefix}.")]
    if body or (missing and not masked):
        raise UnsupportedCheckpointError(
            "transformers cannot find all of this model's weights under the expected names",
            file=folder,
            tensor=(body or missing)[0],
            found=f"missing tensors: {len(missing)}",
            advice="Restore the original tensor names; a model with renamed tensors cannot be run",
        )
    model.eval()
    if layer_by_layer:
        recompute(model)
    else:
        model.to(device)
    return Weights(model, masked, _stored(Path(folder), config, bool(named)), bool(missing))


def embedding_rows(model: PreTrainedModel) -> int:
    """The rows of a model's embedding, one for each token."""
    return cast(torch.nn.Embedding, model.get_input_embeddings()).num_embeddings


def has_tokenizer(folder: str | Path) -> bool:
    """Whether there is a tokenizer file next to the weights; a GGUF file has its own tokenizer."""
    place, named = _place(folder)
    return bool(named) or any((place / name).is_file() for name in _TOKENIZER_FILES)


def open_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer next to the weights, or in the GGUF file.

    Raises:
        UnsupportedCheckpointError: it is missing, or transformers cannot open it.
    """
    from transformers import AutoTokenizer

    if not has_tokenizer(folder):
        raise UnsupportedCheckpointError(
            "there is no tokenizer next to the weights",
            file=folder,
            expected="a tokenizer.json or a similar file",
            advice="Copy the original's tokenizer files into the folder",
        )
    place, named = _place(folder)
    with typed(Path(folder), "transformers cannot open this model's tokenizer"), quiet():
        return AutoTokenizer.from_pretrained(place, **OURS, **named)


def save_quantised(
    model_dir: str | Path, out_dir: str | Path, settings: Mapping[str, object], device: str = "cpu"
) -> None:
    """Load a local model with a `quantization_config` and save it: weights and config, no tokenizer.

    Args:
        settings: transformers' own, with "quant_method".

    Raises:
        UnsupportedCheckpointError: transformers cannot open, quantise or save the model.
        CorruptCheckpointError: its files are broken.
    """
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = Path(model_dir)
    with typed(folder, "transformers cannot quantise this model"), quiet():
        config = AutoConfig.from_pretrained(folder, **OURS)
        # The class that the model was saved as: a bare encoder does not get a new head.
        kind = getattr(transformers, (config.architectures or [""])[0], AutoModelForCausalLM)
        model = kind.from_pretrained(folder, **OURS, quantization_config=dict(settings), device_map={"": device})
        model.save_pretrained(out_dir)


def _place(folder: str | Path) -> tuple[Path, dict[str, str]]:
    """The folder to pass to transformers, and the name of the GGUF file in it."""
    path = Path(folder)
    if path.suffix == ".gguf":
        return path.parent, {"gguf_file": path.name}
    if path.is_file() and path.name in ("model.safetensors", "pytorch_model.bin"):
        return path.parent, {}
    files = [] if (path / "config.json").exists() else sorted(path.glob("*.gguf"))
    return path, {"gguf_file": files[0].name} if len(files) == 1 else {}


def _stored(path: Path, config: Any, gguf: bool) -> torch.dtype:
    """The dtype in the config. For a GGUF file: the embedding's dtype, or float16, the dtype of scales, for blocks."""
    if gguf:
        kept = getattr(torch, open_checkpoint(path).dtype, None)
        return kept if isinstance(kept, torch.dtype) else torch.float16
    return config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32


@contextmanager
def typed(file: Path, problem: str, advice: str | None = None) -> Iterator[None]:
    """Converts a library's error about a file to a typed one.

    Args:
        advice: the next step for a model that the library does not support.

    Raises:
        InsufficientMemoryError, torch.OutOfMemoryError: there is too little memory, so the error says nothing about the
            file.
    """
    try:
        yield
    except (json.JSONDecodeError, SafetensorError) as error:
        raise CorruptCheckpointError(problem, file=file, found=str(error)[:300]) from error
    except (IrwmError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # tokenizers raises bare Exceptions, and hostile configs can cause any type
        if lacks_memory(error):
            raise InsufficientMemoryError(
                "there is too little memory to run this model",
                file=file,
                found=str(error)[:300],
                advice="Close other programs, or use a computer with more memory",
            ) from error
        raise UnsupportedCheckpointError(problem, file=file, found=str(error)[:300], advice=advice) from error


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and load reports on the terminal; errors name missing tensors."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    accelerate = logging.get_logger("accelerate")  # it warns of each model that is run layer by layer
    own = accelerate.level
    accelerate.setLevel(logging.log_levels["error"])
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        accelerate.setLevel(own)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
