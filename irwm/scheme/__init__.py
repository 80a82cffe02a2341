"""The scheme itself, one file per idea of the paper: what a mark is, on arrays and on a checkpoint's rows.

Nothing here knows of a suspect: aligning one is `irwm.alignment`, judging one is `irwm.evidence`.

    parameters   the paper's symbols as one validated object
    invariant    A, from layer 0's attention scores (Algorithm 1)
    condition    a draw of constraint permutations that solves stably (Algorithm 2, lines 1 to 12)
    equations    the solved entries of every marked row (Algorithm 2, lines 15 to 24)
    statistic    the statistics and their permutation null (Algorithm 3)
    noise        noise addition (Algorithm 4)
    basis        each row's secret orthogonal basis (Algorithms 4 to 6)
    odds         equations 1 to 3, exact tails, combined p-values
    derivation   from one secret to every choice of a mark (docs/key-format.md)
    keystream    the standards below it: HKDF and ChaCha20
    row_pool     which rows may carry the mark or stand behind the invariant
"""
