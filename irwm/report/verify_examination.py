"""Compares the models and the key that a reader brings with those of a report, and runs the examination again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from irwm import Checkpoint, Key, open_suspect
from irwm.answers.suspect import GeneratingSuspect, holds_generated, open_generated
from irwm.checkpoint.files import CHUNK, digest_of, open_regular, resolved
from irwm.checkpoint.model import folder_of
from irwm.checkpoint.remote.mirror import joined
from irwm.checkpoint.remote.opening import server_of
from irwm.errors import IrwmError, printable, shown_path
from irwm.release.manifest import MANIFEST_NAME, verify_manifest
from irwm.report import schema, tracing
from irwm.report.checks import (
    CHOICES,
    CONTROLS,
    EXAMINATION,
    KEY,
    ORIGINAL,
    RECIPIENTS,
    SEEN,
    SUSPECT,
    UNKNOWN_TIME,
    Check,
    guarded,
    listed,
    of_document,
    said,
)
from irwm.report.claims import is_plain_name
from irwm.report.controls import WAY, check_controls
from irwm.report.items import FileRecord, ItemDescription, KeyInfo
from irwm.report.reader_inputs import Brought
from irwm.report.reproduction import OF_TEXT, Again, differences, examine_again, not_as_recorded, same, should_be
from irwm.report.structure import plain
from irwm.tracing.recipients import DECOYS, RISK


def opened(
    role: str, item: Checkpoint | str | Path | None, base: Checkpoint | None = None
) -> tuple[Checkpoint | None, Check | None]:
    """The model, or a check that says why it cannot be opened."""
    if item is None or isinstance(item, Checkpoint):
        return item, None
    try:
        return open_suspect(item, base), None
    except IrwmError as error:
        return None, Check(role, None, f"the {role} could not be opened: {said(error)}", asked=True)
    except OSError as error:
        return None, Check(role, None, f"the {role} could not be opened: {error.strerror}", asked=True)


def examined_again(document: schema.Report, brought: Brought) -> list[Check]:
    """The checks of a report that need the reader's inputs: models, keys and dates."""
    checks = [check_choices(document, brought.keys)]
    if brought.seen_utc is not None:
        checks.append(of_document(SEEN, partial(check_seen, document, brought.seen_utc)))
    original, no_original = opened(ORIGINAL, brought.original)
    suspect, no_suspect = _suspect(brought.suspect, original)
    items = {SUSPECT: document["items"]["suspect"], ORIGINAL: document["items"]["original"]}
    for role, item, failed in ((SUSPECT, suspect, no_suspect), (ORIGINAL, original, no_original)):
        if failed is not None:
            checks.append(failed)
        elif item is not None:
            checks.append(guarded(role, partial(check_item, items[role], role, item), asked=True))
    key = _own_key(document, brought.keys)
    if key is not None:
        checks.append(guarded(KEY, partial(check_key, document, key), asked=True))
    if no_original is not None or no_suspect is not None:
        return checks
    if suspect is None or original is None or key is None:
        given = (("the suspect", suspect), ("the original", original), ("the key", key))
        missing = ", ".join(name for name, it in given if it is None)
        return [
            *checks,
            Check(EXAMINATION, None, f"the examination was not run again, because that also requires {missing}"),
        ]
    run = partial(examine_again, document, suspect, original, key, brought.device, brought.keys)
    return [*checks, *_again(document, run, key, brought.keys)]


def _suspect(
    item: Checkpoint | str | Path | None, original: Checkpoint | None
) -> tuple[Checkpoint | GeneratingSuspect | None, Check | None]:
    """The suspect in any form; see `opened`."""
    if item is None or isinstance(item, Checkpoint) or original is None or not holds_generated(item):
        return opened(SUSPECT, item, base=original)
    try:
        return open_generated(item, original), None
    except IrwmError as error:
        return None, Check(SUSPECT, None, f"the suspect could not be opened: {said(error)}", asked=True)


def _own_key(document: schema.Report, keys: Sequence[Key]) -> Key | None:
    """The report's own key, or the first of others, which then fails the check of the key."""
    about = document["key"]["commitment"]
    return next((key for key in keys if key.commitment == about), keys[0] if keys else None)


def _again(document: schema.Report, run: Callable[[], Again], key: Key, keys: Sequence[Key]) -> Iterator[Check]:
    """The examination, its controls and its tracing, run again."""
    found: list[Again] = []

    def examination() -> Check:
        found.append(run())
        return check_examination(found[0])

    check = guarded(EXAMINATION, examination, asked=True)
    yield check
    if not check.ok:
        return
    again = found[0]
    examined, finding = again.examined, again.finding
    assert finding is not None
    if examined is None:
        yield guarded(CONTROLS, lambda: check_decoys(document, again), asked=True)
    else:
        yield guarded(CONTROLS, lambda: check_controls(document, examined, key, finding, again.tracing), asked=True)
    yield guarded(RECIPIENTS, lambda: check_recipients(document, again, keys))


