"""Both ownership attacks of the paper and stronger ones, with real keys, models and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import torch

import irwm
from irwm.attacks.adaptive import drop_components
from irwm.attacks.equivalence import disguise
from irwm.errors import CancelledError, CorruptCheckpointError, KeyMismatchError, ParameterError
from irwm.ownership import Claim, Commitment, Outcome, decide, read_response, request, resolve, rules, standing
from irwm.release.insertion import marked_rows
from tests.ownership.authority import Authority
from tools.copies import with_noise, write_embedding

EARLY, LATE = "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class World:
    """The owner's models and key, and a folder for the attacker's models."""

    original: irwm.Checkpoint
    key: irwm.Key
    release: irwm.Checkpoint
    folder: Path

    def claim(self, committed_utc: str | None = None, released: bool = True) -> Claim:
        return Claim("Owner", self.original, self.key, self.release if released else None, committed_utc)

    def marked(self, model: irwm.Checkpoint, key: irwm.Key, name: str) -> irwm.Checkpoint:
        return irwm.open_checkpoint(irwm.insert(model, key, self.folder / name).path)


def key_of(model: irwm.Checkpoint, owner: str, number: int) -> irwm.Key:
    return irwm.generate_key(model, secret=bytes([number]) * 32, owner=owner)


def one(outcome: Outcome) -> rules.Ruling:
    (ruling,) = outcome.rulings
    return ruling


@pytest.fixture(scope="module")
def world(gemma_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    original, folder = irwm.open_checkpoint(gemma_path), tmp_path_factory.mktemp("gemma")
    key = key_of(original, "Owner", 1)
    return World(original, key, irwm.open_checkpoint(irwm.insert(original, key, folder / "M1").path), folder)


@pytest.fixture(scope="module")
def attacker_key(world: World) -> irwm.Key:
    """A key for the owner's release, the only model that the attacker has."""
    return key_of(world.release, "Attacker", 2)


@pytest.fixture(scope="module")
def twice(world: World, attacker_key: irwm.Key) -> irwm.Checkpoint:
    """M12: the owner's release, marked again by the attacker."""
    return world.marked(world.release, attacker_key, "M12")


@pytest.fixture(scope="module")
def of_public(world: World) -> tuple[irwm.Key, irwm.Checkpoint]:
    """An attacker's key for the unmarked original, which is public, and its mark written over the owner's release."""
    key = key_of(world.original, "Attacker", 3)
    choices = key.choices()
    embedding = world.release.embedding()
    embedding[torch.from_numpy(choices.marked_rows)] = marked_rows(world.original, key, choices).float()
    return key, write_embedding(world.release, embedding, world.folder / "M12-of-public")


@pytest.mark.fault(38)
def test_both_marks_of_a_twice_marked_model_are_read(
    world: World, attacker_key: irwm.Key, twice: irwm.Checkpoint
) -> None:
    assert irwm.detect(twice, world.original, world.key, keys_tried=2).verdict == "found"
    assert irwm.detect(twice, world.release, attacker_key, keys_tried=2).verdict == "found"


