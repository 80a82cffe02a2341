"""Keys, and the checks that a key belongs to its original.

How each choice follows from a key's secret is written in `irwm.scheme.derivation`.

    key              a `Key`, how it is made, and its bytes
    layer0           the digest of all that the invariant reads, except the embedding
    rows_digest      the digest of the rows that a key reads
    check_original   is this the original that the key was made for, and was the key derived from it?
"""
