"""The smallest odds that a person is told; computed values and JSON documents keep the exact ones."""

from __future__ import annotations

# Far below this, other causes of an error dominate: a bug, a mix-up of files or a dishonest examiner.
LEAST_LOG10 = -30.0
CAPPED = "less than 1 in 10³⁰"