@pytest.mark.slow
def test_second_mark_on_release_shows_our_mark_in_its_original(
    world: World, attacker_key: irwm.Key, twice: irwm.Checkpoint
) -> None:
    """The paper's first attack, M12."""
    claims = [world.claim(), Claim("Attacker", world.release, attacker_key, twice)]
    outcome = resolve(claims, [("leak", twice)])
    assert outcome.to_dict() == resolve(claims[::-1], [("leak", twice)]).to_dict()
    ruling = one(outcome)
    assert (outcome.winner, ruling.rule) == ("Owner", rules.ORIGINAL_MARKED)
    assert ruling.margin_bits is not None
    assert ruling.margin_bits > 50  # without any date
    assert outcome.test("Owner", "leak").found
    assert outcome.test("Attacker", "leak").found
    assert outcome.test("Owner", "original of Attacker").found
    assert not outcome.test("Attacker", "original of Owner").found
    assert len(outcome.remarks) == 1  # the leak equals a model of the attacker, so it shows nothing


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_original_derived_from_our_release_carries_our_mark(
    world: World, attacker_key: irwm.Key, tmp_path: Path, noise: float
) -> None:
    """The paper's second attack: subtracting the attacker's own mark gives Mo', marking that gives M1'."""
    choices = attacker_key.choices()
    embedding, rows = world.release.embedding(), torch.from_numpy(choices.marked_rows)
    embedding[rows] = 2 * embedding[rows] - marked_rows(world.release, attacker_key, choices).float()
    back = write_embedding(world.release, with_noise(embedding, noise), tmp_path / "Mo-back")
    with pytest.raises(KeyMismatchError):  # the key of the removed mark was made for another model
        irwm.detect(world.release, back, attacker_key)
    key = key_of(back, "Attacker", 4)
    marked = irwm.open_checkpoint(irwm.insert(back, key, tmp_path / "M1-back").path)
    outcome = resolve([world.claim(), Claim("Attacker", back, key, marked)])
    assert (outcome.winner, one(outcome).rule) == ("Owner", rules.ORIGINAL_MARKED)
    assert outcome.test("Owner", "original of Attacker").found
    assert outcome.test("Owner", "release of Attacker").found
    assert outcome.test("Attacker", "release of Attacker").found
    assert not outcome.test("Attacker", "release of Owner").found


@pytest.mark.slow
def test_mark_over_release_is_exposed_by_release(world: World, of_public: tuple[irwm.Key, irwm.Checkpoint]) -> None:
    """The stronger attack on a public original: it holds no mark of ours, but our mark is in the attacker's release."""
    key, both = of_public
    outcome = resolve([world.claim(LATE), Claim("Attacker", world.original, key, both, EARLY)])
    assert (outcome.winner, one(outcome).rule) == ("Owner", rules.RELEASE_MARKED)


@pytest.fixture(scope="module")
def undated(world: World, of_public: tuple[irwm.Key, irwm.Checkpoint]) -> tuple[list[Claim], Outcome]:
    """Both marks in one leaked model, and no other evidence."""
    key, both = of_public
    claims = [world.claim(released=False), Claim("Attacker", world.original, key)]
    return claims, resolve(claims, [("leak", both)])


def dated(claims: Sequence[Claim], tested: Outcome, ours: str | None, theirs: str | None) -> Outcome:
    """The same tests with other dates; the outcome must not depend on the order of the claimants."""
    claims = [replace(claims[0], committed_utc=ours), replace(claims[1], committed_utc=theirs)]
    outcome = decide(claims, tested.tests)
    assert outcome.to_dict() == decide(claims[::-1], tested.tests).to_dict()
    return outcome


@pytest.mark.parametrize(
    ("ours", "theirs", "winner"),
    [
        (EARLY, LATE, "Owner"),
        (LATE, EARLY, "Attacker"),
        (EARLY, None, None),
        (None, EARLY, None),
        (None, None, None),
        (EARLY, EARLY, None),
    ],
)
def test_earlier_commitment_decides_if_one_model_has_both_marks(
    undated: tuple[list[Claim], Outcome], ours: str | None, theirs: str | None, winner: str | None
) -> None:
    outcome = dated(*undated, ours, theirs)
    assert (outcome.winner, one(outcome).rule) == (winner, rules.EARLIER if winner else rules.UNDECIDED)


@pytest.fixture(scope="module")
def rival(world: World) -> Claim:
    """A claimant who marked the same public original and claims that our release derives from that release."""
    key = key_of(world.original, "Rival", 5)
    return Claim("Rival", world.original, key, world.marked(world.original, key, "rival"))


@pytest.fixture(scope="module")
def leak(world: World) -> irwm.Checkpoint:
    """The owner's release as passed on by a third party, not bit for bit."""
    return write_embedding(world.release, with_noise(world.release.embedding(), 0.01), world.folder / "leak")


@pytest.fixture(scope="module")
def contested(world: World, rival: Claim, leak: irwm.Checkpoint) -> tuple[list[Claim], Outcome]:
    claims = [world.claim(), rival]
    return claims, resolve(claims, [("leak", leak)])


