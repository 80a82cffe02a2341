"""The Lab: attacks on a release, or on a trial mark before there is one, and their results.

After each attack, a row is written to the files of the work. So Stop, a crash or a failed attack loses no results, and
another run continues where this one ended. Intermediate models are in the scratch folder of the work, which is removed
with it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import irwm
from irwm.attacks.attack import Attack, Attacked, Setup, Strength
from irwm.attacks.catalogue import ATTACKS
from irwm.attacks.trial import Trial, try_attack
from irwm.errors import CancelledError, DiskSpaceError, IrwmError, KeyMismatchError
from irwm.inference import Reference, default_text, reference
from irwm.inference.reference import IN_MEMORY
from irwm.report import schema
from irwm.report.document import to_json
from irwm.report.items import ItemDescription, installed_versions
from irwm.report.lab import LAB_HTML, LAB_JSON, NAME, lab_document, lab_html, mark_section
from irwm.report.lab_rows import ATTACK, CONTROL, MANY, MODES, NOT_AN_ATTACK, RELEASE, SINGLE, headline, word
from irwm.report.plots.lab import name_of
from storage.files import private_folder
from storage.jobs import SCRATCH_NAME
from storage.vault import Vault
from ui.services.device import device_of
from ui.services.examining import hashes
from ui.services.filing import CaseFiling, case_lines, examiner_of
from ui.services.lab_resume import companions, comparable, known_rows, tools
from ui.services.lab_row import row_of
from ui.services.request import LabRequest, TrialOf
from ui.services.results import Reported
from ui.services.stored_results import jobs_of
from ui.services.work import Work

# The secret of every trial mark: public, because the mark protects nothing, and fixed, so that runs can be repeated.
PUBLIC_SECRET = hashlib.sha256(b"irwm/v1/lab/trial mark").digest()
TRIAL_OWNER, TRIAL_RECIPIENT = "Trial mark", "Trial recipient"
BUNDLED = "the bundled text"
# Longer texts are refused: only some thousand tokens are measured.
MOST_TEXT_BYTES = 64 << 20
# Halves of a shorter text are too short to measure.
LEAST_CHARACTERS = 200
_ONCE = (Strength(0, ""),)
_UNTOUCHED = Attack(
    *NOT_AN_ATTACK[RELEASE], "The release without an attack.", "", "", _ONCE,
    lambda setup, _value, _out: Attacked(setup.release), reads=(),
)  # fmt: skip
_UNMARKED = Attack(
    *NOT_AN_ATTACK[CONTROL], "A model without the mark, read the same way.", "", "", _ONCE,
    lambda setup, _value, _out: Attacked(setup.original), reads=(),
)  # fmt: skip


class LabError(IrwmError):
    """The target of the attacks, an attack or the text cannot be used."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """One marked copy: a release with its key from the vault, or a trial mark that is made here.

    Attributes:
        mode: one of `MODES`.
        key: of the release, or the trial key.
        release: the folder; None for a trial mark, whose copy is made when it is needed.
    """

    mode: str
    key: irwm.Key = field(repr=False)
    release: Path | None


def run(request: LabRequest, vault: Vault, work: Work) -> Reported:
    """Attack a release, or trial marks on a model.

    Raises:
        LabError: an attack does not exist, or the text cannot be used.
        KeyMismatchError: the key was made for another original.
        DiskSpaceError: there is not enough space for an attacked copy.
    """
    device = device_of(request.device)
    chosen = [_attack(trial) for trial in request.trials]
    text, about_text = _text(request.text)
    work.progress(0, 0, "Reading the model")
    original = irwm.open_checkpoint(request.original)
    marks = _marks(vault, request, original, device)
    scratch = work.folder / SCRATCH_NAME
    _require_room(work.folder, [mark.release or original.path for mark in marks], trial_copy=not request.release)
    _require_room_for_outputs(work.folder, original, min(request.tokens, len(text[0])))
    began = time.monotonic()
    lab = _Lab(
        work,
        request,
        vault,
        lab_document(
            original=ItemDescription.of(original, hashes=hashes(original, work)),
            rehearsal=not request.release,
            trials=len(marks) * (len(chosen) + 2),
            settings={
                "text": about_text,
                "tokens": request.tokens,
                "seed": request.seed,
                "companions_sha256": companions(Path(request.original), *(mark.release for mark in marks)),
            },
            case=case_lines(request, examiner_of(vault, request.case_id, request.examiner)),
            created_utc="",
            tool_versions=installed_versions() | tools(),
            extra={"Device": device},
        ),
    )
    try:
        for mark in marks:
            private_folder(scratch)
            lab.attack(mark, original, chosen, request, text, scratch, device)
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return lab.close(vault, request, time.monotonic() - began)


class _Lab:
    """The results so far, which are always on the disk."""

    def __init__(self, work: Work, request: LabRequest, vault: Vault, begun: schema.Lab) -> None:
        self._work = work
        self._document = begun
        self._earlier, why = comparable(request.resume, jobs_of(vault), begun)
        self._taken = self._done = 0
        if request.resume:
            self._say_taken(why)
        self._write()

    def attack(
        self,
        mark: _Mark,
        original: irwm.Checkpoint,
        chosen: Sequence[tuple[Attack, float | str]],
        request: LabRequest,
        text: tuple[str, str],
        scratch: Path,
        device: str,
    ) -> None:
        """Runs all trials on one marked copy."""
        work, total = self._work, self._document["trials"]
        release = mark.release
        if release is None:
            work.progress(self._done, total, f"Making a copy with a trial mark: {MODES[mark.mode].lower()}")
            release = Path(
                irwm.insert(original, mark.key, scratch / "release", device=device, cancelled=work.cancelled).path
            )
        measured, trained_on = text
        against, unmeasured = None, ""
        work.progress(self._done, total, "Running the release on the text")
        try:
            running = self._step("Running the release on the text")
            against = reference(release, measured, request.tokens, device, request.seed, running)
        except CancelledError:
            raise
        except Exception as error:  # the mark can still be read, also if memory or the disk is too small
            unmeasured = self._said(str(error) if isinstance(error, IrwmError) else _unforeseen(error), release)
        checkpoint = irwm.open_checkpoint(release)
        name = release.name if mark.release else f"{original.path.name}, with a trial mark"
        item = ItemDescription.of(checkpoint, name, hashes(checkpoint, work))
        section = mark_section(mark.mode, mark.key, item, unmeasured)
        self._document["marks"].append(section)
        known = known_rows(self._earlier, section)
        asked = [(RELEASE, _UNTOUCHED, 0), (CONTROL, _UNMARKED, 0), *((ATTACK, *each) for each in chosen)]
        order = [(attack.name, value) for _, attack, value in asked]
        # Added at once, so that a second Stop does not lose them.
        section["rows"] += [known[each] for each in order if each in known]
        if self._earlier:
            self._taken += len(section["rows"])
            self._say_taken("the marked copy is different")
        for role, attack, value in asked:
            place = scratch / "trial"
            if (attack.name, value) not in known:
                title = name_of({"label": attack.label, "strength": attack.label_of(value)})
                what = f"{MODES[mark.mode].split(' (')[0]}: {title}"
                work.progress(self._done, total, what)
                setup = Setup(
                    original.path, release, mark.key, trained_on, place, request.seed, device, self._step(what)
                )
                section["rows"].append(self._tried(setup, attack, value, role, against))
                section["rows"].sort(key=lambda row: order.index((row["attack"], row["value"])))
            self._done += 1
            self._write()

    def _tried(
        self, setup: Setup, attack: Attack, value: float | str, role: str, against: Reference | None
    ) -> schema.LabRow:
        began = time.monotonic()
        private_folder(setup.scratch)
        try:
            trial = try_attack(setup, attack, value, against)
        except CancelledError:
            raise
        except Exception as error:  # from a library, or a full disk: this row shows it, and the others continue
            trial = Trial(attack.name, value, reason=_unforeseen(error))
        finally:
            shutil.rmtree(setup.scratch, ignore_errors=True)
        row = row_of(trial, attack, role, time.monotonic() - began)
        row["reason"] = self._said(row["reason"], setup.release, setup.original)
        if row["reason"]:
            self._work.log(f"{name_of(row)}: {row['reason']}")
        return row

    def _step(self, what: str) -> Any:
        """Progress of an attack's own steps: shows their names and checks for Stop, while the bar counts attacks."""

        def step(_done: int, _total: int, said: str) -> None:
            self._work.progress(self._done, self._document["trials"], f"{what}: {said}")

        return step

    def _say_taken(self, why: str) -> None:
        """Records in log and report how many rows of another job are reused, or the reason if none is."""
        said = f"{self._taken} reused" if self._taken or not why else f"none reused: {why}"
        self._document["extra"]["Rows of the earlier lab"] = said
        self._work.log(f"Rows of the earlier lab: {said}")

    def _said(self, text: str, *models: Path) -> str:
        """A reason without paths of this machine: they do not help the reader, and scratch is removed by then."""
        for place, name in [(self._work.folder / SCRATCH_NAME, "(scratch)"), *((path, path.name) for path in models)]:
            for written in (place, place.resolve()):
                text = text.replace(str(written), name)
        return text

    def close(self, vault: Vault, request: LabRequest, seconds: float) -> Reported:
        """Signs the results and files them in the case."""
        document = self._document
        self._work.progress(self._done, document["trials"], "Signing and filing the results")
        document["complete"] = True
        document["created_utc"] = datetime.now(UTC).isoformat(timespec="seconds")
        document["extra"]["Seconds"] = f"{seconds:.1f}"
        filing = CaseFiling.begin(vault, request)
        filing.item(document["original"], note="Original")
        if not document["rehearsal"]:
            filing.item(document["marks"][0]["release"], note="Release")
        signed, files = filing.signed(document, NAME, lab_html, self._work.language)
        for name, content in files.items():
            self._work.files.write(name, content)
        outcome, about = word(signed), request.about
        run_id = filing.run(signed, files, about, outcome, request.note)
        return {
            "json": LAB_JSON,
            "html": LAB_HTML,
            "outcome": outcome,
            "said": headline(signed),
            "case_id": filing.case_id,
            "run_id": run_id,
        }

    def _write(self) -> None:
        self._work.files.write(LAB_JSON, to_json(self._document))


