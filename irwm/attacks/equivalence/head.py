"""The output head: whether it is the embedding, and how to make it a separate tensor."""

from __future__ import annotations

import torch

from irwm.attacks.equivalence.draft import Draft
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.structure import structure_of
from irwm.families.family import anatomy_of


def settle_head(state: State) -> State:
    """The state as transformers would load it if the config ties the head although the files hold one.

    A copy that equals the embedding is dropped. One that differs stays, and the config is set to untied, since
    transformers does not change two different tensors.

    Raises:
        CheckpointError, NotApplicableError: as `structure_of`, for the model types known here.
    """
    if anatomy_of(state.config.get("model_type")) is None:
        return state
    structure = structure_of(state)
    if structure.head is None or not structure.config_ties:
        return state
    draft = Draft(state)
    if torch.equal(draft.tensors[structure.head], draft.tensors[structure.embedding]):
        del draft.tensors[structure.head], draft.dtypes[structure.head]
    else:
        draft.config["tie_word_embeddings"] = False
    return draft.done()


def untied(state: State) -> State:
    """The state with a separate output head; unchanged where the model has one already, or no head at all."""
    structure = structure_of(state)
    if not structure.tied:
        return state
    draft = Draft(state)
    draft.add(structure.head_name, draft.tensors[structure.embedding].clone(), like=structure.embedding)
    bias = f"{structure.head_name.removesuffix('.weight')}.bias"
    if structure.head_biases and bias not in draft.tensors:
        # BERT's head has a bias tied to one outside it; untied, transformers looks for it here.
        draft.add(bias, draft.tensors[structure.head_biases[0]].clone(), like=structure.head_biases[0])
    draft.config["tie_word_embeddings"] = False
    return draft.done()


def free_tables(state: State) -> State:
    """The state with tables whose coordinates may be changed without changing the head. BERT's head does not read the
    stream but the output of further layers, so a change of the tables must not reach it through a tie."""
    return untied(state) if structure_of(state).post_norm_stream else state
