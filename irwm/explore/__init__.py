"""The benefits and costs of a setting, computed before a file is written (docs/explore.md).

    planning     the number of positions that keeps both promises, by equations 1 to 3
    prediction   ranks under noise, sizes of stored entries and conditions, from a model's own rows
    survival     how much damage a mark survives
    answering    how many answers of a served copy detection needs
    capacity     how many colluders tracing can handle

No key is needed here, and no file is written.
"""
