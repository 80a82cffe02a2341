"""The choice of attacks and strengths: two ready choices, a tick for every strength, and other strengths."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm import Key, Parameters
from irwm.attacks.attack import Attack, Setup, format_obstacle
from irwm.attacks.catalogue import ATTACKS, GROUPS
from irwm.errors import IrwmError, printable
from irwm.report.numbers import number
from irwm.scheme.row_pool import RowPool
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.places import Places
from ui.context import Context
from ui.services.request import TrialOf

QUICK, ALL, OWN = "quick", "all", "own"
# One of each kind; each takes only seconds on the demo model.
QUICK_TRIALS: tuple[tuple[str, float | str], ...] = (
    ("prune", 0.3),
    ("prune", 0.7),
    ("noise", 0.3),
    ("round", 4),
    ("finetune", 20),
    ("merge-linear", 0.5),
    ("rotate", 1),
    ("reorder-tokens", 1),
    ("components", 0.75),
    ("serve", "float32"),
)
_ABOUT_ONCE = {
    True: "For these attacks, the logits are compared to verify that the model still computes the same function",
    False: "One strength each",
}


def token_of(attack: Attack, value: float | str) -> str:
    """The value of one attack at one strength in a list of ticks: its place, or the number if it is not offered."""
    offered = [strength.value for strength in attack.strengths]
    return f"{attack.name}|{offered.index(value)}" if value in offered else f"{attack.name}={value}"


def trial_of(token: str) -> TrialOf:
    """The attack and strength of a tick.

    Raises:
        IrwmError: this is not a tick of this page.
    """
    name, _, place = token.partition("|")
    attack = ATTACKS.get(name)
    if attack is None and "=" in token:
        name, _, number = token.partition("=")
        return own_trial(name, number)
    if attack is None or not place.isdecimal() or int(place) >= len(attack.strengths):
        raise IrwmError("this attack does not exist", found=printable(token, 80))
    return TrialOf(name, attack.strengths[int(place)].value)


def own_trial(name: str, number: str | float | None) -> TrialOf:
    """An attack at any of its strengths.

    Raises:
        IrwmError: the attack has only the offered strengths, or the number is not one of its strengths.
    """
    attack = ATTACKS.get(name)
    if attack is None or attack.interval is None:
        advice = "Choose an attack from the list"
        raise IrwmError("this attack has no other strengths", found=printable(name, 80), advice=advice)
    try:
        value = float(number or 0)
    except ValueError:
        value = math.nan
    if attack.interval.whole and value.is_integer():
        value = int(value)
    if not attack.takes(value):
        found = printable(str(number), 40)
        raise IrwmError("this is not a strength of this attack", expected=strengths_of(attack), found=found)
    return TrialOf(name, value)


def strengths_of(attack: Attack) -> str:
    """The unit and the limits of an attack's own strengths."""
    if attack.interval is None:
        return ""
    unit = f"{attack.symbol[:1].upper()}{attack.symbol[1:]}"
    return f"{unit}, from {attack.interval.least:g} to {attack.interval.most:g}"


def tokens(preset: str) -> list[str]:
    """The ticks of a ready choice."""
    if preset == QUICK:
        return [token_of(ATTACKS[name], value) for name, value in QUICK_TRIALS]
    return [token_of(attack, strength.value) for attack in ATTACKS.values() for strength in attack.strengths]


@dataclass(frozen=True, slots=True)
class TickBox:
    """One list of ticks: its component, the text below its label, and every tick with its label."""

    group: gr.CheckboxGroup
    about: str
    choices: list[tuple[str, str]]

    def offered(self, cannot: Set[str], ticked: Sequence[str] | None) -> Any:
        """The list without attacks that cannot run on the model; other ticks stay."""
        possible = [(words, token) for words, token in self.choices if token not in cannot]
        left = ", ".join(words for words, token in self.choices if token in cannot)
        about = f"{self.about}. Not available for this model: {left}" if left else self.about
        kept = [token for _, token in possible if token in set(ticked or ())]
        return gr.CheckboxGroup(choices=possible, value=kept, info=about, visible=bool(possible))


