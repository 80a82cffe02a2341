"""Speed and memory of the product, one module per claim; `python -m benchmarks.speed` measures and writes docs/speed.

Every measured step runs in a separate process (`task`), so its peak memory and the bytes it reads belong to it alone,
and import time is counted separately. Compared steps alternate within one run, so a slow moment of the machine affects
both sides.
"""
