"""A dispute resolved again from the models and keys that a reader brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import irwm
from irwm import Checkpoint, Key
from irwm.errors import IrwmError, printable
from irwm.ownership.dispute import Claim, resolve
from irwm.report import schema
from irwm.report.checks import CHOICES, CLAIMANTS, EXAMINATION, KEY, MODELS, Check, guarded, listed, of_document, said
from irwm.report.controls import WAY
from irwm.report.reader_inputs import Brought, Model
from irwm.report.reproduction import differences, not_as_recorded
from irwm.report.structure import plain
from irwm.report.verify_examination import not_as_described, wrong_in_item


def resolved_again(document: schema.Dispute, brought: Brought) -> list[Check]:
    """The checks of a dispute that need its models and keys."""
    settled = of_document(CHOICES, lambda: _check_choices(document))
    given = [model for model in (brought.suspect, brought.original, *brought.models) if model is not None]
    opened, unopened = _opened(given)
    models = _matched(document, opened)
    keys = {key.commitment: key for key in brought.keys}
    checks = [settled, *unopened]
    if not brought.examines:
        return [
            settled,
            Check(
                EXAMINATION,
                None,
                "the tests were not run again, because that requires every model in the dispute and both keys",
            ),
        ]
    if given:
        checks.append(guarded(MODELS, partial(_check_models, document, models), asked=True))
    if keys:
        checks.append(guarded(KEY, partial(_check_keys, document, keys), asked=True))
        checks.append(guarded(CLAIMANTS, partial(_check_claimants, document, keys)))
    checks.append(guarded(EXAMINATION, partial(_check_tests, document, models, keys, brought.device), asked=True))
    return checks


def _opened(given: Sequence[Model]) -> tuple[list[Checkpoint], list[Check]]:
    """The models; a folder means every model in it."""
    found: list[Checkpoint] = []
    failed: list[Check] = []
    for model in given:
        try:
            if isinstance(model, Checkpoint):
                found.append(model)
                continue
            path = Path(model)
            places = irwm.find_checkpoints(path).paths if path.is_dir() else (path,)
            found += [irwm.open_checkpoint(place) for place in places]
        except IrwmError as error:
            failed.append(Check(MODELS, None, f"a model could not be opened: {said(error)}", asked=True))
    return found, failed


def _check_choices(document: schema.Dispute) -> Check:
    """Whether the seed is the one that the method fixes."""
    if document["seed"] != WAY["seed"]:
        seed = printable(str(document["seed"]), 40)
        return Check(
            CHOICES,
            None,
            f"the signer used seed {seed} instead of {WAY['seed']}, and may have chosen the best of several results",
        )
    return Check(CHOICES, True, "the seed is the one that the method prescribes")


def _items(document: schema.Dispute) -> Iterator[tuple[str, schema.Item]]:
    """Every model of a dispute with its place in the document."""
    for i, claim in enumerate(document["claims"]):
        yield f"claims[{i}].original", claim["original"]
        if claim["release"] is not None:
            yield f"claims[{i}].release", claim["release"]
    for i, exhibit in enumerate(document["exhibits"]):
        yield f"exhibits[{i}].item", exhibit["item"]


def _matched(document: schema.Dispute, opened: Sequence[Checkpoint]) -> dict[str, Checkpoint]:
    """The model for each place of the document: one with the item's files, else one with its embedding."""
    found: dict[str, Checkpoint] = {}
    for where, item in _items(document):
        alike = [model for model in opened if model.fingerprint == item["fingerprint"]]
        if alike:
            found[where] = next((model for model in alike if not wrong_in_item(item, model)), alike[0])
    return found


def _check_models(document: schema.Dispute, models: Mapping[str, Checkpoint]) -> Check:
    items = list(_items(document))
    missing = [where for where, _ in items if where not in models]
    wrong = [
        f"{where}: {what}" for where, item in items if where in models for what in wrong_in_item(item, models[where])
    ]
    if wrong:
        return Check(MODELS, False, f"a model that was provided is not the one that was examined: {listed(wrong)}")
    if missing:
        return Check(MODELS, None, f"none of the models provided has the embedding of {listed(missing)}", asked=True)
    return Check(MODELS, True, f"all {len(items)} models are the ones that were examined")


def _check_keys(document: schema.Dispute, keys: Mapping[str, Key]) -> Check:
    """Whether the keys have the names and settings that the claims give."""
    wrong, missing = [], []
    for i, claim in enumerate(document["claims"]):
        key = keys.get(claim["commitment"])
        if key is None:
            missing.append(f"claims[{i}]")
            continue
        named = not_as_described(claim, {"owner": key.owner, "recipient": key.recipient})
        named += not_as_described(claim["parameters"], plain(key.parameters.to_dict()))
        wrong += [f"claims[{i}]: {each}" for each in named]
    if wrong:
        return Check(KEY, False, f"the report’s description of a key differs from the key itself: {listed(wrong)}")
    if missing:
        return Check(KEY, None, f"the keys for the commitments in {listed(missing)} were not provided", asked=True)
    return Check(KEY, True, "the keys are the ones that the report is about, with the same names and settings")


def _check_claimants(document: schema.Dispute, keys: Mapping[str, Key]) -> Check:
    """Whether each claimant opened a key that names the claimant as its owner; a key shows no more about who it is."""
    others = []
    for claim in document["claims"]:
        key = keys.get(claim["commitment"])
        if key is None or printable(key.owner) != printable(claim["claimant"]):
            owner = (
                "no key of this claimant was provided"
                if key is None
                else f"the key names {printable(key.owner) or 'no one'} as its owner"
            )
            others.append(f"{printable(claim['claimant'], 80)}: {owner}")
    if others:
        return Check(CLAIMANTS, None, f"there is only the signer’s word for who the claimants are: {listed(others)}")
    return Check(CLAIMANTS, True, "each claimant opened a key that names that claimant as its owner")


def _check_tests(
    document: schema.Dispute, models: Mapping[str, Checkpoint], keys: Mapping[str, Key], device: str
) -> Check:
    """Whether every test, run again, has the recorded result, and whether the rulings are the same."""
    missing = [where for where, _ in _items(document) if where not in models]
    missing += [f"the key of claims[{i}]" for i, c in enumerate(document["claims"]) if c["commitment"] not in keys]
    if missing:
        return Check(
            EXAMINATION, None, f"the tests were not run again, because that also requires {listed(missing)}", asked=True
        )
    claims = [
        Claim(
            claimant=claim["claimant"],
            original=models[f"claims[{i}].original"],
            key=keys[claim["commitment"]],
            released=None if claim["release"] is None else models[f"claims[{i}].release"],
            committed_utc=claim["committed_utc"],
        )
        for i, claim in enumerate(document["claims"])
    ]
    exhibits = [(each["name"], models[f"exhibits[{i}].item"]) for i, each in enumerate(document["exhibits"])]
    outcome = plain(resolve(claims, exhibits, device, document["seed"]).to_dict())
    wrong = list(differences("outcome", document["outcome"], outcome))
    if wrong:
        return Check(EXAMINATION, False, not_as_recorded(wrong))
    return Check(
        EXAMINATION,
        True,
        f"a new run reproduced the recorded results of all {outcome['comparisons']} tests and the rulings",
    )
