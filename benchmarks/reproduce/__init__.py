"""The paper's experiments on model folders of one's own, written as tables and plots beside the paper's numbers.

python -m benchmarks.reproduce [MODEL_DIR ...]        or        make reproduce MODELS="..."

paper       the paper's numbers and settings
models      the folders that are asked for, and the settings of a mark
trials      attacks carried out in parallel by `irwm.attacks.trial`, the Lab's own evaluation
bench       what a run has: models, sizes, releases, results that are kept
page        a page of text, tables and figures;  figures  their one look
attacks, detection, efficiency, pruning, quantisation, finetuning, collusion, fidelity, ownership, survival, adaptive
            one experiment each: `measure` makes plain results, `write` makes its page from them alone
"""
