"""Carries a command out: the same job as a page starts, in the same vault, waited for here."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import irwm
from irwm.errors import IrwmError, OutputExistsError
from storage.errors import VaultExistsError, VaultMissingError
from storage.jobs import Job, Jobs
from storage.paths import HOME_VARIABLE, check_home
from storage.vault import Vault
from ui.command import passphrase, words
from ui.command.parser import INIT, PRESETS, PROTECT, TRACE
from ui.command.progress import Progress
from ui.command.stop import Stop
from ui.explore_settings import MOST_CHARACTERS, ExploreSettings
from ui.jobs import orphans, requests, runner
from ui.jobs.recipients import Recipient, read_file, read_list
from ui.jobs.requests import Asked
from ui.jobs.results import files_of
from ui.passphrases import check_new
from ui.presets import HIDDEN, MANY, ROBUST, preset_parameters
from ui.settings import DEVICE, REPOSITORY, Settings

SECONDS_BETWEEN_LOOKS = 0.2
_PRESETS = dict(zip(PRESETS, (ROBUST, HIDDEN, MANY), strict=True))
# An idle vault locks itself, and a first look at a large original takes its time.
_NEVER = math.inf


def run(given: Namespace, stop: Stop) -> dict[str, Any]:
    """The answer of a command; see `ui.command.words`.

    Raises:
        Stopped: before anything was started.
    """
    try:
        return _init(given) if given.command == INIT else _job(given, stop)
    except IrwmError as error:
        return words.of_error(given.command, error)


def _init(given: Namespace) -> dict[str, Any]:
    settings = _settings(given)
    if Vault.exists(settings.home):
        raise VaultExistsError(
            "there is a vault already", file=settings.home, advice=f"Use it, or set {HOME_VARIABLE} to another folder"
        )
    secret = passphrase.read(stdin=given.passphrase_stdin, descriptor=given.passphrase_fd, again=True)
    check_new(secret, secret)
    Vault.create(settings.home, secret).lock()
    return words.document(INIT, words.CREATED)


def _job(given: Namespace, stop: Stop) -> dict[str, Any]:
    settings = _settings(given)
    report = _report_folder(given)
    if not Vault.exists(settings.home):
        raise VaultMissingError(
            "there is no vault yet",
            file=settings.home,
            advice=f"Make one with `python app.py {INIT}` or in the app, or set {HOME_VARIABLE} to the folder of yours",
        )
    vault = Vault.open(settings.home, idle_seconds=_NEVER)
    vault.unlock(passphrase.read(stdin=given.passphrase_stdin, descriptor=given.passphrase_fd))
    for warning in vault.warnings:
        _note(warning)
    jobs = Jobs(settings.home)
    orphans.interrupt_dead(jobs)
    asked = _protect(given, vault, settings) if given.command == PROTECT else _examine(given, vault, jobs, settings)
    progress = Progress(sys.stderr, given.quiet)
    stop.interrupts = False  # from here on there is something to take back
    job = asked.start(vault, jobs)
    vault.lock()
    job = _ended(job, jobs, stop, progress)
    progress.end()
    copied = None if report is None else _copied(files_of(job, jobs), report)
    return words.of_job(given.command, job, jobs, copied)


def _ended(job: Job, jobs: Jobs, stop: Stop, progress: Progress) -> Job:
    """The job once it is over; it is stopped where that is asked for."""
    while not job.is_over:
        if stop.asked.wait(SECONDS_BETWEEN_LOOKS):
            return runner.stop(job.id, jobs)
        job = jobs.get(job.id)
        progress.show(job, len(jobs.ahead(job.id)))
    return job


def _protect(given: Namespace, vault: Vault, settings: Settings) -> Asked:
    model, people = _existing(given.model), _recipients(given.recipients)
    return requests.protect(
        vault,
        model,
        _absolute(given.out),
        owner=given.owner,
        parameters=_parameters(given, model),
        recipient=given.recipient,
        recipients=people,
        label=given.label,
        device=settings.device,
        utility=given.utility,
    )


def _examine(given: Namespace, vault: Vault, jobs: Jobs, settings: Settings) -> Asked:
    suspect, original = _existing(given.suspect), _existing(given.original)
    ask = requests.trace if given.command == TRACE else requests.investigate
    return ask(
        vault,
        jobs,
        suspect,
        original,
        irwm.open_checkpoint(original).fingerprint,
        keys=given.keys,
        matching=given.matching,
        case=given.case,
        note=given.note,
        seen=given.seen,
        examiner=given.examiner,
        seed=given.seed,
        device=settings.device,
        scheduler=settings.scheduler,
    )


def _parameters(given: Namespace, model: Path) -> irwm.Parameters:
    if given.parameters is not None:
        content = _content(_existing(given.parameters), 4 * MOST_CHARACTERS)
        return ExploreSettings.from_json(content.decode("utf-8", "replace")).parameters
    preset = given.preset or ("many" if given.recipients is not None else "robust")
    return preset_parameters(_PRESETS[preset], irwm.open_checkpoint(model).hidden_size)


def _recipients(name: str | None) -> tuple[Recipient, ...] | None:
    if name is None:
        return None
    path = _existing(name)
    return read_list(read_file(_content(path), path)).require()


def _settings(given: Namespace) -> Settings:
    """The app's settings, checked as it checks them; from before that no working folder of ours is served."""
    device = getattr(given, "device", None)
    settings = Settings.from_environment({**os.environ, **({DEVICE: device} if device else {})})
    named = bool(os.environ.get(HOME_VARIABLE))
    for warning in check_home(settings.home, REPOSITORY, Path(tempfile.gettempdir()), allow_temp=named):
        _note(warning)
    return settings


