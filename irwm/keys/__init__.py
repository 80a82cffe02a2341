"""Keys, and the checks that a key belongs to its original.

`irwm.scheme.derivation` says how each choice follows from a key's secret.

    key              a `Key`, how it is made, and its bytes
    digests          the digests of what a key is bound to: the rows that it reads, and layer 0
    asked            the tokens that a served model is asked for
    check_original   is this the original that the key was made for, and was the key derived from it?
"""