@dataclass(frozen=True, slots=True)
class LabChoice:
    """The parts of the choice that a page uses.

    Attributes:
        inputs: the ready choice, the lists of ticks, and the list of added strengths; `trials` and `offered` read their
            values.
        obstacles: the attacks that cannot run on the model, with reasons; the page fills it in.
        cannot: a `gr.State` with the ticks that cannot run on the model.
        lists: the lists of ticks.
    """

    inputs: list[Any]
    obstacles: gr.HTML
    cannot: gr.State
    lists: list[TickBox]

    @property
    def outputs(self) -> list[Any]:
        """The components that `offered` gives values for, in order."""
        return [self.cannot, *(each.group for each in self.lists)]

    def offered(
        self, found: Mapping[str, str], before: Sequence[str] | None, preset: str, *values: Sequence[str] | None
    ) -> tuple[Any, ...]:
        """The lists without the ticks that cannot run. A list that offers the same as before is not changed,
        because its ticks may have changed in the meantime.

        Args:
            found: from `obstacles_of`.
            before: the value of `cannot`.
            preset, values: the values of `inputs`.
        """
        cannot = impossible(found)
        changed = cannot ^ set(before or ())
        # A ready choice restores ticks that an earlier model did not allow.
        wanted = [list(values[i] or ()) if preset == OWN else tokens(preset) for i in range(len(self.lists))]
        lists = (
            gr.skip() if changed.isdisjoint(token for _, token in each.choices) else each.offered(cannot, ticked)
            for each, ticked in zip(self.lists, wanted, strict=True)
        )
        return sorted(cannot), *lists

    @staticmethod
    def trials(preset: str, *values: Sequence[str] | None) -> tuple[TrialOf, ...]:
        """The trials for the values of `inputs`, in the catalogue's order.

        Raises:
            IrwmError: no attack is ticked.
        """
        # A list that was never unfolded may not have its ticks yet.
        ticked = {token for each in values for token in each or ()} if preset == OWN else set(tokens(preset))
        for token in ticked:
            trial_of(token)
        order = {token: place for place, token in enumerate(tokens(ALL))}
        added = sorted(ticked - order.keys(), key=lambda token: list(ATTACKS).index(trial_of(token).attack))
        found = tuple(trial_of(token) for token in [*sorted(ticked & order.keys(), key=order.__getitem__), *added])
        if not found:
            raise IrwmError("no attack was chosen", advice="Choose Quick, or select at least one strength")
        return found


def lab_choice(context: Context) -> LabChoice:
    """Builds the choice at this place of the page."""
    every = number(len(tokens(ALL)))
    preset = gr.Radio(
        [
            (f"Quick: {len(QUICK_TRIALS)} trials, at least one of each kind", QUICK),
            (f"All: every attack at every strength ({every})", ALL),
            ("My own choice (see below)", OWN),
        ],
        value=QUICK,
        label="Attacks",
        elem_id="lab-preset",
    )
    obstacles = gr.HTML(elem_id="lab-obstacles")
    cannot = gr.State([])
    first = set(tokens(QUICK))
    lists: list[TickBox] = []
    with gr.Accordion("Attacks and strengths", open=False, elem_id="lab-attacks") as all_of_them:
        for group in GROUPS:
            attacks = [attack for attack in ATTACKS.values() if attack.group == group]
            several = [attack for attack in attacks if len(attack.strengths) > 1]
            once = [attack for attack in attacks if len(attack.strengths) == 1]
            gr.Markdown(f"## {group}", elem_classes="lab-group group-title")
            with gr.Row(elem_classes="lab-choices"):
                for attack in several:
                    choices = [(strength.label, token_of(attack, strength.value)) for strength in attack.strengths]
                    lists.append(_box(attack.label, attack.about, choices, first, f"lab-{attack.name}"))
                if once:
                    choices = [(attack.label, token_of(attack, attack.strengths[0].value)) for attack in once]
                    about = _ABOUT_ONCE[all(attack.keeps_function for attack in once)]
                    name = f"lab-once-{GROUPS.index(group)}"
                    lists.append(_box("Disguises" if not several else "Others", about, choices, first, name))
        added = _own_strengths(context, preset)
    boxes = [*(each.group for each in lists), added]

    def fill(preset: str, left_out: list[str] | None, request: gr.Request) -> Any:
        context.require(request)
        if preset == OWN:
            return gr.Accordion(open=True), *(gr.skip(),) * len(boxes)
        wanted = set(tokens(preset)) - set(left_out or ())
        return gr.skip(), *([token for _, token in each.choices if token in wanted] for each in lists), []

    preset.input(guarded(fill), [preset, cannot], [all_of_them, *boxes], **PRIVATE)
    gr.on([box.input for box in boxes], lambda: OWN, None, preset, **PRIVATE)
    return LabChoice([preset, *boxes], obstacles, cannot, lists)


def _own_strengths(context: Context, preset: gr.Radio) -> gr.CheckboxGroup:
    """A form that adds a trial at any strength, and the list of added trials."""
    free = [attack for attack in ATTACKS.values() if attack.interval is not None]
    gr.Markdown("## Other strengths", elem_classes="lab-group group-title")
    choices = [(attack.label, attack.name) for attack in free]
    name = gr.Dropdown(choices, value=free[0].name, label="Attack", elem_id="lab-own-attack")
    with gr.Row(elem_classes="picker-row"):
        strength = gr.Textbox(label="Strength", info=strengths_of(free[0]), max_length=20, elem_id="lab-own-strength")
        add = gr.Button("Add", elem_id="lab-own-add", elem_classes="field-button", scale=0, min_width=112)
    places = Places(form=gr.HTML(visible=False, elem_id="lab-own-notice"))
    added = gr.CheckboxGroup([], label="Added trials", visible=False, elem_id="lab-own-added")
    known = gr.State([])

    def limits(name: str, request: gr.Request) -> Any:
        context.require(request)
        return gr.Textbox(info=strengths_of(ATTACKS[name])) if name in ATTACKS else gr.skip()

    def one_more(
        name: str, strength: str | None, known: list[str], ticked: list[str] | None, request: gr.Request
    ) -> Any:
        context.require(request)
        trial = own_trial(name, (strength or "").strip())
        token = token_of(ATTACKS[trial.attack], trial.value)
        all_of_them = list(dict.fromkeys([*known, token]))
        choices = [(words_of(each), each) for each in all_of_them]
        group = gr.CheckboxGroup(choices=choices, value=list(dict.fromkeys([*(ticked or ()), token])), visible=True)
        return group, all_of_them, "", OWN

    name.change(guarded(limits), name, strength, **PRIVATE)
    told = places.told(one_more, 4)
    gr.on(
        [add.click, strength.submit], told, [name, strength, known, added],
        [added, known, strength, preset, *places.outputs], **PRIVATE,
    )  # fmt: skip
    return added