def check_item(recorded: schema.Item, role: str, item: Checkpoint | GeneratingSuspect) -> Check:
    """Whether a model is the one that was examined: every file by its SHA-256, and the embedding by its fingerprint.

    A release has its own list of hashes (SHA256SUMS); a file that no longer matches it is reported too.
    """
    wrong = wrong_in_item(recorded, item)
    if wrong:
        return Check(role, False, f"the {role} that was provided is not the one that was examined: {listed(wrong)}")
    names = sorted(file["name"] for file in recorded["files"])
    parts = {} if recorded["source"] is None else {f["name"]: f["ranges"] for f in recorded["source"]["files"]}
    unhashed = [file["name"] for file in recorded["files"] if not file["sha256"] and file["name"] not in parts]
    if isinstance(item, Checkpoint) and parts and not _hold_embedding(parts, item):
        return Check(
            role, None, "the parts that were read do not contain the embedding, so they do not identify the model"
        )
    if unhashed or not names:
        rest = listed(unhashed) if unhashed else "the model’s files"
        return Check(
            role, None, f"the embedding is the one that was examined, but the report contains no hash of {rest}"
        )
    sizes = sum(not file["sha256"] for file in recorded["other_files"])
    rest = f"; for the files that were not examined ({sizes}), only the size is known" if sizes else ""
    what = "part that was read" if parts else "file"
    return Check(role, True, f"every {what} has the SHA-256 that the report gives: {listed(names)}{rest}")


def _hold_embedding(parts: Mapping[str, Sequence[schema.ReadRange]], item: Checkpoint) -> bool:
    """Whether ranges of files cover the embedding of an item."""
    for part in item.tensors[item.layout.embedding.name].parts:
        ranges = joined((each["start"], each["stop"]) for each in parts.get(shown_path(part.file.name), ()))
        if not any(start <= part.start and part.stop <= stop for start, stop in ranges):
            return False
    return True


def wrong_in_item(recorded: schema.Item, item: Checkpoint | GeneratingSuspect) -> list[str]:
    """The differences between a model and its description in a report, each as a part of a sentence."""
    wrong = []
    shards = {shown_path(shard.name): shard for shard in item.shards}
    described = ItemDescription.of(item)
    # Descriptions always hash the settings, but hash the weights only on request.
    here = {file.name: file for file in described.files}
    for file in recorded["files"]:
        name = file["name"]
        if name not in here:
            wrong.append(f"{printable(name)} is missing")
        elif not file["sha256"]:
            if here[name].bytes != file["bytes"]:
                wrong.append(
                    f"{printable(name)} is {here[name].bytes} bytes long, but the examined file was {file['bytes']}"
                )
        elif (here[name].sha256 or _sha256(shards[name])) != file["sha256"]:
            wrong.append(f"{printable(name)} is not the file that was examined: its SHA-256 differs")
    known = {file["name"] for file in recorded["files"]}
    wrong += [
        f"{printable(name)} was not in the folder when the model was examined"
        for name in here
        if known and name not in known
    ]
    wrong += _wrong_parts(recorded["source"], folder_of(item)) if isinstance(item, Checkpoint) else []
    wrong += _wrong_others(recorded["other_files"], {file.name: file for file in described.other_files})
    if item.fingerprint != recorded["fingerprint"]:
        wrong.append("the embedding is not the one that was examined: its fingerprint differs")
    wrong += _against_own_manifest(item)
    # A different file may have a different form, so the form is only compared for the same files.
    return wrong or _other_form(recorded, described)


def _wrong_parts(source: schema.Source | None, folder: Path) -> Iterator[str]:
    """The parts of files that differ from those that were read on a server, each as a part of a sentence. Files that
    the claims on a source refuse are left out."""
    files = {file["name"]: file for file in (source["files"] if source is not None else ())}
    for name in filter(is_plain_name, files):
        try:
            differ = _differing(folder, files[name])
        except IrwmError as error:
            yield f"{printable(name)}: {said(error)}"
            continue
        if differ:
            yield f"{printable(name)} is not the file that was examined (parts read that differ: {differ})"


