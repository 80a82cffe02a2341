"""Requests of jobs from plain arguments, for the pages, the command line and the endpoints for programs.

All checks that are possible before a process starts are here, with the same messages for all three. The check of
allowed folders is not: pages and endpoints do it before (`ui.components.browsing`), and a command may read everything
that the user's account may read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import irwm
from irwm.answers.recorded_responses import holds_responses
from irwm.answers.text_files import holds_text
from irwm.checkpoint.candidates import several_in
from irwm.checkpoint.recorded import holds_answers
from irwm.checkpoint.remote.address import is_address
from irwm.checkpoint.remote.hosted import check_source
from irwm.errors import IrwmError, printable, shown_path
from irwm.evidence.detection import INVARIANTS
from irwm.keys.key import MAX_NAME
from irwm.release import preflight
from irwm.release.front_matter import rewrites_of
from irwm.release.selection import select_files
from irwm.report.numbers import counted, number
from irwm.scheme.statistic import STATISTICS
from storage.job_table import Job
from storage.jobs import Jobs
from storage.vault import Vault
from ui.dates import day_utc
from ui.jobs import KINDS, runner
from ui.jobs.processes import Ready
from ui.jobs.vault_access import secrets_for
from ui.presets import check_memory
from ui.services.known_originals import KnownOriginals
from ui.services.recipients import MAX_NOTE, Recipient, RecipientListError, same_name
from ui.services.releasing import issued, signer_of
from ui.services.request import (
    ALWAYS,
    BYTES_OF_ONE,
    MOST_IN_A_PASS,
    NEVER,
    SECONDS_OF_ONE,
    SMALL,
    DescentRequest,
    InvestigateRequest,
    ProtectRequest,
    Request,
    SweepRequest,
    WatchRequest,
)

UTILITIES = (SMALL, ALWAYS, NEVER)
# The generator of the public permutations takes a seed of sixteen bytes; users do not need to type more than this.
LARGEST_SEED = 2**31 - 1
MOST_TITLE, MOST_RUN_NOTE, MOST_EXAMINER = 200, 1000, 200
# Shorter beginnings of a fingerprint match keys by chance.
LEAST_OF_FINGERPRINT = 8
# Number of the newest jobs that are searched for a sweep to continue.
_LOOK_BACK = 50
MOST_WATCHED = 100_000
# Between two passes of a watch: a year.
_MOST_HOURS = 8784


@dataclass(frozen=True, slots=True)
class Asked:
    """A job that may be started.

    Attributes:
        title: shown in lists.
    """

    title: str
    request: Request

    @property
    def kind(self) -> str:
        """One of `ui.jobs.KINDS`."""
        return type(self.request).__name__.removesuffix("Request").lower()

    def start(self, vault: Vault, jobs: Jobs, ready: Ready | None = None) -> Job:
        """Starts it, with access to the vault if it needs that; errors as `runner.start` and `VaultLockedError`."""
        opened = jobs.opened(vault.jobs_keys_to_seal())
        secrets = secrets_for(vault) if KINDS[self.kind].opens_vault else None
        return runner.start(self.kind, self.title, self.request.to_json(), secrets, opened, ready)


class NoNoiseError(IrwmError):
    """None of the keys carries noise, so no recipient can be traced."""


# Protect


def protect(
    vault: Vault,
    model: Path,
    out: Path,
    *,
    owner: str,
    parameters: irwm.Parameters,
    recipient: str = "",
    recipients: Sequence[Recipient] | None = None,
    label: str = "",
    device: str = "auto",
    utility: str = SMALL,
    also: Sequence[str] = (),
    sign_key: str = "",
    secret_file: str = "",
    base_model: str = "",
) -> Asked:
    """Mark a model for one owner or recipient, or for many.

    Args:
        model: the original, its full path.
        out: the release's new folder; of many recipients, the folder that their copies go into.
        recipients: who gets a copy; None for the one copy of `recipient`.
        utility: one of `UTILITIES`, whether the cost of the mark is measured.
        also: names of files of the model's folder to add to the release, see `irwm.insert`.
        sign_key, secret_file, base_model: see `ProtectRequest`.

    Raises:
        RecipientListError: the list is empty, or each of them has a copy of this model.
        ParameterError: the parameters are too large for this computer, or `also` names a file that the model does not
            have.
        PublishError, DiskSpaceError, OutputExistsError: `out` cannot take the release.
        SigningKeyError: the key for signatures cannot be used.
        IrwmError: the owner is missing, a text is too long, or the model cannot be opened.
    """
    checkpoint = irwm.open_checkpoint(model)
    check_names(vault, checkpoint.fingerprint if recipients is not None else None, owner, recipients)
    check_memory(parameters, checkpoint.hidden_size)
    note = _text("note", label, MAX_NOTE)
    people = tuple(Recipient(person.name, person.note or note) for person in recipients or ())
    request = ProtectRequest(
        model=shown_path(model),
        out=shown_path(out),
        parameters=parameters,
        owner=_text("owner", owner, MAX_NAME),
        recipients=people or (Recipient(_text("recipient", recipient, MAX_NAME), note),),
        many=recipients is not None,
        utility=_one_of("utility", utility, UTILITIES),
        also=tuple(sorted(also)),
        sign_key=sign_key,
        secret_file=secret_file,
        base_model=base_model,
        device=device,
    )
    select_files(checkpoint, also)
    rewrites_of(checkpoint, base_model, also)
    signer_of(sign_key, secret_file)
    if request.many:
        whom = f"for {counted(len(people), 'recipient')} in {shown_path(out.name)}"
        return Asked(f"Protect {shown_path(model.name)} {whom}", request)
    preflight(checkpoint, out, also=also)
    return Asked(f"Protect {shown_path(model.name)} as {shown_path(out.name)}", request)


def check_names(vault: Vault, fingerprint: str | None, owner: str | None, people: Sequence[Recipient] | None) -> None:
    """Checks that copies of an original may be made for these recipients.

    Args:
        fingerprint: of the original; None if it is not known yet.
        people: None for a single copy.

    Raises:
        RecipientListError: there are no recipients, or each of them has a copy.
        IrwmError: the owner is missing.
    """
    check_owner(owner)
    if people is not None and not people:
        raise RecipientListError("there are no recipients", advice="Type or paste one name per line, or a table")
    if people and len(released(vault, fingerprint, owner, people)[0]) == len(people):
        raise RecipientListError(
            "each of these recipients already has a copy of this model",
            advice="Add a recipient who does not have a copy yet",
        )


def check_owner(owner: str | None) -> None:
    """Checks that the owner of the model is given.

    Raises:
        IrwmError: the owner is missing.
    """
    if not (owner or "").strip():
        raise IrwmError("no owner was entered", advice="Enter the name of the model’s owner. It is recorded in the key")


def released(
    vault: Vault, fingerprint: str | None, owner: str | None, people: Sequence[Recipient]
) -> tuple[list[Recipient], int]:
    """The recipients of a list who already have a copy of this model, and the number of unreadable vault records."""
    if not fingerprint:
        return [], 0
    among = {same_name(person.name) for person in people}
    known = issued(vault, fingerprint, (owner or "").strip(), among=among)
    return [person for person in people if same_name(person.name) in known.released], known.damaged


# Investigate


def investigate(
    vault: Vault,
    jobs: Jobs,
    suspect: Path,
    original: Path | None,
    fingerprint: str,
    *,
    keys: Sequence[str] | None = None,
    matching: str = "",
    case: str = "",
    note: str = "",
    seen: str | None = "",
    examiner: str = "",
    seed: float | None = 0,
    statistic: str = STATISTICS[0],
    invariant: str = INVARIANTS[0],
    device: str = "auto",
    scheduler: str = "",
    answers: bool = False,
    fits: bool = True,
    noisy: bool = False,
    allowed: Callable[[Path], bool] = os.path.exists,
) -> Asked:
    """Look for the marks of an original in a suspect, or in each suspect of a folder.

    Args:
        suspect, original: full paths; the job opens the files. Without an original, the suspect is compared with all
            originals of the vault.
        fingerprint: the original's; "" without one.
        keys: see `chosen_keys`.
        matching: see `chosen_keys`.
        case: the title to file under; an existing case with that title is continued.
        seen: the day since when the suspect is known to exist, such as "2024-01-28".
        scheduler: address of a Dask cluster, or "".
        answers: whether the suspect must be a file of recorded answers; otherwise its content decides.
        fits: whether the original may be fitted to generated text in which it traces nobody as it is.
        noisy: whether only keys with noise are tried.
        allowed: whether the path of one of the vault's originals may be read and exists.

    Raises:
        SweepFolderError: the suspect's folder cannot be read.
        IrwmError: no key is left, or a value cannot be used.
    """
    named = _text("case title", case, MOST_TITLE)
    known: tuple[str, ...] = ()
    if original is None:
        known = known_originals(vault, suspect, answers, keys, allowed)
        ids, words = None, (matching or "").strip()
        if not vault.find_keys(words, limit=1).total:
            raise _no_match(words)
    else:
        ids, words = chosen_keys(vault, fingerprint, keys, matching)
    asked: dict[str, Any] = {
        "original": "" if original is None else shown_path(original),
        "keys": ids,
        "matching": words,
        "noisy": noisy,
        "seed": checked_seed(seed),
        "statistic": _one_of("statistic", statistic, STATISTICS),
        "invariant": _one_of("invariant", invariant, INVARIANTS),
        "case_id": next((known.id for known in vault.cases() if named and known.title == named), ""),
        "case_title": named,
        "note": _text("note", note, MOST_RUN_NOTE),
        "seen_utc": day_utc(seen),
        "examiner": _text("examiner", examiner, MOST_EXAMINER),
        "device": device,
        "scheduler": scheduler,
    }
    if several_in(suspect) is None:
        recorded = answers or holds_answers(suspect)
        one = InvestigateRequest(**asked, suspect=shown_path(suspect), originals=known, answers=recorded, fits=fits)
        return Asked(f"Investigate {shown_path(suspect.name)}", one)
    sweep = SweepRequest(**asked, folder=shown_path(suspect))
    return Asked(f"Sweep {shown_path(suspect.name)}", replace(sweep, resume=to_resume(jobs, sweep)))


def known_originals(
    vault: Vault, suspect: Path, answers: bool, keys: Sequence[str] | None, allowed: Callable[[Path], bool]
) -> tuple[str, ...]:
    """Paths of the vault's originals, with which a suspect can be compared.

    Raises:
        IrwmError: the suspect, or a choice of keys, needs one original, or the vault has none.
    """
    several = several_in(suspect) is not None
    if answers or several or holds_answers(suspect) or holds_responses(suspect) or holds_text(suspect):
        raise IrwmError(
            "no original was chosen",
            found="recorded answers, text or a folder of several suspects",
            advice="Choose the unmarked model first",
        )
    if keys is not None:
        raise IrwmError("keys were chosen without an original", advice="Choose the original too, or leave the keys out")
    here = KnownOriginals.of(vault, allowed).here
    if not here:
        raise IrwmError(
            "none of the vault’s originals is where a release was made from it",
            advice="Choose the unmarked model",
        )
    return tuple(map(shown_path, here))


def watch(
    vault: Vault,
    sources: Sequence[str],
    *,
    originals: Sequence[Path] | None = None,
    matching: str = "",
    most: float | None = MOST_IN_A_PASS,
    most_bytes: float | None = BYTES_OF_ONE,
    seconds: float | None = SECONDS_OF_ONE,
    every: float = 0,
    device: str = "auto",
    scheduler: str = "",
    allowed: Callable[[Path], bool] = os.path.exists,
) -> Asked:
    """Screen the models of sources that were not screened before.

    Args:
        sources: full paths of folders, and addresses (`irwm.checkpoint.remote.hosted`).
        originals: full paths; None for all originals of the vault.
        matching: words of an owner, recipient or note that select keys; "" for all.
        most: number of suspects in one pass.
        most_bytes, seconds: for one suspect.
        every: hours from one pass to the next; 0 for one pass. A watch that repeats, without `originals`, compares with
            all originals that the vault has by then.
        scheduler, allowed: as for `investigate`.

    Raises:
        ParameterError: an address is not one of a source.
        IrwmError: there is no source, the vault has no original, no key is left, or a value cannot be used.
    """
    given = tuple(dict.fromkeys(filter(None, map(str.strip, sources))))
    if not given:
        raise IrwmError("there are no sources", advice="Enter a folder, a bucket or an organisation of the hub")
    for source in given:
        if is_address(source):
            check_source(source)
    words = _text("words", matching, MAX_NOTE)
    if not vault.find_keys(words, limit=1).total:
        raise _no_match(words)
    known = KnownOriginals.of(vault, allowed).here if originals is None else originals
    if not known:
        raise IrwmError(
            "none of the vault’s originals is where a release was made from it", advice="Choose the unmarked model"
        )
    if not 0 <= every <= _MOST_HOURS:
        raise IrwmError("the number of hours is out of range", expected=f"0 to {_MOST_HOURS}", found=str(every))
    asked = WatchRequest(
        original="",
        originals=() if every and originals is None else tuple(map(shown_path, known)),
        sources=given,
        matching=words,
        most=whole_number("number of suspects", most, 1, MOST_WATCHED),
        most_bytes=whole_number("number of bytes", most_bytes, 1, 2**50),
        seconds=whole_number("number of seconds", seconds, 1, 10**6),
        every=float(every),
        device=device,
        scheduler=scheduler,
    )
    title = f"Watch {printable(given[0], 80)}" + (f" and {number(len(given) - 1)} more" if given[1:] else "")
    return Asked(title, asked)


def descent(models: Sequence[str], originals: Sequence[str] = (), *, device: str = "auto") -> Asked:
    """Map which of several models were made from which.

    Args:
        models, originals: full paths, and addresses; see `DescentRequest`.

    Raises:
        IrwmError: there is no model.
    """
    given, known = (tuple(dict.fromkeys(filter(None, map(str.strip, each)))) for each in (models, originals))
    if not given:
        raise IrwmError("there are no models", advice="Enter a folder with models, or several models")
    title = f"Map {printable(given[0], 80)}" + (f" and {number(len(given) - 1)} more" if given[1:] else "")
    return Asked(title, DescentRequest(models=given, originals=known, device=device))


def trace(vault: Vault, jobs: Jobs, suspect: Path, original: Path | None, fingerprint: str, **settings: Any) -> Asked:
    """Trace whose copy a suspect is: an investigation with keys that carry noise; arguments as `investigate`.

    Raises:
        NoNoiseError: no key carries noise.
        IrwmError: see `investigate`.
    """
    if original is not None:
        ids, words = chosen_keys(vault, fingerprint, settings.get("keys"), settings.get("matching"))
        _require_noise(vault, ids or vault.key_ids(words, model_fingerprint=fingerprint))
    else:
        _require_noise(vault, vault.key_ids((settings.get("matching") or "").strip()))
    asked = investigate(vault, jobs, suspect, original, fingerprint, noisy=True, **settings)
    return replace(asked, title=f"Trace {shown_path(suspect.name)}")


def chosen_keys(
    vault: Vault, fingerprint: str, keys: Sequence[str] | None = None, matching: str | None = ""
) -> tuple[tuple[str, ...] | None, str]:
    """The keys of an original to try: their identifiers, or None and the words that they must match.

    Args:
        keys: identifiers, or beginnings of fingerprints; None for all that match the words `matching`.
        matching: words of an owner, recipient or note; "" matches all keys of this original.

    Raises:
        IrwmError: no key is left, or one is not a key of this original.
    """
    if keys is not None:
        if not keys:
            raise IrwmError("no key was chosen", advice="Choose at least one key that was made for this original")
        return _identifiers(vault, fingerprint, keys), ""
    words = (matching or "").strip()
    if not vault.find_keys(words, model_fingerprint=fingerprint, limit=1).total:
        if words:
            raise _no_match(words)
        raise IrwmError(
            "the vault contains no key that was made for exactly this original",
            found=f"a model with the fingerprint {fingerprint}",
            advice="Choose the unmarked original that the release was made from, or protect a model first",
        )
    return None, words


def _no_match(words: str) -> IrwmError:
    return IrwmError("no key matches these words", found=words, advice="Use fewer words, or none to select all keys")


def _identifiers(vault: Vault, fingerprint: str, keys: Sequence[str]) -> tuple[str, ...]:
    known = vault.key_ids(model_fingerprint=fingerprint)
    of_fingerprint: dict[str, str] | None = None
    own, found = set(known), []
    for key in keys:
        if key in own:
            found.append(key)
            continue
        if of_fingerprint is None:
            of_fingerprint = {record.commitment: record.id for record in vault.key_records(known)}
        long_enough = len(key) >= LEAST_OF_FINGERPRINT
        fitting = {id for mark, id in of_fingerprint.items() if long_enough and mark.startswith(key.lower())}
        if len(fitting) != 1:
            raise IrwmError(
                "several key fingerprints begin with these characters"
                if fitting
                else "this is not a key for this original",
                expected=f"an identifier, or at least the first {LEAST_OF_FINGERPRINT} characters of a fingerprint",
                found=key,
                advice="Copy it from the Vault page or from the release's receipt",
            )
        found += fitting
    return tuple(dict.fromkeys(found))


def _require_noise(vault: Vault, ids: Sequence[str]) -> None:
    records = vault.key_records(ids)
    if not any(record.parameters.get("noise_coordinates") for record in records):
        raise NoNoiseError(
            "no key for this original carries noise, so no recipient can be traced",
            found=f"keys without noise: {number(len(records))}",
            advice="Run an investigation instead. Releases made with any preset except “Paper” can be traced",
        )


def to_resume(jobs: Jobs, asked: SweepRequest) -> str:
    """The newest sweep of this folder that ended early, which can be continued; "" for none.

    Args:
        jobs: opened.
    """
    same = ("folder", "original", "keys", "matching", "noisy", "statistic", "invariant", "seed")
    wanted = asked.to_json()
    for job in jobs.recent(_LOOK_BACK):
        if isinstance(job, Job) and job.kind == "sweep" and all(job.request.get(name) == wanted[name] for name in same):
            return job.id if job.is_over and job.state != "done" else ""
    return ""


def checked_seed(seed: float | None) -> int:
    """A seed as typed.

    Raises:
        IrwmError: not a whole number, or out of range.
    """
    return whole_number("seed", 0 if seed is None else seed, 0, LARGEST_SEED)


def positive(what: str, value: float) -> float:
    """A positive number as typed.

    Raises:
        IrwmError: not positive, or not finite.
    """
    if not 0 < value < math.inf:
        raise IrwmError(f"the {what} is out of range", expected="a positive number", found=str(value))
    return value


def whole_number(what: str, value: float | None, low: int, high: int) -> int:
    """A number as typed.

    Raises:
        IrwmError: not a whole number, or out of range.
    """
    if value is None or not low <= value <= high or value != int(value):  # not finite fails the comparison
        raise IrwmError(
            f"the {what} is out of range", expected=f"a whole number from {low} to {high}", found=str(value)
        )
    return int(value)


def _text(what: str, text: str | None, most: int) -> str:
    given = (text or "").strip()
    if len(given) > most:
        raise IrwmError(
            f"the {what} is too long", expected=f"at most {most} characters", found=f"{len(given)} characters"
        )
    return given


def _one_of(what: str, value: object, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise IrwmError(f"this {what} does not exist", expected=", ".join(known), found=printable(str(value), 80))
    return value
