"""Watch: screens the models of hubs, buckets and folders that were not screened before.

Each result is written when it is there, so Stop or a kill loses none, and another pass continues where this one ended.
A version of a suspect is screened once, and again only if the originals or, for one that resembles an original, the
keys have changed since. A suspect that could not be screened is tried again, each time later.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from irwm.checkpoint.candidates import Candidates, SweepFolderError, find_checkpoints, several_in
from irwm.checkpoint.files import listed
from irwm.checkpoint.remote.address import is_address, parse
from irwm.checkpoint.remote.hosted import hosted
from irwm.checkpoint.remote.mirror import bytes_read, discard
from irwm.checkpoint.remote.opening import local_path
from irwm.errors import CancelledError, IrwmError, ServerUnavailableError, path_from, printable, shown_path
from irwm.evidence.lineage import DERIVED
from irwm.report.sweep import keys_digest
from storage.errors import StorageError
from storage.job_files import JobFiles
from storage.vault import Vault
from ui.services.device import device_of
from ui.services.examining import Keys
from ui.services.known_originals import KnownOriginals
from ui.services.originals import Candidate, candidates
from ui.services.outcomes import FOUND, INCONCLUSIVE, NOT_FOUND, error_parts
from ui.services.request import WatchRequest
from ui.services.results import NO_MATCH, Screened, SourceRow, Watched, WatchRow
from ui.services.screening import OutOfTimeError, Screen, deadline
from ui.services.stored_results import (
    FAILED,
    WATCH_ROWS,
    finding_of,
    jobs_of,
    rank,
    strength,
    versions_of_models,
    watch_rows,
    watches,
)
from ui.services.sweep import stamp_of
from ui.services.work import Work

# Findings in the result; suspects that a folder may hold; checkpoints of one repository that are screened.
MOST_FINDINGS, MOST_OF_A_FOLDER, MOST_PARTS = 200, 20_000, 50
# A failed suspect is tried again after so many hours, after twice as many, and so on up to a week.
FIRST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=7)
# Suspects in a row that end their process, after which a process is tried without one.
_MOST_ENDED = 3
# Suspects in a row for which a server is unavailable, after which its other suspects are left for the next pass.
_MOST_REFUSED = 3
_SECONDS_BETWEEN_CHECKS = 0.5
# Earlier results that are carried over in one piece.
_IN_A_PIECE = 500
# A process takes seconds to start; it is worth that for so many suspects.
_FOR_EACH = 4
Parts = dict[str, str | None]
# A result, the parts of an error, or both.
Looked = tuple[Screened | None, Parts | None]


@dataclass(frozen=True, slots=True)
class Listed:
    """A suspect as its source lists it.

    Attributes:
        name: in the source.
        address: the path or address to open.
        version: changes with the suspect; "" if the server does not say.
    """

    source: str
    name: str
    address: str
    version: str


def run(request: WatchRequest, vault: Vault, work: Work) -> Watched:
    """One pass over all sources.

    Raises:
        IrwmError: no key of any original can be tried.
    """
    device = device_of(request.device)
    if not request.originals:
        request = replace(request, originals=tuple(map(shown_path, KnownOriginals.of(vault).here)))
    found, left_out = candidates(request, vault, work)
    own, others = _earlier(request, vault, work.files.job)
    log = Log.begun(work.files, own, others, _Compared.of(found))
    sources: list[SourceRow] = []
    todo: list[Listed] = []
    for number, source in enumerate(request.sources):
        work.progress(0, 0, f"Listing {printable(source, 200)}")
        # No source may take the places of the others.
        share = -(-(request.most - len(todo)) // (len(request.sources) - number))
        new, row = _new_of(source, log, share, todo)
        todo += new
        sources.append(row)
    counts: Counter[str] = Counter()
    prepared = (tuple(_plain(each) for each in found), request, device, work.folder, secrets.token_bytes(16))
    pool = _Pool(work, prepared, device, request.scheduler)
    left: Counter[str] = Counter()
    for suspect, looked in pool.of(todo):
        if looked is None:
            left[suspect.source] += 1
            continue
        added = log.add(suspect, looked)
        counts[added["result"]["word"] if added["result"] and not added["error"] else FAILED] += 1
    for row in sources:
        row["left"] += left[row["source"]]
    models = versions_of_models(log.rows())
    findings = sorted(filter(None, map(finding_of, models)), key=strength)
    return {
        "sources": sources,
        "counts": dict(counts),
        "known": len(models),
        "failed": sum(versions[-1]["error"] is not None for versions in models),
        "keys": found[0].keys.tried,
        "originals": len(found),
        "originals_left_out": [row["name"] for row in left_out],
        "rows": findings[:MOST_FINDINGS],
        "file": WATCH_ROWS,
    }


@dataclass(frozen=True, slots=True)
class _Compared:
    """What suspects are compared with: digests of the originals and of the keys, and the originals' paths."""

    originals: str
    keys: str
    paths: frozenset[str]

    @classmethod
    def of(cls, found: Sequence[Candidate]) -> _Compared:
        fingerprints = "".join(sorted({each.original.fingerprint for each in found}))
        tried = [key.commitment for each in found for key in each.keys.keys]
        paths = frozenset(shown_path(each.original.path) for each in found)
        return cls(hashlib.sha256(fingerprints.encode("ascii")).hexdigest(), keys_digest(tried), paths)


