"""Our scheme compared with published weight fingerprints and watermarks, on the same models under the same disguises.

    python -m benchmarks.peers [--write]

One module per peer: `huref`, `awm`, `csu`, `match`, `mdir`, `ghostspec`, `self_`, `reef`, `seedprints`, `emmark`,
`fernandez`, `cisco`. All but the last are our own implementations from the papers' equations, checked against the
authors' code if that runs. `cisco` runs the vendor's program in a
separate environment. If a paper leaves a choice, we use the one that favours the peer; its module documents this.
"""
