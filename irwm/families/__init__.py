"""Model families as data.

`recognise` turns a config and the tensors' shapes into a `Layout`: which tensors make the layer-0 attention score and
by which conventions. Files may hold several models: `prefixes` finds each, `candidates` whatever else bears the
embedding's name. `unnamed` finds at least the embedding where the names are nobody's. `family` reads the JSON files in
`data/`, one per family; `schema` is what the rest of the package sees.
"""

from irwm.families.recognition import recognise
from irwm.families.schema import Layout, Norm, TensorRef
from irwm.families.unnamed import unnamed

__all__ = ["Layout", "Norm", "TensorRef", "recognise", "unnamed"]