class Log:
    """The results so far, which are always on the disk; the latest one of each version of a suspect."""

    def __init__(self, files: JobFiles, compared: _Compared, now: datetime | None = None) -> None:
        self._files, self._compared = files, compared
        self._now = now
        self._rows: dict[tuple[str, str], WatchRow] = {}
        self._elsewhere: dict[tuple[str, str], WatchRow] = {}

    @classmethod
    def begun(cls, files: JobFiles, own: Iterable[WatchRow], others: Iterable[WatchRow], compared: _Compared) -> Log:
        """With the results of earlier passes and of other watches of these sources, those of a version from the latest.

        Args:
            own, others: results of other watches, for these sources and for others.
        """
        log = cls(files, compared)
        for row in watch_rows(files):
            log._keep(row)
        log._elsewhere = {(row["address"], row["version"]): row for row in sorted(others, key=lambda row: row["utc"])}
        new = [row for row in own if log._is_new(row)]
        for row in new:
            log._keep(row)
        for start in range(0, len(new), _IN_A_PIECE):  # a piece that is cut short is lost as a whole
            files.append(WATCH_ROWS, "".join(map(_line, new[start : start + _IN_A_PIECE])))
        return log

    def rows(self) -> list[WatchRow]:
        """The latest result of each version of a suspect, in the order in which they were first seen."""
        return list(self._rows.values())

    def add(self, suspect: Listed, looked: Looked) -> WatchRow:
        """Keeps a result, or the parts of an error, or both. An error replaces no result of the same version."""
        result, error = looked
        before = self._rows.get((suspect.address, suspect.version))
        known = before["result"] if before else None
        compared = {"compared": self._compared.originals, "keys": self._compared.keys}
        if before and known and (result is None or self._hides(known, looked)):
            compared = compared if result else {"compared": before["compared"], "keys": before["keys"]}
            result = known
        row: WatchRow = {
            "source": suspect.source, "name": suspect.name, "address": suspect.address, "version": suspect.version,
            "utc": self._time().isoformat(timespec="seconds"), "compared": compared["compared"],
            "keys": compared["keys"], "tries": before["tries"] + 1 if before and before["error"] and error else 1,
            "result": result, "error": error,
        }  # fmt: skip
        self._files.append(WATCH_ROWS, _line(row))
        self._keep(row)
        return row

    def take(self, suspect: Listed) -> None:
        """Takes the latest result that another source has for this version, if this source has none yet."""
        place = suspect.address, suspect.version
        other = self._elsewhere.get(place) if suspect.version and place not in self._rows else None
        if other is not None and other["error"] is None and not self._is_old(other):
            row: WatchRow = {**other, "source": suspect.source, "name": suspect.name}
            self._files.append(WATCH_ROWS, _line(row))
            self._keep(row)

    def is_due(self, suspect: Listed) -> bool:
        """Whether to screen a suspect."""
        row = self._rows.get((suspect.address, suspect.version))
        if row is None or not suspect.version:
            return True
        if row["error"] is not None:
            waited = self._time() - datetime.fromisoformat(row["utc"])
            return waited >= min(LONGEST_WAIT, FIRST_WAIT * (1 << min(row["tries"] - 1, 20)))
        return self._is_old(row)

    def _is_old(self, row: WatchRow) -> bool:
        """Whether a result was made with other originals, or with other keys that would be tried."""
        other_keys = row["keys"] != self._compared.keys and row["result"] and row["result"]["word"] != NO_MATCH
        return row["compared"] != self._compared.originals or bool(other_keys)

    def _hides(self, known: Screened, looked: Looked) -> bool:
        """Whether a new result says less than the known one, and not because the same keys were tried again: it lacks
        the original, a part of it failed, or other rows were sampled by chance."""
        result, error = looked
        assert result is not None
        if error is not None or result["word"] == INCONCLUSIVE:
            again = False
        elif known["log10_risk"] is None:  # no key was tried
            again = known["original"] in self._compared.paths
        else:
            again = result["word"] == NOT_FOUND and result["original"] == known["original"]
        return rank(result) > rank(known) and not again

    def _is_new(self, row: WatchRow) -> bool:
        known = self._rows.get((row["address"], row["version"]))
        return known is None or known["utc"] < row["utc"]

    def _keep(self, row: WatchRow) -> None:
        self._rows[row["address"], row["version"]] = row

    def _time(self) -> datetime:
        return self._now or datetime.now(UTC)