def _attack(trial: TrialOf) -> tuple[Attack, float | str]:
    attack, value = ATTACKS.get(trial.attack), trial.value
    if attack is None:
        raise LabError("this attack does not exist", expected=", ".join(ATTACKS), found=trial.attack[:80])
    if not attack.takes(value):
        raise LabError("this strength is not available for this attack", expected=attack.offer, found=str(value)[:80])
    return attack, value


def _text(path: str) -> tuple[tuple[str, str], schema.Text]:
    """The half of a text for measuring and the half for training attacks, and a document's section about it.

    An attacker does not have the text for measuring. Measuring on the training text would give too good results.
    """
    name = Path(path).name if path else BUNDLED
    try:
        if path and Path(path).stat().st_size > MOST_TEXT_BYTES:
            raise LabError("the text is too long", file=path, expected=f"at most {MOST_TEXT_BYTES >> 20} MiB")
        text = Path(path).read_text(encoding="utf-8") if path else default_text()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(
            "the text cannot be read", file=path, found=type(error).__name__, advice="Choose a plain text file in UTF-8"
        ) from error
    if len(text) < LEAST_CHARACTERS:
        raise LabError("the text is too short", file=path, expected=f"at least {LEAST_CHARACTERS} characters")
    half = text.find("\n", len(text) // 2) + 1 or len(text) // 2
    if half == len(text):  # one last line end
        half = len(text) // 2
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return (text[:half], text[half:]), {"name": name, "characters": len(text), "sha256": digest}


def _marks(vault: Vault, request: LabRequest, original: irwm.Checkpoint, device: str) -> list[_Mark]:
    if request.release:
        key = irwm.Key.from_bytes(vault.key_bytes(request.key))
        if key.model_fingerprint != original.fingerprint:
            raise KeyMismatchError(
                "the key was made for another original",
                expected=f"the model with fingerprint {key.model_fingerprint[:16]}…",
                found=f"{original.fingerprint[:16]}…, {original.path}",
                advice="Choose the unmarked model that the release was made from",
            )
        return [_Mark(MANY if key.recipient else SINGLE, key, Path(request.release))]
    found = []
    for mode in MODES:
        if mode not in request.parameters:
            continue
        settings = request.parameters[mode]
        recipient = TRIAL_RECIPIENT if mode == MANY else ""
        key = irwm.generate_key(original, settings, PUBLIC_SECRET, TRIAL_OWNER, recipient, device)
        found.append(_Mark(mode, key, None))
    if not found:
        raise LabError("there is no model to attack", advice="Choose a release, or at least one kind of trial mark")
    return found


def _require_room(folder: Path, models: Sequence[Path], *, trial_copy: bool) -> None:
    """Raises if the disk is too small for one attacked copy at a time, and the copy with the trial mark.

    Some attacks need more space while they run; if that is too much, their rows show it.
    """
    needed = max(_size(model) for model in models) * (2 if trial_copy else 1)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskSpaceError(
            "there is not enough disk space for the attacked copies",
            file=folder,
            expected=f"{needed / 1e9:.2f} GB",
            found=f"{free / 1e9:.2f} GB free",
            advice="Free up some space, or set IRWM_HOME to a folder on a larger disk",
        )


def _require_room_for_outputs(folder: Path, model: irwm.Checkpoint, tokens: int) -> None:
    """Raises if the disk is too small for the text's outputs, which are kept for comparison with attacked copies."""
    # An encoder without a head returns its hidden states.
    heads = [name for name in model.config.get("architectures") or () if not name.endswith("Model") or "Head" in name]
    needed = 4 * tokens * (model.vocab_size if heads else model.hidden_size)
    place = Path(tempfile.gettempdir())
    free = shutil.disk_usage(place).free
    if needed <= IN_MEMORY:
        return
    if place.stat().st_dev == folder.stat().st_dev:
        free -= _size(model.path)
    if free < needed:
        raise DiskSpaceError(
            "there is not enough disk space for the model's outputs on the text",
            file=place,
            expected=f"{needed / 1e9:.2f} GB",
            found=f"{max(0, free) / 1e9:.2f} GB free, excluding the space for an attacked copy",
            advice="Measure fewer tokens, or set TMPDIR to a folder on a larger disk",
        )


def _size(model: Path) -> int:
    files = model.rglob("*") if model.is_dir() else [model]
    return sum(file.stat().st_size for file in files if file.is_file())


def _unforeseen(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "The computer ran out of memory."
    if isinstance(error, OSError) and error.strerror:
        return f"Operating system error: {error.strerror}."
    return f"Error in a library: {type(error).__name__}: {str(error)[:300]}"
