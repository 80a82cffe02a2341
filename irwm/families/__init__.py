"""Model families as data, and their use for reading a checkpoint's config and shapes.

family          the meaning of the JSON files in `data/`, one per family
identification  finds a checkpoint's family; if the tensors' names are unknown, at least its embedding
building        from a family, a config and the shapes to a `Layout`: the tensors that make the layer-0 score
ov_circuits     the tensors of every layer's values and outputs
neurons         the tensors of every MLP
configvalues    reads numbers and switches from an untrusted config.json
schema          `Layout`, which the rest of the package uses
"""

from irwm.families.identification import names_an_embedding, recognise, unnamed
from irwm.families.schema import Layout, Norm, TensorRef

__all__ = ["Layout", "Norm", "TensorRef", "names_an_embedding", "recognise", "unnamed"]
