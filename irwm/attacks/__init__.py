"""Attacks on a release: each takes a model folder and writes a model folder, the same for tests, lab and benchmarks.

`prune`, `prune_neurons`, `quantize`, `add_noise`, `finetune` and `drop_layers` change the model a little. `collude`
combines several copies into one, and `merge` several fine-tuned models. `mark_again` adds a rival's mark to a release.
`equivalence` holds the lossless transforms, `adaptive` the attacks by someone who has read the manual. `to_gguf`,
`to_bitsandbytes` and `autoround` quantise with real tools; `dequantised` writes the numbers of a quantised copy as a
folder that can be run.
"""

from irwm.attacks import adaptive, catalogue, equivalence
from irwm.attacks.collusion import collude
from irwm.attacks.finetuning import finetune
from irwm.attacks.layers import drop_layers
from irwm.attacks.marking import mark_again
from irwm.attacks.merging import merge
from irwm.attacks.noise import add_noise
from irwm.attacks.pruning import prune, prune_neurons
from irwm.attacks.quantisers import autoround, dequantised, to_bitsandbytes, to_gguf
from irwm.attacks.round_to_nearest import quantize

__all__ = [
    "adaptive",
    "add_noise",
    "autoround",
    "catalogue",
    "collude",
    "dequantised",
    "drop_layers",
    "equivalence",
    "finetune",
    "mark_again",
    "merge",
    "prune",
    "prune_neurons",
    "quantize",
    "to_bitsandbytes",
    "to_gguf",
]
