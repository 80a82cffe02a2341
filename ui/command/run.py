"""Runs a command: starts the same job as a page, in the same vault, and waits for it."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import irwm
from irwm.attestation.token import SCHEME
from irwm.checkpoint.remote.address import is_address
from irwm.checkpoint.remote.opening import local_path
from irwm.errors import IrwmError, printable, shown_path
from storage.backup import latest_backup
from storage.errors import RecordNotFoundError, StorageError, VaultExistsError, VaultMissingError
from storage.job_table import Job
from storage.jobs import Jobs
from storage.paths import HOME_VARIABLE, check_home
from storage.vault import Vault
from ui import offline
from ui.command import output, passphrase, words
from ui.command.argument_paths import absolute, content, existing
from ui.command.collect import collect
from ui.command.parser import ATTEST, COLLECT, INIT, OPEN_KEY, PROTECT, TRACE, WATCH
from ui.command.progress import Progress
from ui.command.report_folder import check_free, copy_report
from ui.command.stop import Stop
from ui.command.streams import say
from ui.explore_settings import MOST_CHARACTERS, ExploreSettings
from ui.jobs import orphans, requests, runner
from ui.jobs.requests import Asked
from ui.jobs.results import files_of
from ui.key_file import write_key
from ui.passphrases import check_new
from ui.preset_names import TYPED
from ui.presets import preset_parameters
from ui.services.outcomes import STOPPED
from ui.services.recipients import Recipient, read_file, read_list
from ui.settings import DEVICE, REPOSITORY, Settings

SECONDS_BETWEEN_LOOKS = 0.2
# If the job list is busy or unreadable for longer than this, the command leaves its job running alone.
SECONDS_OF_TROUBLE = 60.0
# An idle vault locks itself, and the first reading of a large original takes time.
_NEVER = math.inf


def run(given: Namespace, stop: Stop) -> output.Answer:
    """The answer of a command; see `ui.command.words`.

    Raises:
        Stopped: before a job was started.
    """
    stop.open()  # all is imported; after this it waits for users and for large files
    try:
        if given.command == COLLECT:
            return collect(given, lambda: _unlocked(given, _settings(given)))
        if given.command == OPEN_KEY:
            return _open_key(given)
        if given.command == ATTEST:
            return _attest(given)
        if given.command == WATCH:
            return _watch(given, stop)
        return _init(given, stop) if given.command == INIT else _job(given, stop)
    except IrwmError as error:
        return words.of_error(given.command, error)


def _init(given: Namespace, stop: Stop) -> output.Answer:
    settings = _settings(given)
    if Vault.exists(settings.home):
        raise VaultExistsError(
            "there is a vault already", file=settings.home, advice=f"Use it, or set {HOME_VARIABLE} to another folder"
        )
    backup = latest_backup(settings.home)
    if backup is not None:
        raise _lost(backup)
    secret = passphrase.read(stdin=given.passphrase_stdin, descriptor=given.passphrase_fd, again=True)
    check_new(secret, secret)
    stop.close()
    Vault.create(settings.home, secret).lock()
    return output.document(INIT, output.CREATED)


def _open_key(given: Namespace) -> output.Answer:
    folder = existing(given.folder)
    vault = _unlocked(given, _settings(given))
    # An owner's or a recipient's name must not be enough to select a secret.
    matching = vault.key_records(vault.key_ids(given.key))
    begin = [each.id for each in matching if each.commitment.startswith(given.key.lower())]
    ids = [given.key] if vault.key_records([given.key]) else begin
    if len(ids) != 1:
        found = ", ".join(
            f"{each.commitment[:16]} ({each.recipient or each.owner})" for each in vault.key_records(ids[:5])
        )
        raise RecordNotFoundError(
            "this does not identify exactly one key",
            expected="the id of a key, or the first characters of its fingerprint",
            found=f"{printable(given.key, 80)}: {f'{len(ids)} keys, {found}' if ids else 'none'}",
            advice="Copy the fingerprint from the page Vault",
        )
    file = write_key(vault, ids[0], folder)
    vault.lock()
    return output.document(OPEN_KEY, output.OPENED, result={"key": ids[0], "file": str(file)}, files=[str(file)])


def _attest(given: Namespace) -> output.Answer:
    from irwm.attestation.new_file import write_new
    from ui.services.attesting import attest

    report, out = existing(given.report), absolute(given.out)
    public = absolute(given.public_key) if given.public_key is not None else None
    vault = _unlocked(given, _settings(given))
    try:
        envelope, pem = attest(vault, report)
    finally:
        vault.lock()
    files = [str(write_new(out, envelope)), *([str(write_new(public, pem))] if public is not None else [])]
    return output.document(ATTEST, output.ATTESTED, result={"file": files[0]}, files=files)


def _job(given: Namespace, stop: Stop) -> output.Answer:
    settings = _settings(given)
    report = _report_folder(given)
    vault = _unlocked(given, settings)
    jobs = Jobs(settings.home).opened(vault.jobs_keys_to_seal())
    orphans.interrupt_dead(jobs)
    asked = _protect(given, vault, settings) if given.command == PROTECT else _examine(given, vault, jobs, settings)
    stop.close()
    job = asked.start(vault, jobs)
    jobs = jobs.opened(jobs.key_of(job.id))  # all that is needed of the vault while it is locked
    vault.lock()
    job, lost = _followed(given, job, jobs, stop)
    if lost is not None:
        return words.of_lost(given.command, job, lost)
    try:
        copied = [] if report is None else copy_report(files_of(job, jobs), report)
    except IrwmError as error:
        return words.of_uncopied(given.command, job, error)
    return words.of_job(given.command, job, copied)


def _watch(given: Namespace, stop: Stop) -> output.Answer:
    """The answer of the last pass; those before it are printed when they are there. The vault stays unlocked."""
    settings = _settings(given)
    vault = _unlocked(given, settings)
    wait = requests.positive("number of hours", given.every) * 3600 if given.every is not None else None
    stop.close()
    first = True
    try:
        while True:
            answer, is_last = _pass(given, settings, vault, stop, first=first)
            first = False
            if wait is None or is_last or stop.asked:
                return answer
            say(printable(words.sentence(answer), 2000))
            say(output.text(answer), sys.stdout)
            if stop.wait(wait):
                return output.document(given.command, STOPPED)
    finally:
        vault.lock()


def _pass(given: Namespace, settings: Settings, vault: Vault, stop: Stop, *, first: bool) -> tuple[output.Answer, bool]:
    """The answer of one pass, and whether there can be no other. A later pass that cannot be started is not the last: a
    folder may be missing until its disk is connected.

    Raises:
        IrwmError: the first pass could not be started.
    """
    try:
        jobs = Jobs(settings.home).opened(vault.jobs_keys_to_seal())
        orphans.interrupt_dead(jobs)
        job, lost = _followed(given, _watching(given, vault, settings).start(vault, jobs), jobs, stop)
    except IrwmError as error:
        if first:
            raise
        return words.of_error(given.command, error), False
    answer = words.of_job(given.command, job) if lost is None else words.of_lost(given.command, job, lost)
    return answer, lost is not None or answer["outcome"] == STOPPED


def _watching(given: Namespace, vault: Vault, settings: Settings) -> Asked:
    limits = {"most": given.most, "most_bytes": given.bytes, "seconds": given.seconds}
    return requests.watch(
        vault,
        [source if is_address(source) else shown_path(existing(source)) for source in given.sources],
        originals=None if given.original is None else [existing(each) for each in given.original],
        matching=given.matching,
        device=settings.device,
        scheduler=settings.scheduler,
        **{name: value for name, value in limits.items() if value is not None},
    )


def _followed(given: Namespace, job: Job, jobs: Jobs, stop: Stop) -> tuple[Job, Exception | None]:
    """The job once it is over; or its last known state, and why it could not be followed."""
    progress = Progress(sys.stderr, given.quiet)
    try:
        return _ended(job, jobs, stop, progress), None
    except Exception as error:
        if not isinstance(error, IrwmError):
            say(output.trace_of(error))
        return job, error
    finally:
        progress.end()


def _unlocked(given: Namespace, settings: Settings) -> Vault:
    """The app's vault, unlocked with its passphrase."""
    if not Vault.exists(settings.home):
        backup = latest_backup(settings.home)
        if backup is not None:
            raise _lost(backup)
        raise VaultMissingError(
            "there is no vault yet",
            file=settings.home,
            advice=f"Make one with `python app.py {INIT}` or in the app, or set {HOME_VARIABLE} to the folder of yours",
        )
    vault = Vault.open(settings.home, idle_seconds=_NEVER)
    vault.unlock(passphrase.read(stdin=given.passphrase_stdin, descriptor=given.passphrase_fd))
    for warning in vault.warnings:
        _note(warning)
    return vault


