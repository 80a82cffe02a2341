from __future__ import annotations

import copy

import pytest

from irwm.report import recognition_words
from irwm.report.numbers import sure
from tests.report.test_html import HOSTILE


def said(facts) -> dict[str, str]:
    return {str(label): str(text).replace("\u00a0", " ") for label, text in facts}


def changed(examined, part: str, **changes) -> dict:
    document = copy.deepcopy(examined.document)
    document[part] |= changes
    return document


@pytest.mark.parametrize(
    ("steps", "how"),
    [
        ([], "recognised by its shape or name"),
        ([{"name": "embedding", "said": "x", "confidence": 1.0, "measure": "y"}], "recognised by its content"),
    ],
)
def test_unknown_names_are_reported_with_how_the_embedding_was_found(found, steps, how):
    document = changed(found, "alignment", steps=steps)
    document["items"]["suspect"] |= {"family": "unknown", "heads": 0, "kv_heads": 0, "head_dim": 0}
    model = said(recognition_words.recognised(document))["Model"]
    assert model.startswith("unknown tensor names")
    assert how in model


def test_steps_come_in_order_with_confidence_and_measure(disguised):
    steps, undone = disguised.document["alignment"]["steps"], recognition_words.undone(disguised.document)
    assert recognition_words.unaligned(disguised.document) == []
    assert [step["confidence"] for step in steps] == [each.exact for each in undone]
    assert "600 of 600 token IDs were changed" in undone[0].said
    assert [each.confidence for each in undone] == [sure(step["confidence"]) for step in steps]
    assert [each.measure for each in undone] == [step["measure"].replace("'", "’") for step in steps]


def test_lineage_shows_its_numbers(found, disguised, inconclusive):
    answer, facts = recognition_words.descent(disguised.document)
    lineage = disguised.document["lineage"]
    assert answer == "The suspect and the original have a common origin, whether or not the suspect carries a mark."
    assert said(facts) == {
        "Matched rows": f"{lineage['similarity']:.3f}, in minor components",
        "Required for alignment": "0.25",
        "Non-matching rows": f"{lineage['decoy_similarity']:.3f}".replace("-", "−"),
        "Attention": f"{lineage['attention']:.3f} in layer 0",
        "Non-matching tokens": f"at most {lineage['attention_decoy']:.3f}",
        "Unrelated models": f"{recognition_words.chance(lineage)}.",
    }
    assert said(recognition_words.descent(found.document)[1])["Required for alignment"] == "0.3"
    unread = changed(found, "lineage", attention=None, attention_decoy=None)
    assert said(recognition_words.descent(unread)[1])["Attention"] == "could not be compared in this suspect"
    assert "minor" not in str(recognition_words.descent(unread))


def test_lineage_without_numbers_keeps_its_whole_reason(inconclusive):
    answer, facts = recognition_words.descent(inconclusive.document)
    assert answer == "Cannot be aligned: the suspect’s rows have 32 coordinates, but the original’s have 64."
    among = inconclusive.document["lineage"]["among"]
    assert said(facts) == {
        "Attention": "not compared, because tokens could not be matched",
        "MLP neurons": "no pairs were found",
        "Unrelated models": f"All {among['unrelated']} independently trained models agree at least as closely (p = 1).",
    }


def test_every_text_is_escaped(found):
    document = changed(found, "alignment", embedding_tensor=HOSTILE, reason=HOSTILE, aligned=False)
    document["alignment"]["steps"] = [{"name": "x", "said": HOSTILE, "confidence": 1.0, "measure": HOSTILE}]
    document["items"]["suspect"] |= {"family": HOSTILE, "dtype": HOSTILE}
    undone = recognition_words.undone(document)[0]
    texts = [text for _, text in recognition_words.recognised(document)] + recognition_words.unaligned(document)
    for text in (*texts, undone.said, undone.measure):
        assert "<script" not in text
        assert "<img" not in text
        assert "\u202e" not in text


def test_the_chance_is_shown_with_the_origin(disguised, inconclusive):
    lineage = copy.deepcopy(disguised.document["lineage"])
    among = lineage["among"] = lineage["among"] | {"unrelated": 123, "as_alike": 0, "p": 1 / 124}
    assert recognition_words.chance(lineage).endswith("(p ≤ 0.0081)")
    lineage["status"] = "cannot tell"
    among |= {"as_alike": 1, "p": 2 / 124}
    assert recognition_words.chance(lineage).endswith("(p = 0.016)")
    lineage["status"] = "not derived"
    among |= {"as_alike": 61, "p": 0.5, "descendants": 80, "as_unlike": 2}
    said = recognition_words.chance(lineage)
    assert said.startswith("61 of the 123")
    assert "2 of the 80" in said
    assert recognition_words.chance(lineage | {"circuits": 0.9}).startswith("Based on the rows alone, 61 of the 123")
    assert recognition_words.chance(inconclusive.document["lineage"] | {"among": None}) == ""