def _line(row: WatchRow) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _earlier(request: WatchRequest, vault: Vault, own: str) -> tuple[list[WatchRow], list[WatchRow]]:
    """The results of other watches for these sources, and for other sources: for each source those of the newest watch
    that has any, also of one that was killed. Two watches run at the same time on two devices only; each may then
    screen what the other has screened."""
    jobs, seen = jobs_of(vault), set[str]()
    ours: list[WatchRow] = []
    others: list[WatchRow] = []
    for job in watches(jobs):
        if job.id == own or seen.issuperset(job.request.get("sources", ())):
            continue
        with contextlib.suppress(StorageError):  # its results were removed
            rows = [row for row in watch_rows(jobs.files(job.id)) if row["source"] not in seen]
            for row in rows:
                (ours if row["source"] in request.sources else others).append(row)
            seen |= {row["source"] for row in rows}
    return ours, others


def _new_of(source: str, log: Log, most: int, others: Sequence[Listed]) -> tuple[list[Listed], SourceRow]:
    """The suspects of a source to screen, at most so many and none of the others, and its row."""
    new: list[Listed] = []
    taken = {(each.address, each.version) for each in others}
    row: SourceRow = {"source": source, "listed": 0, "left": 0, "error": None}
    try:
        for suspect in _listed(source):
            row["listed"] += 1
            log.take(suspect)
            if (suspect.address, suspect.version) not in taken and log.is_due(suspect):
                if len(new) < most:
                    new.append(suspect)
                else:
                    row["left"] += 1
        if not row["listed"]:
            raise IrwmError("this source has no models", file=source, advice="Check its spelling")
    except IrwmError as error:  # what was listed before it is screened
        row["error"] = error_parts(error)
    return new, row


def _listed(source: str) -> Iterator[Listed]:
    if is_address(source):
        for each in hosted(source):
            yield Listed(source, each.name, each.address, each.version)
        return
    found = find_checkpoints(path_from(source), MOST_OF_A_FOLDER)
    for path in found.paths:
        version = hashlib.sha256(stamp_of(path, found.files[path]).encode("utf-8", "surrogatepass")).hexdigest()[:40]
        yield Listed(source, found.name_of(path), shown_path(path), version)
    _require_complete(found)


