"""Running models: the cost of an attack, or of a mark, for the model.

Only this package opens models with transformers; a verdict never runs a suspect.

    loading     a model folder opened with transformers, and its tokenizer
    layer_by_layer  a model that is larger than the memory
    text        how a text is split into inputs of a model
    reference   a model run once over a text, with its outputs
    model_pair  another model run on the same text, also with other token ids
    measure     another model compared with the reference: perplexity, divergence, agreement
    same_function  whether two models compute the same function
    likelihood  how likely a model finds given tokens, gradients of that, and their Fisher information
    continuations  tokens sampled from a model after prompts
    certificate the cost of a mark, for the release receipt
    harness     lm-evaluation-harness on a model folder, if it is installed
"""

from irwm.inference.certificate import Certificate, certify
from irwm.inference.loading import Opened, open_model
from irwm.inference.measure import Utility, compare
from irwm.inference.reference import Reference, reference
from irwm.inference.same_function import SameFunction, same_function
from irwm.inference.text import default_text

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