def _differing(folder: Path, file: schema.SourceFile) -> int:
    """How many parts of a file differ. Parts beyond twice its size are not read, and count as different."""
    differ = read = 0
    with open_regular(folder / file["name"], resolved(folder)) as (descriptor, state):
        for part in file["ranges"]:
            start, stop = part["start"], min(part["stop"], state.size)
            read += max(0, stop - start)
            if not 0 <= start < stop or read > 2 * state.size + CHUNK:
                differ += 1
                continue
            differ += digest_of(descriptor, folder / file["name"], start, stop) != part["sha256"]
    return differ


def _wrong_others(recorded: Sequence[schema.File], here: Mapping[str, FileRecord]) -> Iterator[str]:
    """The differences of the files that were not examined, each as a part of a sentence."""
    then = {file["name"]: FileRecord(**file) for file in recorded}
    for name in sorted({*then, *here}):
        if name not in here:
            yield f"{printable(name)} is missing"
        elif name not in then:
            yield f"{printable(name)} was not in the folder when the model was examined"
        elif here[name] != (then[name] if then[name].sha256 else replace(here[name], bytes=then[name].bytes)):
            yield f"{printable(name)} is not the file that was in the folder when the model was examined"


def _other_form(recorded: schema.Item, described: ItemDescription) -> list[str]:
    """Where the report describes a model differently from its files, apart from names and hashes."""
    found = plain(asdict(described))
    of_files = {file["name"]: file["bytes"] for file in found["files"]}
    said_of = {file["name"]: file["bytes"] for file in recorded["files"]}
    form = {name: value for name, value in found.items() if name not in ("name", "files", "other_files", "source")}
    wrong = not_as_described(recorded, form)
    return wrong + (
        ["the report gives different sizes for the model’s files"] if recorded["files"] and of_files != said_of else []
    )


