"""What a setting buys and costs, before anything is written (docs/explore.md).

    planning     which number of positions keeps both promises, by equations 1 to 3
    prediction   ranks under noise, sizes of stored entries and conditions, from a model's own rows
    survival     how much damage a mark survives
    answering    how many answers of a served copy it takes
    capacity     how many colluders tracing withstands

No key is needed here, and no file is written.
"""
