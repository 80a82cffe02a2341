"""Quantised copies as attackers publish them, written with the usual tools or in the same way.

converter      the name and arrangement of each tensor in a GGUF file
mixture        the number format of each tensor, and the rounding
vocabulary     the tokenizer, as settings of the file
gguf_file      the whole file: `to_gguf`
bitsandbytes   by transformers: `to_bitsandbytes`
autoround      GPTQ's and AWQ's layouts, by AutoRound in a separate process (`autoround_process`)
dequantised    the numbers of any quantised copy as a plain folder, which can be run and measured
"""

from irwm.attacks.quantisers.autoround import autoround, autoround_obstacle
from irwm.attacks.quantisers.bitsandbytes import bitsandbytes_obstacle, to_bitsandbytes
from irwm.attacks.quantisers.dequantised import dequantised
from irwm.attacks.quantisers.gguf_file import gguf_obstacle, to_gguf

__all__ = [
    "autoround",
    "autoround_obstacle",
    "bitsandbytes_obstacle",
    "dequantised",
    "gguf_obstacle",
    "to_bitsandbytes",
    "to_gguf",
]