def _require_complete(found: Candidates) -> None:
    """Rejects a folder of which parts were not searched, after the rest of it was.

    Raises:
        SweepFolderError
    """
    missed = [*found.refused, *found.too_deep, *(["files beyond the search limit"] if found.cut else [])]
    if missed:
        raise SweepFolderError(
            "not all of this folder was searched",
            file=found.folder,
            found=listed(missed),
            advice="Watch these folders separately",
        )


# In the processes that screen suspects


def _plain(candidate: Candidate) -> tuple[Path, Keys]:
    """What a process needs to open a candidate again."""
    return candidate.original.path, replace(candidate.keys, damaged=(), made={})


class _Here:
    """The state of a process that screens suspects. A worker of a cluster may have several threads."""

    screen: Screen | None = None
    lock = threading.Lock()


def _forget() -> None:
    _Here.screen = None


def _is_ready() -> bool:
    return _Here.screen is not None


def _prepare(found: Sequence[tuple[Path, Keys]], request: WatchRequest, device: str, folder: Path, draw: bytes) -> None:
    import irwm

    opened = [Candidate(irwm.open_checkpoint(path), keys) for path, keys in found]
    _Here.screen = Screen(opened, request, device, folder, draw)


def _screened(address: str) -> Looked:
    """The strongest result for a suspect, the parts of an error, or both if a part of it failed."""
    with _Here.lock:
        assert _Here.screen is not None
        try:
            return _screened_with(_Here.screen, address)
        except Exception as error:
            return None, _parts_of(error, address)


def _screened_with(screen: Screen, address: str) -> Looked:
    until, kept = time.monotonic() + screen.seconds, False
    with deadline(until):
        path = local_path(address) if is_address(address) else path_from(address)
    made_here = is_address(address) and bytes_read(path) == 0
    results: list[Screened] = []
    errors: list[Parts] = []
    try:
        with deadline(until):
            parts = _parts(path, errors)
        for part, name in parts:
            try:
                with deadline(until):
                    result, error = screen.screened(part)
                results.append({**result, "part": name})
                errors += [error] if error else []
            except Exception as failed:
                errors.append(_parts_of(failed, shown_path(part)))
                if isinstance(failed, OutOfTimeError):
                    break
        strongest = min(results, key=rank, default=None)
        kept = strongest is not None and (strongest["word"] == FOUND or strongest["lineage"] == DERIVED)
    finally:
        if made_here and not kept:  # a watch of a thousand models would fill the disk
            discard(path)
    if strongest is not None:
        read = sum(each["bytes"] for each in results)
        strongest |= {"bytes": read, "kept": shown_path(path) if kept and is_address(address) else ""}
    return strongest, errors[0] if errors else None


def _parts(path: Path, errors: list[Parts]) -> list[tuple[Path, str]]:
    """The checkpoints of a suspect and their names in it; what is left out is added to the errors."""
    several = several_in(path)
    if several is None:
        return [(path, "")]
    try:
        _require_complete(several)
        if len(several.paths) > MOST_PARTS:
            raise IrwmError(
                "there are too many checkpoints in one place, so only the first were screened",
                file=path,
                expected=f"at most {MOST_PARTS}",
                found=f"{len(several.paths)}",
                advice="Watch the folders in it separately",
            )
    except IrwmError as error:
        errors.append(error_parts(error))
    return [(part, several.name_of(part)) for part in several.paths[:MOST_PARTS]]


def _parts_of(error: Exception, address: str) -> Parts:
    if isinstance(error, IrwmError):
        return error_parts(error)
    if isinstance(error, OSError):
        found = error.strerror
        return error_parts(IrwmError("the suspect cannot be read", file=address, found=found, advice="Try again later"))
    advice = "Investigate it alone; the usual cause is too little memory"
    return error_parts(
        IrwmError("an unexpected error ended the screening", file=address, found=type(error).__name__, advice=advice)
    )