def _box(label: str, about: str, choices: list[tuple[str, str]], first: set[str], name: str) -> TickBox:
    ticked = [token for _, token in choices if token in first]
    group = gr.CheckboxGroup(choices, value=ticked, label=label, info=about, elem_id=name, min_width=280)
    return TickBox(group, about.rstrip("."), choices)


def impossible(found: Mapping[str, str]) -> set[str]:
    """The ticks that cannot run, from `obstacles_of`: all strengths of an attack, or single strengths."""
    whole = {
        token_of(ATTACKS[name], each.value) for name in found if name in ATTACKS for each in ATTACKS[name].strengths
    }
    return whole | {name for name in found if name not in ATTACKS}


def obstacles_of(original: Path, release: Path, parameters: Parameters, recipient: str = "") -> dict[str, str]:
    """The reason why each attack cannot run on this model, by its name, or by its tick if only that strength cannot;
    attacks that can run are omitted."""
    # Fields of the key that no attack checks before it starts stay empty: they are in the vault, or not made yet.
    stand_in = Key(bytes(32), parameters, "", "", "", 0, 0, RowPool(0, ()), 0, 1.0, recipient=recipient)
    setup = Setup(original, release, stand_in, "", release)
    with contextlib.suppress(IrwmError, OSError):  # each attack below reports other errors of the release
        if (problem := format_obstacle(release)) is not None:
            return dict.fromkeys(ATTACKS, problem)
    found: dict[str, str] = {}
    for attack in ATTACKS.values():
        single: dict[str, str] = {}
        try:
            reason = attack.why_not(setup)
            if reason is None:
                for strength in attack.strengths:
                    if (one := attack.why_not(setup, strength.value)) is not None:
                        single[token_of(attack, strength.value)] = one
        except (IrwmError, OSError) as error:
            reason = str(error)
        except (KeyError, ValueError, TypeError) as error:  # a config that does not fit its model type
            reason = f"The model’s config.json cannot be parsed: {type(error).__name__} {error}"
        if reason is None and len(single) == len(attack.strengths) and len(set(single.values())) == 1:
            reason = next(iter(single.values()))
        found |= single if reason is None else {attack.name: reason}
    return found


def words_of(name: str) -> str:
    """The label of an attack, with the strength if `name` is a tick."""
    if name in ATTACKS:
        return ATTACKS[name].label
    one = trial_of(name)
    attack = ATTACKS[one.attack]
    return f"{attack.label}, {attack.label_of(one.value)}"


def _continued(sentence: str) -> str:
    """A sentence in the form that follows a colon."""
    return sentence[:1].lower() + sentence[1:]


def obstacles_html(model: Markup, found: Mapping[str, str]) -> str:
    """The attacks that cannot run on a model, in a folded list; a note if all can run.

    Args:
        model: its name as HTML.
        found: of `obstacles_of`.
    """
    if not found:
        return str(Markup('<p class="note">Every attack can run on {}.</p>').format(model))
    reasons = set(found.values())
    if len(found) == len(ATTACKS) and len(reasons) == 1:
        words = Markup('<p class="note">No attack can run on {}: {}</p>')
        return str(words.format(model, printable(_continued(reasons.pop()), 400)))
    lines = Markup("").join(
        Markup("<li><strong>{}</strong>: {}</li>").format(words_of(name), printable(reason, 400))
        for name, reason in found.items()
    )
    whole = sum(each in ATTACKS for each in found)
    said = [f"{whole} of {len(ATTACKS)} attacks"] if whole > 1 else ["One attack"] if whole else []
    if strengths := len(found) - whole:
        if whole:
            said.append(
                "one strength of another attack" if strengths == 1 else f"{strengths} strengths of other attacks"
            )
        else:
            said.append("one strength of one attack" if strengths == 1 else f"{strengths} strengths of some attacks")
    count = " and ".join(said)
    said_of = count[:1].upper() + count[1:], model, lines
    head = Markup("<summary>{} cannot run on {} and cannot be selected</summary><ul>{}</ul>").format(*said_of)
    return str(Markup('<details class="lab-cannot">{}</details>').format(head))