@pytest.mark.parametrize(
    ("ours", "theirs", "winner"), [(None, None, None), (EARLY, LATE, "Owner"), (LATE, EARLY, None), (None, EARLY, None)]
)
def test_a_rival_s_key_is_not_in_our_release(
    contested: tuple[list[Claim], Outcome], ours: str | None, theirs: str | None, winner: str | None
) -> None:
    """The rival's mark may have been removed, so only a date in addition to our mark decides for us; nothing decides
    for the rival."""
    outcome = dated(*contested, ours, theirs)
    assert not outcome.test("Rival", "leak").found
    assert not outcome.test("Owner", "release of Rival").found
    assert outcome.test("Owner", "leak").found
    assert outcome.winner == winner


@pytest.mark.slow
def test_rival_with_incomparable_model_is_not_called_unrelated(
    world: World, tiny_path: Path, leak: irwm.Checkpoint
) -> None:
    unrelated = irwm.open_checkpoint(tiny_path)
    key = key_of(unrelated, "Rival", 6)
    claims = world.claim(), Claim("Rival", unrelated, key, None, EARLY)
    outcome = resolve(claims, [("leak", leak)])
    assert not outcome.test("Owner", "original of Rival").related
    assert not outcome.test("Owner", "original of Rival").unrelated
    assert (outcome.winner, one(outcome).rule) == (None, rules.UNDECIDED)


@pytest.mark.slow
def test_a_key_that_does_not_fit_its_own_original_is_named(
    world: World, attacker_key: irwm.Key, twice: irwm.Checkpoint
) -> None:
    """The attacker shows the true original, to hide that the key was made for our release."""
    outcome = resolve([world.claim(), Claim("Attacker", world.original, attacker_key, twice)])
    assert (outcome.winner, one(outcome).rule) == ("Owner", rules.UNFIT)
    assert len(outcome.remarks) == 1
    assert outcome.test("Attacker", "release of Owner").finding is None


@pytest.mark.fault(87)
@pytest.mark.parametrize("factor", [1e6, float("nan")])
def test_original_with_implausible_row_is_refused(
    world: World, attacker_key: irwm.Key, leak: irwm.Checkpoint, factor: float
) -> None:
    """The row makes every comparison with the "original" fail, and hides our mark in it."""
    embedding = world.release.embedding()
    embedding[300] *= factor
    corrupted = write_embedding(world.release, embedding, world.folder / f"corrupted {factor}")
    with pytest.raises(CorruptCheckpointError):
        key_of(corrupted, "Attacker", 4)
    outcome = resolve([world.claim(), Claim("Attacker", corrupted, attacker_key, None, EARLY)], [("leak", leak)])
    assert outcome.test("Owner", "leak").found
    assert outcome.test("Owner", "original of Attacker").found
    assert (outcome.winner, one(outcome).rule) == ("Owner", rules.UNFIT)


