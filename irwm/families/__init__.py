"""Model families as data, and how a checkpoint's config and shapes are read with them.

family          what each JSON file in `data/`, one per family, means
identification  which family a checkpoint belongs to; at least its embedding where the tensors' names are unknown
building        from a family, a config and the shapes to a `Layout`: the tensors that make the layer-0 score
configvalues    numbers and switches out of an untrusted config.json
schema          `Layout`, which the rest of the package uses
"""

from irwm.families.identification import names_an_embedding, recognise, unnamed
from irwm.families.schema import Layout, Norm, TensorRef

__all__ = ["Layout", "Norm", "TensorRef", "names_an_embedding", "recognise", "unnamed"]
