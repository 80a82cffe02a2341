"""Evidence in a suspect: whether it carries the mark, whether it descends from the original, and with what certainty.

    examination        one suspect against one original: read and aligned once for all questions
    detection          ranks at the key among random permutations (Algorithm 3); many users' keys (Algorithm 6)
    fingerprint        the noise of one key in all rows, a separate form of evidence
    differences        how the suspect differs from the original, in the bases of a release
    sign_sums          the sums of keys' signs over the differences
    finding            the results of a detection
    verdict            from a reading to found, not found or inconclusive
    originals          which of several originals a suspect descends from
    lineage            whether the suspect descends from the original, with or without a mark
    unrelated          its p-value: how many unrelated models agree as closely
    attention          the similarity of the layer-0 attention of two models, used by lineage
    circuits           the similarity of their attention layers, used by lineage
    neurons            the similarity of their MLP neurons, used by lineage
    neuron_reading     the same neurons as rows that a fingerprint is read from
    likelihood_ratio   the weight of the ranks as evidence, and the words for it
    decoys             error rates measured on the suspect itself, with wrong keys
    neutral_model      a model of the original's size that shares no structure with the original
    devices            falling back to the processor if a GPU has too little memory
    parallel           many keys at the same time, on all cores

No model is run here, and no release is written.
"""
