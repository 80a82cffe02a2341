"""A model quantised by transformers while it is loaded, and saved so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from irwm.running.opened import OURS, quiet, typed


def save_quantised(
    model_dir: str | Path, out_dir: str | Path, settings: Mapping[str, Any], device: str = "cpu"
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
        # The class that the model was saved as: a bare encoder gets no fresh head.
        kind = getattr(transformers, (config.architectures or [""])[0], AutoModelForCausalLM)
        model = kind.from_pretrained(folder, **OURS, quantization_config=dict(settings), device_map={"": device})
        model.save_pretrained(out_dir)
