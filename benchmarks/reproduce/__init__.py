"""Run the paper's experiments on any model folders and write tables and plots next to the paper's numbers.

python -m benchmarks.reproduce [MODEL_DIR ...]        or        make reproduce MODELS="..."

paper       the paper's numbers and settings
models      the given folders, and the settings of a mark
trials      attacks run in parallel by `irwm.attacks.trial`, as the Lab does
bench       the state of a run: models, sizes, releases, cached results
page        a page of text, tables and figures;  figures  the style of all figures
attacks, detection, efficiency, pruning, quantisation, finetuning, collusion, fidelity, ownership, survival, adaptive
            one experiment each: `measure` returns plain results, `write` makes the page from them
"""
