"""What a suspect shows: whether it carries the mark, whether it descends from the original, and how sure that is.

    examination        one suspect against one original: what is read and aligned, once for all that is asked
    detection          ranks at the key among random permutations (Algorithm 3)
    finding            what a detection found, as plain results
    verdict            from a reading to found, not found or inconclusive
    lineage            whether the suspect descends from the original, mark or no mark
    attention          how far the layer 0 of two models attends alike, which lineage rests on
    likelihood_ratio   the weight of the ranks as evidence, and the words for it
    decoys             error rates measured on the suspect itself, with wrong keys
    neutral            a model of the original's size without anything of the original
    devices            on the processor where a GPU's memory is not enough
    parallel           many keys side by side, on all cores

No model is run here, and no release is written.
"""
