"""The paper's scheme, one module per concept: the definition of a mark, on arrays and on a checkpoint's rows.

This package does not deal with suspects: `irwm.alignment` aligns them and `irwm.evidence` evaluates them.

    parameters           the paper's symbols as one validated object
    invariant            A, from layer 0's attention scores (Algorithm 1)
    condition            constraint permutations with cond(A2) < tau (Algorithm 2)
    constraint_solution  the solved entries of the marked rows (Algorithm 2)
    statistic            the statistics, their permutation null and the ranks (Algorithm 3)
    noise                noise addition (Algorithm 4)
    basis                each row's secret orthogonal basis (Algorithms 4 to 6)
    probabilities        equations 1 to 3, exact tails, combined p-values
    stated_odds          the smallest odds that a person is told
    derivation           from one secret to every choice of a mark (docs/key-format.md)
    permutations         from a stream: the key's secret ones, and the public ones used for every rank
    keystream            the standards that these use: HKDF and ChaCha20
    row_pool             which rows may carry the mark or give the invariant
"""
