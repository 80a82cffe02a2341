"""What the product costs, one module per claim; `python -m benchmarks.speed` measures them and writes docs/speed.

Every measured step is a process of its own (`task`), so that its peak memory and the bytes it reads are its own, and
what imports cost is told apart. What is compared alternates within one run, so that a slow moment of the machine meets
both sides.
"""
