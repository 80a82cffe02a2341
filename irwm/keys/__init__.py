"""Keys, and the checks that a key belongs to its original.

`irwm.scheme.derivation` derives each choice from a key's secret.

    key              a `Key`, its creation, and its bytes
    neurons          the part of a key for a fingerprint in neurons
    digests          the digests of a key's inputs in its original: the rows that it reads, and layer 0
    queried_tokens   the tokens that a served model is queried for
    check_original   checks that an original is the key's, and that the key was derived from it
"""
