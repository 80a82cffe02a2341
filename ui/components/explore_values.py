"""Values of Explore's controls, converted to settings and back, and the odds in words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from markupsafe import Markup

from irwm import Parameters
from irwm.errors import IrwmError
from irwm.explore.planning import Plan, plan
from irwm.explore.prediction import Sample
from irwm.report.numbers import WHY_CAPPED, is_stated, number, power_html, why_capped
from irwm.scheme.probabilities import log10_random_user, log10_wrong_user, success_probability
from ui.components import notices
from ui.components.settings_form import scale_of, scale_text, whole
from ui.explore_settings import ExploreSettings
from ui.preset_names import MANY, PAPER, STANDARD
from ui.presets import chosen_noise, noise_choice
from ui.settings import DEMO


def settings_of(*values: Any) -> ExploreSettings:
    """The settings for the controls' values, in the order of the page's controls.

    Raises:
        ParameterError: a value is missing or outside its range.
    """
    (positions, required, threshold, survival, recipients, risk, success, constraints, scale, limit) = values[:10]
    permutations, hidden, coordinates, choice, spread, noise, colluders = values[10:]
    return ExploreSettings(
        parameters=Parameters(
            positions=whole(positions),
            constraints=whole(constraints),
            scale=scale_of(scale),
            hidden=bool(hidden),
            condition_limit=limit,
            rank_threshold=threshold,
            required_positions=whole(required),
            permutations=whole(permutations),
            noise_coordinates=whole(coordinates),
            **chosen_noise(choice, spread),
        ),
        survival=survival,
        recipients=whole(recipients),
        risk=_real(risk),
        success=_real(success),
        noise=noise,
        colluders=whole(colluders),
    )


def values_of(s: ExploreSettings) -> tuple[Any, ...]:
    """The inverse of `settings_of`."""
    p = s.parameters
    mark = p.positions, p.required_positions, p.rank_threshold
    asked = s.survival, s.recipients, f"{s.risk:g}", f"{s.success!r}"
    cost = p.constraints, scale_text(p.scale), p.condition_limit, p.permutations, p.hidden
    return *mark, *asked, *cost, p.noise_coordinates, *noise_choice(p), s.noise, s.colluders


def said_of(s: ExploreSettings) -> str:
    """The odds in words."""
    p = s.parameters
    l, rho, beta = p.positions, p.required_positions, p.rank_threshold
    text = Markup(
        "If each position survives an attack with a probability of {:.4g}%, at least {} of {} positions count in {} "
        "of cases. The probability that a key that was never inserted reaches that number is {}"
    ).format(
        100 * s.survival,
        number(rho),
        number(l),
        percents(success_probability(l, rho, s.survival)),
        power_html(log10_random_user(l, rho, beta)),
    )
    if s.recipients > 1:
        any_of = log10_wrong_user(l, rho, beta, s.recipients)
        text += Markup("; the probability that any of {} such keys reaches it is {}").format(
            number(s.recipients), power_html(any_of)
        )
    # The answer to the inverse question, on the same page, has odds just below the accepted risk.
    why = why_capped(text) or ("" if is_stated(math.log10(s.risk)) else WHY_CAPPED)
    return notices.note_html(Markup("{}. {}").format(text, why) if why else text + ".")


def percents(share: float) -> str:
    """A success probability as a percentage that is never rounded to certainty."""
    return "more than 99.999%" if share > 0.99999 else f"{100 * share:.3f}%"


def answer(s: ExploreSettings) -> tuple[str, Plan | None]:
    """The answer to the inverse question in words, and the plan if there is one."""
    try:
        found = plan(s.wish)
    except IrwmError as error:
        return notices.error_html(error), None
    here = found.range
    which = f"ρ = {here.least}" if here.least == here.greatest else f"ρ from {here.least} to {here.greatest}"
    keys = f"among {number(s.recipients)} keys" if s.recipients > 1 else "for one key"
    text = Markup(
        "The smallest mark that meets both requirements has l = {} positions, with {}. With ρ = {}, the mark is found "
        "with a probability of {:.6f}, and the probability of a false accusation is {} {}."
    ).format(number(here.positions), which, found.required, found.success, power_html(found.log10_risk), keys)
    return notices.note_html(text, good=True), found


def protect_values(s: ExploreSettings) -> tuple[Any, ...]:
    """The settings in the order of `SettingsForm.inputs`."""
    p = s.parameters
    preset = PAPER if not p.hidden else MANY if s.recipients > 1 else STANDARD
    rule = p.positions, p.constraints, p.rank_threshold, p.required_positions
    solved = scale_text(p.scale), p.hidden, p.condition_limit, p.permutations
    return preset, *rule, *solved, p.noise_coordinates, *noise_choice(p)


def about_model(path: Path, of: Sample) -> str:
    """The sample that the figures were drawn from."""
    name = "the demo model (choose your own above)" if path == DEMO else path.name
    return notices.note_html(
        f"Plotted for {name}. The embedding has s = {number(of.vocab_size)} rows of d = {number(of.hidden_size)} "
        f"numbers; {number(len(of.rows))} rows were used."
    )


def _real(text: Any) -> Any:
    """The number in a text field; any other text is returned unchanged and refused later."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return text
