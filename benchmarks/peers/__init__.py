"""Our scheme beside published weight fingerprints and watermarks, on the same models under the same disguises.

    python -m benchmarks.peers [--write] [--strangers DIR ...]

One module per peer: `huref`, `awm`, `csu`, `match`, `emmark`, `cisco`. Each but the last is our own implementation from
the paper's equations, checked against the authors' code where that can be run; `cisco` runs the vendor's program in an
environment of its own. Wherever a paper leaves a choice, the one that helps the peer was taken, and its module says so.
"""
