"""Model families as data.

`recognise` turns a config and the tensors' shapes into a `Layout`: which tensors make the layer-0 attention score and
by which conventions. `family` reads the JSON files in `data/`, one per family; `schema` is what the rest of the
package sees.
"""

from irwm.families.recognition import recognise
from irwm.families.schema import Layout, Norm, TensorRef

__all__ = ["Layout", "Norm", "TensorRef", "recognise"]
