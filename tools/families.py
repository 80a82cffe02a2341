"""Print docs/families.md from the families' data files.

python -m tools.families > docs/families.md
"""

from __future__ import annotations

from irwm.families.family import families

HEAD = """# Model families

For users who want to know whether a model type is supported, and how it is read.

Printed by `python -m tools.families` from `irwm/families/data`. `tests/families` compares each family with the running
model of transformers: the layer-0 scores computed from the files equal the model's scores to five digits, and differ if
any part is left out. `tests/test_every_family.py` protects one tiny model of each family, and investigates its release
in every container and quantisation that supports the family.

"Embedding only": the family has no layer-0 query and key of this form. The invariant is then computed from the cosines
between token embeddings, and the page and the report state this. Models whose `model_type` is not in this table are
protected in the same way if exactly one tensor has an embedding's name and the sizes of the config.

| family | models | model types | how it differs |
|---|---|---|---|"""


def main() -> None:
    print(HEAD)
    for family in families():
        note = family.about + (" **Embedding only.**" if family.embedding_only else "")
        types = ", ".join((*family.model_types, *family.wrappers))
        print(f"| {family.name} | {family.title} | {types} | {note} |")


if __name__ == "__main__":
    main()
