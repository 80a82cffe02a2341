"""What a suspect shows: whether it carries the mark, whether it descends from the original, and how sure that is.

    examination        one suspect against one original: what is read and aligned, once for every question
    detection          ranks at the key among random permutations (Algorithm 3); many users' keys (Algorithm 6)
    fingerprint        the noise of one key in all rows, a form of evidence of its own
    differences        how the suspect differs from the original, in the bases of a release
    sign_sums          the sums of keys' signs over the differences
    finding            what a detection found, as plain results
    verdict            from a reading to found, not found or inconclusive
    lineage            whether the suspect descends from the original, mark or no mark
    strangers          its p-value: how many models trained apart agree as well
    attention          how similar the layer-0 attention of two models is, which lineage rests on
    likelihood_ratio   the weight of the ranks as evidence, and the words for it
    decoys             error rates measured on the suspect itself, with wrong keys
    neutral            a model of the original's size without anything of the original
    devices            the processor in place of a GPU with too little memory
    parallel           many keys at the same time, on all cores

No model is run here, and no release is written.
"""
