"""Models that are run and not only read: what an attack, or a mark, costs the model.

This package alone opens models with transformers; a verdict never runs one.

    opened    a model folder opened with transformers, and its tokenizer
"""

from irwm.utility.opened import Opened, open_model

__all__ = ["Opened", "open_model"]