@dataclass(frozen=True, slots=True)
class _Pool:
    """Screens suspects in several processes.

    Attributes:
        prepared: the arguments of `_prepare`.
        scheduler: address of a Dask cluster; "" for processes of this computer.
    """

    work: Work
    prepared: tuple[object, ...]
    device: str
    scheduler: str

    def of(self, suspects: Sequence[Listed]) -> Iterator[tuple[Listed, Looked | None]]:
        """The results in the order in which they are ready; None for suspects that were left out because their server
        is unavailable.

        Raises:
            CancelledError: Stop was pressed.
            IrwmError: several processes in a row ended, and one without a suspect does too.
        """
        left, total, ended = dict.fromkeys(suspects), len(suspects), 0
        trouble: Counter[str] = Counter()
        while left:
            suspicious: list[Listed] = []
            workers = min(os.cpu_count() or 1, -(-len(left) // _FOR_EACH)) if self.device == "cpu" else 1
            for suspect, result in self._together(list(left), workers, total, trouble):
                if result is None:
                    suspicious.append(suspect)
                else:
                    del left[suspect]
                    yield suspect, result
            for suspect in [each for each in left if each not in suspicious and _is_down(each, trouble)]:
                del left[suspect]
                yield suspect, None
            for suspect in suspicious:  # one of them ended the process of all
                ((_, result),) = self._together([suspect], 1, total, Counter())
                del left[suspect]
                ended = ended + 1 if result is None else 0
                yield suspect, (None, error_parts(_ended())) if result is None else result
                if ended >= _MOST_ENDED:
                    ended = 0
                    self._require_usable()

    def _require_usable(self) -> None:
        """Raises an error if a process ends before it has a suspect, for example because the originals need too much
        memory."""
        with self.work.pool(_prepare, self.prepared, 1, self.scheduler, _forget) as pool:
            try:
                pool.executor.submit(_is_ready).result()
            except pool.ended:
                raise _ended() from None

    def _together(
        self, suspects: Sequence[Listed], workers: int, total: int, trouble: Counter[str]
    ) -> Iterator[tuple[Listed, Looked | None]]:
        """Results until all are there, or a process ends; None for those that were being screened then.

        Args:
            trouble: for each server, how many suspects in a row it was unavailable for. It is updated, and suspects of
                a server that is down are not begun.
        """
        rest, running = deque(suspects), dict[Future[Looked], Listed]()
        with self.work.pool(_prepare, self.prepared, workers, self.scheduler, _forget) as pool:
            try:
                while rest or running:
                    while rest and len(running) < 2 * pool.size:
                        suspect = rest.popleft()
                        if not _is_down(suspect, trouble):
                            running[pool.executor.submit(_screened, suspect.address)] = suspect
                    if not running:
                        return
                    shown = printable(next(iter(running.values())).name, 80)
                    self.work.progress(total - len(rest) - len(running), total, f"Screening {shown}")
                    for future in wait(running, _SECONDS_BETWEEN_CHECKS, FIRST_COMPLETED).done:
                        result = future.result()
                        suspect = running.pop(future)
                        refused = result[1] is not None and result[1]["type"] == ServerUnavailableError.__name__
                        trouble[_server(suspect)] = trouble[_server(suspect)] + 1 if refused else 0
                        yield suspect, result
            except pool.ended:
                if self.work.cancelled():
                    raise CancelledError("stopped on request") from None
                for suspect in running.values():
                    yield suspect, None


def _is_down(suspect: Listed, trouble: Counter[str]) -> bool:
    """Whether to leave a suspect for the next pass. One suspect that its server does not deliver hides no others."""
    return trouble[_server(suspect)] >= _MOST_REFUSED


def _server(suspect: Listed) -> str:
    """The server that a suspect is on; "" for this machine."""
    if not is_address(suspect.address):
        return ""
    address = parse(suspect.address)
    return f"{address.scheme}://{address.host}"


def _ended() -> IrwmError:
    return IrwmError(
        "the process that screened this suspect ended without a result",
        advice="The usual cause is too little memory. Close other programs, then start the watch again",
    )