def _report_folder(given: Namespace) -> Path | None:
    """Where the report goes, looked at before the work begins.

    Raises:
        OutputExistsError: something lies there already.
        IrwmError: it cannot be used.
    """
    if getattr(given, "report", None) is None:
        return None
    folder = _absolute(given.report)
    try:
        taken = folder if folder.is_symlink() or (folder.exists() and not folder.is_dir()) else None
        taken = taken or next(folder.iterdir(), None)
    except FileNotFoundError:  # it is made when there is a report
        taken = None
    except OSError as error:
        raise IrwmError("the report's folder cannot be used", file=folder, found=error.strerror) from error
    if taken is not None:
        raise OutputExistsError(
            "the report's folder is not empty",
            file=folder,
            expected="a new or empty folder",
            found=taken.name,
            advice="Choose another one; no report is ever written over",
        )
    return folder


def _copied(files: Sequence[Path], folder: Path) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copyfile(file, folder / file.name)) for file in files]
    except OSError as error:
        raise IrwmError(
            "the report is filed in its case, but it cannot be copied",
            file=folder,
            found=error.strerror,
            advice="Take it from the case in the app",
        ) from error


def _existing(name: str) -> Path:
    path = _absolute(name)
    if not path.exists():
        raise IrwmError("there is nothing at this path", file=path, advice="Check its spelling")
    return path


def _absolute(name: str) -> Path:
    """A path as typed, from the top: the resolved folder, or the file's own name in its resolved folder.

    As the pages have it, so that the same work is known again; a file's own link is kept, since in a hub's cache the
    link has the name and its target only a hash.
    """
    try:
        path = Path(name).expanduser()
        return path.resolve() if path.is_dir() else path.parent.resolve() / path.name
    except (OSError, RuntimeError, ValueError) as error:  # a NUL, an unknown ~user, a loop of links
        raise IrwmError("this path cannot be used", file=name, found=str(error)) from error


def _content(path: Path, most: int | None = None) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read() if most is None else stream.read(most)
    except OSError as error:
        raise IrwmError("this file cannot be read", file=path, found=error.strerror) from error


def _note(warning: str) -> None:
    print(f"Note: {warning}", file=sys.stderr)