def _ended(job: Job, jobs: Jobs, stop: Stop, progress: Progress) -> Job:
    """The job once it is over; stops it if requested.

    Raises:
        RecordNotFoundError: it was removed from the list.
        StorageError: the list cannot be used, and has not been usable for a while.
    """
    read = time.monotonic()
    while not job.is_over:
        asked = stop.wait(SECONDS_BETWEEN_LOOKS)
        try:
            if asked:
                runner.stop(job.id, jobs)
            job = jobs.get(job.id)
            progress.show(job, len(jobs.ahead(job.id)))
        except RecordNotFoundError:
            raise
        except StorageError:  # a short failure of the list does not affect the job
            if time.monotonic() - read > SECONDS_OF_TROUBLE:
                raise
            time.sleep(SECONDS_BETWEEN_LOOKS)
        else:
            read = time.monotonic()
    return job


def _lost(backup: Path) -> VaultMissingError:
    return VaultMissingError(
        "the vault of this folder is gone, but it has a backup",
        file=backup,
        advice=f"Restore it: open the app, which asks for it; or set {HOME_VARIABLE} to another folder",
    )


def _protect(given: Namespace, vault: Vault, settings: Settings) -> Asked:
    model, people = existing(given.model), _recipients(given.recipients)
    return requests.protect(
        vault,
        model,
        absolute(given.out),
        owner=given.owner,
        parameters=_parameters(given, model),
        recipient=given.recipient,
        recipients=people,
        label=given.label,
        device=settings.device,
        utility=given.utility,
        also=given.also,
        sign_key=given.sign_key if given.sign_key.startswith(SCHEME) else _path_text(given.sign_key),
        secret_file=_path_text(given.secret_file),
        base_model=given.base_model,
    )


