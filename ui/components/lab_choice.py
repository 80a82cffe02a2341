"""Which attacks are tried, and how strong: two ready choices, and a tick for every strength of every attack."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
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
from ui.context import Context

QUICK, ALL, OWN = "quick", "all", "own"
# One of each kind, none of which takes more than seconds on the demo model.
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
)
_ABOUT_ONCE = {True: "Each must prove by its logits that the model computes the same", False: "In one way each"}


def token_of(attack: Attack, value: float | str) -> str:
    """What stands for one attack at one strength in a list of ticks."""
    return f"{attack.name}|{[strength.value for strength in attack.strengths].index(value)}"


def trial_of(token: str) -> dict[str, Any]:
    """A job's "attack" and "value".

    Raises:
        IrwmError: no tick of this page.
    """
    name, _, place = token.partition("|")
    attack = ATTACKS.get(name)
    if attack is None or not place.isdecimal() or int(place) >= len(attack.strengths):
        raise IrwmError("there is no such attack", found=printable(token, 80))
    return {"attack": name, "value": attack.strengths[int(place)].value}


def tokens(preset: str) -> list[str]:
    """The ticks of a ready choice."""
    if preset == QUICK:
        return [token_of(ATTACKS[name], value) for name, value in QUICK_TRIALS]
    return [token_of(attack, strength.value) for attack in ATTACKS.values() for strength in attack.strengths]


@dataclass(frozen=True, slots=True)
class LabChoice:
    """What a page gets.

    Attributes:
        inputs: the ready choice, and the lists of ticks; `trials` reads their values.
        obstacles: what cannot run on the model, and why; the page fills it in.
    """

    inputs: list[Any]
    obstacles: gr.HTML

    @staticmethod
    def trials(preset: str, *values: Sequence[str] | None) -> list[dict[str, Any]]:
        """The trials that the values of `inputs` stand for, in the catalogue's order.

        Raises:
            IrwmError: none is ticked.
        """
        # A list that was never unfolded may not have its ticks yet.
        ticked = {token for each in values for token in each or ()} if preset == OWN else set(tokens(preset))
        for token in ticked:
            trial_of(token)
        found = [trial_of(token) for token in tokens(ALL) if token in ticked]
        if not found:
            raise IrwmError("no attack was chosen", advice="Take Quick, or tick at least one strength")
        return found


def lab_choice(context: Context) -> LabChoice:
    """Builds the choice at this place of the page."""
    every = number(len(tokens(ALL)))
    preset = gr.Radio(
        [
            (f"Quick: {len(QUICK_TRIALS)} attacks, one of each kind", QUICK),
            (f"All: every attack at every strength ({every})", ALL),
            ("My own choice, below", OWN),
        ],
        value=QUICK,
        label="Attacks",
        elem_id="lab-preset",
    )
    obstacles = gr.HTML(elem_id="lab-obstacles")
    first = set(tokens(QUICK))
    boxes: list[gr.CheckboxGroup] = []
    owners: list[list[str]] = []
    with gr.Accordion("Attacks and strengths", open=False, elem_id="lab-attacks") as all_of_them:
        for group in GROUPS:
            attacks = [attack for attack in ATTACKS.values() if attack.group == group]
            several = [attack for attack in attacks if len(attack.strengths) > 1]
            once = [attack for attack in attacks if len(attack.strengths) == 1]
            gr.Markdown(f"### {group}", elem_classes="lab-group")
            with gr.Row(elem_classes="lab-choices"):
                for attack in several:
                    choices = [(strength.label, token_of(attack, strength.value)) for strength in attack.strengths]
                    boxes.append(_box(attack.label, attack.about, choices, first, f"lab-{attack.name}"))
                    owners.append([token for _, token in choices])
                if once:
                    choices = [(attack.label, token_of(attack, attack.strengths[0].value)) for attack in once]
                    about = _ABOUT_ONCE[all(attack.keeps_function for attack in once)]
                    name = f"lab-once-{GROUPS.index(group)}"
                    boxes.append(_box("Disguises" if not several else "Others", about, choices, first, name))
                    owners.append([token for _, token in choices])

    def fill(preset: str, request: gr.Request) -> Any:
        context.require(request)
        if preset == OWN:
            return gr.Accordion(open=True), *(gr.skip(),) * len(boxes)
        wanted = set(tokens(preset))
        return gr.skip(), *([token for token in own if token in wanted] for own in owners)

    preset.input(guarded(fill), preset, [all_of_them, *boxes], **PRIVATE)
    gr.on([box.input for box in boxes], lambda: OWN, None, preset, **PRIVATE)
    return LabChoice([preset, *boxes], obstacles)


def _box(label: str, about: str, choices: list[tuple[str, str]], first: set[str], name: str) -> gr.CheckboxGroup:
    ticked = [token for _, token in choices if token in first]
    return gr.CheckboxGroup(choices, value=ticked, label=label, info=about, elem_id=name, min_width=280)


def obstacles_of(original: Path, release: Path, parameters: Parameters, recipient: str = "") -> dict[str, str]:
    """Why each attack cannot run on this model, by name; those that can are not in it."""
    # What no attack asks of a key before it starts is left empty: it is the vault's, or not made yet.
    stand_in = Key(bytes(32), parameters, "", "", "", 0, 0, RowPool(0, ()), 0, 1.0, recipient=recipient)
    setup = Setup(original, release, stand_in, "", release)
    with contextlib.suppress(IrwmError, OSError):  # each attack says below what else is wrong with it
        if (problem := format_obstacle(release)) is not None:
            return dict.fromkeys(ATTACKS, problem)
    found = {}
    for attack in ATTACKS.values():
        try:
            reason = attack.why_not(setup)
        except (IrwmError, OSError) as error:
            reason = str(error)
        except (KeyError, ValueError, TypeError) as error:  # a config that is not what its model's type says
            reason = f"Its config.json cannot be understood: {type(error).__name__} {error}"
        if reason is not None:
            found[attack.name] = reason
    return found


def _continued(sentence: str) -> str:
    """A sentence as it goes on after a colon."""
    return sentence[:1].lower() + sentence[1:]


def obstacles_html(name: str, found: dict[str, str]) -> str:
    """What cannot run on a model, in a list that is folded; "" where everything can."""
    if not found:
        return str(Markup('<p class="note">Every attack can run on {}.</p>').format(printable(name, 80)))
    reasons = set(found.values())
    if len(found) == len(ATTACKS) and len(reasons) == 1:
        words = Markup('<p class="note">No attack can run on {}: {}</p>')
        return str(words.format(printable(name, 80), printable(_continued(reasons.pop()), 400)))
    lines = Markup("").join(
        Markup("<li><strong>{}</strong>: {}</li>").format(ATTACKS[attack].label, printable(reason, 400))
        for attack, reason in found.items()
    )
    count = f"{len(found)} of {len(ATTACKS)} attacks cannot" if len(found) > 1 else "One attack cannot"
    return str(
        Markup('<details class="lab-cannot"><summary>{} run on {}</summary><ul>{}</ul></details>').format(
            count, printable(name, 80), lines
        )
    )