def not_as_described(recorded: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    """The values of a model or a key that a report gives differently, each as a part of a sentence."""
    return [
        f"its {name.replace('_', ' ')} is {printable(str(value), 80)}, but the report says "
        f"{printable(str(recorded.get(name)), 80)}"
        for name, value in found.items()
        if not same(recorded.get(name), value)
    ]


def _against_own_manifest(item: Checkpoint | GeneratingSuspect) -> list[str]:
    # Of a suspect on a server it would read every file.
    if server_of(item.path) or not (item.path / MANIFEST_NAME).is_file():
        return []
    try:
        check = verify_manifest(item.path)
    except IrwmError as error:
        return [f"{MANIFEST_NAME}: {said(error)}"]
    return [f"{printable(name)} does not match {MANIFEST_NAME}" for name in (*check.changed, *check.missing)]


def _sha256(path: Path) -> str:
    with open_regular(path) as (descriptor, state):
        return digest_of(descriptor, path, 0, state.size)


def check_key(document: schema.Report, key: Key) -> Check:
    """Whether the key is the one that the report is about, and has the names and settings that the report gives."""
    recorded = document["key"]
    if key.commitment != recorded["commitment"]:
        found, about = f"{key.commitment[:16]}…", printable(recorded["commitment"], 16)
        what = f"this is not the key that the report is about: its commitment is {found}, but the report’s is {about}"
        return Check(KEY, False, what)
    wrong = not_as_described(recorded, plain(asdict(KeyInfo.of(key))))
    wrong += not_as_described(document["parameters"], plain(key.parameters.to_dict()))
    if wrong:
        return Check(KEY, False, f"the report’s description of this key differs from the key itself: {listed(wrong)}")
    said_of = "with the same owner, recipient, scale, original and settings"
    return Check(KEY, True, f"this is the key that the report is about (commitment {key.commitment[:16]}…), {said_of}")


def check_decoys(document: schema.Report, again: Again) -> Check:
    """Whether the one control of generated text is in the report and reads as recorded: recipients without a copy."""
    tests, traced = document["self_tests"], again.tracing
    expected = [] if traced is None or not traced["decoys"] else [tracing.control(traced)]
    wrong = list(differences("self_tests", tests, plain(expected), OF_TEXT)) if len(tests) == len(expected) else []
    if document["error_rates"] is not None:
        return Check(
            CONTROLS,
            False,
            "the report gives error rates for other models, but there are no such rates for generated text",
        )
    if wrong:
        return Check(CONTROLS, False, f"a new run gave different values ({len(wrong)}): {should_be(wrong, 60)}")
    if len(tests) != len(expected):
        return Check(CONTROLS, None, "the controls in the report are not those of this examination")
    if traced is None or len(traced["decoys"]) < DECOYS:
        return Check(CONTROLS, None, f"the report lacks these controls: {tracing.control_name(DECOYS)}")
    if not again.complete:
        return Check(
            CONTROLS, None, "the controls were not run again, because that also requires every recipient’s key"
        )
    return Check(CONTROLS, True, "a new run reproduced the recorded result of every control")


def check_recipients(document: schema.Report, again: Again, keys: Sequence[Key]) -> Check:
    """Whether an examination that was run again traced every recipient.

    There is no tracing if no key has noise, or if the fingerprint was read together with the mark of one key.
    """
    if document["tracing"] is None:
        noisy = any(key.parameters.noise_coordinates for key in keys)
        if noisy and not document["parameters"]["noise_coordinates"]:
            return Check(
                RECIPIENTS, None, "the examination traced no one, although some of the keys provided have noise"
            )
        return Check(RECIPIENTS, True, "there were no recipients to trace")
    recipients = document["tracing"]["recipients"]
    if again.complete:
        return Check(RECIPIENTS, True, f"every recipient was traced again (recipients: {recipients})")
    known = {key.commitment for key in keys}
    traced = sum(row["commitment"] in known for row in document["tracing"]["ranked"])
    said_of = (
        f"only recipients whose keys were provided were traced again ({traced} of {recipients}); "
        "the others are used as recorded"
    )
    return Check(RECIPIENTS, None, said_of)


def check_examination(again: Again) -> Check:
    """Whether an examination that was run again gives every number as recorded."""
    if not again.differences and again.not_there:
        what = (
            "the examination was run again, but the suspect provided lacks the parts that the report lists as "
            f"not read: {again.not_there}"
        )
        return Check(EXAMINATION, None, printable(what, 600), asked=True)
    if not again.differences:
        return Check(EXAMINATION, True, "a new run reproduced every recorded number")
    return Check(EXAMINATION, False, not_as_recorded(again.differences))


def check_choices(document: schema.Report, keys: Sequence[Key]) -> Check:
    """Whether the signer had no choice that allows a search for a better reading.

    The chances are corrected for the number of keys that were tried, and depend on a seed and a way of reading that the
    method fixes. Another seed, or keys that are not mentioned, could give a smaller chance than the true one.

    Args:
        keys: the opened keys that are given.
    """
    tried, reading = document["evaluation"]["keys_tried"], document["reading"]
    here = {"statistic": reading["statistic"], "invariant": reading["invariant"], "seed": document["seed"]}
    chosen = [
        f"{name} = {printable(str(here[name]), 40)} instead of {value}"
        for name, value in WAY.items()
        if here[name] != value
    ]
    found, rates = document["tracing"], document["error_rates"]
    if found is not None and found["risk"] != RISK:
        chosen.append(f"a tracing risk of {found['risk']} instead of {RISK}")
    if rates is not None and rates["decoys"] is not None and rates["decoys"]["seed"] != WAY["seed"]:
        chosen.append(f"seed {printable(str(rates['decoys']['seed']), 40)} for the decoys instead of {WAY['seed']}")
    if chosen:
        return Check(
            CHOICES, None, f"the signer used {listed(chosen)}, and may have chosen the best of several results"
        )
    given = len({key.commitment for key in keys if key.model_fingerprint == document["key"]["model_fingerprint"]})
    if given != tried:
        return Check(
            CHOICES,
            None,
            f"keys tried according to the report: {tried}; keys for this original that were provided: {given}",
        )
    settings = "the seed and the reading settings are those that the method prescribes"
    number = "the one key provided" if tried == 1 else f"all {tried} keys provided"
    return Check(CHOICES, True, f"{settings}, and the probabilities are corrected for {number}")


def check_seen(document: schema.Report, seen_utc: str) -> Check:
    """Whether the report and its reader have known the suspect since the same time.

    Args:
        seen_utc: ISO 8601 with its zone; "unknown" where the reader does not know.
    """
    recorded = document["standing"]["suspect_seen_utc"]
    if seen_utc == UNKNOWN_TIME:
        if recorded is None:
            return Check(
                SEEN, True, "neither you nor the report gives a date from which the suspect is known to have existed"
            )
        return Check(
            SEEN, None, f"the report gives {printable(str(recorded), 40)}, but nothing confirms this date", asked=True
        )
    try:
        known = datetime.fromisoformat(seen_utc)
        known = known if known.tzinfo is not None else known.replace(tzinfo=UTC)
        same_time = recorded is not None and datetime.fromisoformat(recorded) == known
    except (TypeError, ValueError) as error:
        return Check(SEEN, None, f"this is not a valid time: {printable(str(error), 100)}", asked=True)
    if same_time:
        return Check(SEEN, True, f"the suspect has been known since {recorded}, according to you")
    you, date = known.isoformat(), printable(str(recorded), 40)
    undated = f"according to you, the suspect has been known since {you}, but the report gives no date"
    differs = f"according to you, the suspect has been known since {you}, but the report says {date}"
    return Check(SEEN, False, undated if recorded is None else differs)
