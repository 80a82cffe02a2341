"""Attacks on a release: each takes a model folder and writes a model folder, the same for tests, lab and benchmarks.

`prune`, `prune_neurons`, `quantize`, `add_noise` and `finetune` change the model a little, `drop_layers`,
`stack_layers` and `cut_width` its size. `factor_queries_and_keys` changes its attention, and `exchange_tokenizer` its
vocabulary. `collude` combines several copies into one, and `merge` several fine-tuned
models. `mark_again` adds a rival's mark to a release, and `subtract_mark` subtracts one. `equivalence` holds the
lossless transforms, `adaptive` the attacks by someone who has read the manual, as do `push_away` and `learn_again`,
which train. `to_gguf`, `to_bitsandbytes` and `autoround` quantise with real tools; `dequantised` writes the numbers of
a quantised copy as a folder that can be run.
"""

from irwm.attacks import adaptive, catalogue, equivalence
from irwm.attacks.collusion import collude
from irwm.attacks.distillation import learn_again, push_away
from irwm.attacks.finetuning import finetune
from irwm.attacks.layers import drop_layers, stack_layers
from irwm.attacks.low_rank import factor_queries_and_keys
from irwm.attacks.marking import mark_again, subtract_mark
from irwm.attacks.merging import merge
from irwm.attacks.noise import add_noise
from irwm.attacks.pruning import prune, prune_neurons
from irwm.attacks.quantisers import autoround, dequantised, to_bitsandbytes, to_gguf
from irwm.attacks.round_to_nearest import quantize
from irwm.attacks.training import Schedule
from irwm.attacks.transplant import exchange_tokenizer
from irwm.attacks.width import cut_width

__all__ = [
    "Schedule",
    "adaptive",
    "add_noise",
    "autoround",
    "catalogue",
    "collude",
    "cut_width",
    "dequantised",
    "drop_layers",
    "equivalence",
    "exchange_tokenizer",
    "factor_queries_and_keys",
    "finetune",
    "learn_again",
    "mark_again",
    "merge",
    "prune",
    "prune_neurons",
    "push_away",
    "quantize",
    "stack_layers",
    "subtract_mark",
    "to_bitsandbytes",
    "to_gguf",
]