def _path_text(name: str) -> str:
    """A file's absolute path, as a request stores it; "" for none."""
    return shown_path(existing(name)) if name else ""


def _examine(given: Namespace, vault: Vault, jobs: Jobs, settings: Settings) -> Asked:
    suspect = local_path(given.suspect) if is_address(given.suspect) else existing(given.suspect)
    original = existing(given.original) if given.original else None
    ask = requests.trace if given.command == TRACE else requests.investigate
    return ask(
        vault,
        jobs,
        suspect,
        original,
        irwm.open_checkpoint(original).fingerprint if original is not None else "",
        keys=given.keys,
        matching=given.matching,
        case=given.case,
        note=given.note,
        seen=given.seen,
        examiner=given.examiner,
        seed=given.seed,
        fits=given.fits,
        device=settings.device,
        scheduler=settings.scheduler,
    )


def _parameters(given: Namespace, model: Path) -> irwm.Parameters:
    if given.parameters is not None:
        settings = content(existing(given.parameters), 4 * MOST_CHARACTERS)
        return ExploreSettings.from_json(settings.decode("utf-8", "replace")).parameters
    preset = given.preset or ("many" if given.recipients is not None else "standard")
    return preset_parameters(TYPED[preset], irwm.open_checkpoint(model).hidden_size)


def _recipients(name: str | None) -> tuple[Recipient, ...] | None:
    if name is None:
        return None
    path = existing(name)
    return read_list(read_file(content(path), path)).require()


def _settings(given: Namespace) -> Settings:
    """The app's settings, checked as the app checks them; the web server of this process serves no working folder."""
    device = getattr(given, "device", None)
    settings = Settings.from_environment({**os.environ, **({DEVICE: device} if device else {})})
    named = bool(os.environ.get(HOME_VARIABLE))
    for warning in check_home(settings.home, REPOSITORY, Path(tempfile.gettempdir()), allow_temp=named):
        _note(warning)
    if settings.note is not None:
        _note(str(settings.note))
    offline.allow_servers(settings.servers)
    return settings


def _report_folder(given: Namespace) -> Path | None:
    """The folder for the report, or for the table of receipts; errors as `check_free`."""
    if getattr(given, "report", None) is None:
        return None
    if given.command == PROTECT and given.recipients is None:
        raise IrwmError(
            "there is no table of receipts for one recipient", advice="Leave --report out: the answer contains it"
        )
    folder = absolute(given.report)
    check_free(folder)
    return folder


def _note(warning: str) -> None:
    say(f"Note: {warning}")