@pytest.mark.fault(87)
@pytest.mark.parametrize("turned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_release_without_a_quarter_of_components_is_not_an_original(world: World, tmp_path: Path, turned: bool) -> None:
    """The components that alignment is scored in are gone, so it fails, and the attacker has the earlier date."""
    folder = drop_components(world.release.path, tmp_path / "bare", 0.75)
    if turned:
        folder = disguise(folder, tmp_path / "turned", ["rotate"], seed=1)
    his = irwm.open_checkpoint(folder)
    claims = [world.claim(LATE), Claim("Attacker", his, key_of(his, "Attacker", 2), None, EARLY)]
    outcome = resolve(claims)
    assert outcome.test("Owner", "original of Attacker").found
    assert not outcome.test("Attacker", "original of Owner").found
    assert not outcome.test("Attacker", "release of Owner").found
    assert (outcome.winner, one(outcome).rule) == ("Owner", rules.ORIGINAL_MARKED)


def test_two_keys_without_their_originals_are_undecided(world: World, attacker_key: irwm.Key) -> None:
    claims = [Claim(name, world.original, attacker_key) for name in ("One", "Other")]
    outcome = resolve(claims, [("leak", world.release)])
    assert (outcome.winner, one(outcome).rule) == (None, rules.UNDECIDED)
    assert len(outcome.remarks) == 2


def test_a_release_without_its_owner_s_mark_is_named(world: World, rival: Claim) -> None:
    outcome = resolve([world.claim(), replace(rival, released=world.original)])
    assert len(outcome.remarks) == 1


def test_findings_are_corrected_for_every_key_on_every_model(contested: tuple[list[Claim], Outcome]) -> None:
    outcome = contested[1]
    assert outcome.comparisons == 2 * 5 == len(outcome.tests)
    assert {test.finding.keys_tried for test in outcome.tests if test.finding} == {10}


def test_three_claims_are_ruled_pairwise(world: World, attacker_key: irwm.Key, rival: Claim) -> None:
    steps: list[tuple[int, int, str]] = []
    claims = [world.claim(EARLY, released=False), Claim("Attacker", world.release, attacker_key), rival]
    outcome = resolve(claims, progress=lambda *step: steps.append(step))
    by_pair = {ruling.claimants: ruling for ruling in outcome.rulings}
    assert by_pair["Attacker", "Owner"].winner == "Owner"
    assert by_pair["Owner", "Rival"].winner is None
    assert by_pair["Attacker", "Rival"].winner is None
    assert outcome.winner is None
    assert [step[:2] for step in steps] == [(i + 1, 12) for i in range(12)]


def test_a_dispute_can_be_stopped(world: World, rival: Claim) -> None:
    with pytest.raises(CancelledError):
        resolve([world.claim(), rival], cancelled=lambda: True)


def test_a_dispute_needs_claimants_with_names_and_dates_with_zones(world: World, rival: Claim) -> None:
    wrong = [
        ([rival], ()),
        ([rival, rival], ()),
        ([rival, replace(rival, claimant=" ")], ()),
        ([world.claim("2026-01-01T00:00:00"), rival], ()),
        ([world.claim("soon"), rival], ()),
        ([world.claim(), rival], [("original of Owner", world.release)]),
    ]
    for claims, exhibits in wrong:
        with pytest.raises(ParameterError):
            resolve(claims, exhibits)


def test_commitment_after_the_suspect_appeared_is_too_late(
    world: World, authority: Authority, contested: tuple[list[Claim], Outcome]
) -> None:
    """A date from an authority, compared with the day on which the suspect was first seen."""
    document = Commitment.of(world.key)
    query = request(document.digest)
    stamp = read_response(query, authority.answer(query), document.digest, authority.root)
    risk = contested[1].test("Owner", "leak").log10_risk
    day, at = timedelta(days=1), datetime.fromisoformat(stamp.time_utc)
    before = standing(risk, stamp.time_utc, (at + day).isoformat())
    late = standing(risk, stamp.time_utc, (at - day).isoformat())
    assert (before.status, before.search_bits) == ("committed before", 0.0)
    assert (late.status, late.search_bits) == ("committed too late", 80.0)
    assert before.margin_bits - late.margin_bits == 80.0
    assert dated(*contested, stamp.time_utc, (at + day).isoformat()).winner == "Owner"


@pytest.mark.slow
def test_original_without_mark_is_found_by_fingerprint(world: World, tmp_path: Path) -> None:
    """The attacker redraws the marked rows, and presents the result as an original."""
    original = world.original
    key = irwm.generate_key(original, irwm.one_owner(original.hidden_size), bytes([1]) * 32, "Owner")
    release = irwm.open_checkpoint(irwm.insert(original, key, tmp_path / "release").path)
    embedding = release.embedding()
    rows = torch.as_tensor(key.marked_rows)
    lengths = embedding[rows].norm(dim=1, keepdim=True)
    drawn = torch.randn(len(rows), original.hidden_size, generator=torch.Generator().manual_seed(3))
    embedding[rows] = drawn / drawn.norm(dim=1, keepdim=True) * lengths
    his = write_embedding(release, embedding, tmp_path / "his")
    theirs = irwm.generate_key(his, irwm.one_owner(his.hidden_size), bytes([2]) * 32, "Attacker")
    outcome = resolve([Claim("Owner", original, key, release), Claim("Attacker", his, theirs)])
    tested = outcome.test("Owner", "original of Attacker")
    assert tested.finding is not None
    assert tested.finding.evidence[0].log10_p > -3  # the mark is gone
    assert tested.log10_risk < -30
    assert (outcome.winner, one(outcome).rule) == ("Owner", rules.ORIGINAL_MARKED)
    assert not outcome.test("Attacker", "original of Owner").found
