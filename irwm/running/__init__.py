"""Models that are run: what an attack, or a mark, costs the model.

This package alone opens models with transformers; a verdict never runs one.

    opened      a model folder opened with transformers, and its tokenizer
    text        how a text is given to a model
    reference   a model run once over a text, with its outputs
    pair        another model shown the same text, also under other token ids
    measure     another model against the reference: perplexity, divergence, agreement
    function    whether two models compute the same function
    certificate what a mark cost, for the release receipt
    harness     lm-evaluation-harness on a model folder, where it is installed
"""

from irwm.running.certificate import Certificate, certify
from irwm.running.function import SameFunction, same_function
from irwm.running.measure import Utility, compare
from irwm.running.opened import Opened, open_model
from irwm.running.reference import Reference, reference
from irwm.running.text import default_text

__all__ = [
    "Certificate",
    "Opened",
    "Reference",
    "SameFunction",
    "Utility",
    "certify",
    "compare",
    "default_text",
    "open_model",
    "reference",
    "same_function",
]
