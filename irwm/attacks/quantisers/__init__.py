"""Quantised copies as thieves publish them, written by the tools that they use or in the same way.

converter      which tensor goes where in a GGUF file, and how it is arranged there
mixture        which number format each gets, and the rounding
vocabulary     the tokenizer, as settings of the file
gguf_file      all of it: `to_gguf`
bitsandbytes   by transformers: `to_bitsandbytes`
autoround      GPTQ's and AWQ's layouts, by AutoRound in a process of its own (`autoround_process`)
dequantised    the numbers of any such copy as a plain folder, which can be run and measured
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
