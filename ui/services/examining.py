"""One suspect and many keys: tracing first, then the rank rule for the most likely keys, then the controls."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import irwm
from irwm.answers import Fits
from irwm.answers.suspect import GeneratingSuspect, trace_generated, unread_mark
from irwm.checkpoint.files import announce, listed
from irwm.checkpoint.remote.opening import server_of
from irwm.errors import IrwmError, KeyMismatchError, shown_path
from irwm.evidence.decoys import NUMBER
from irwm.evidence.decoys import decoys as rank_decoys
from irwm.evidence.detection import detect_marks, judge_opened
from irwm.evidence.finding import FORMS, FOUND, INCONCLUSIVE, NOT_FOUND
from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED
from irwm.evidence.verdict import log10_risk
from irwm.keys.check_original import check_original
from irwm.keys.neurons import NeuronsKey
from irwm.report import schema, wording
from irwm.report.answer import MADE
from irwm.report.controls import WAY, Controls
from irwm.report.document import examination, finding_document
from irwm.report.error_rates import ErrorRates
from irwm.report.items import ItemDescription, KeyInfo, SelfTest, installed_versions
from irwm.report.stamps import StampedCommitment
from irwm.report.structure import plain
from irwm.report.tracing import SHOWN, Traced, mark_of
from irwm.report.tracing import control as tracing_control
from irwm.tracing import Tracing, trace_each
from irwm.tracing.recipients import DECOYS, RISK
from storage.files import private_folder
from storage.jobs import SCRATCH_NAME
from storage.records import RecordName, TimestampRecord
from storage.vault import Vault
from ui.services.outcomes import whose
from ui.services.request import ExamineRequest
from ui.services.results import KeyRow
from ui.services.work import Reports, Work

# Most traced keys that are also read by the rank rule: those named, and the next best.
MOST_READ = 64
# Positions of other keys whose readings a page can draw; about three megabytes of JSON.
MOST_POSITIONS = 4000
# With more keys than this, those without a signal are dismissed early, and have no figures on the page.
MOST_UNSCREENED = 20
# The strongest first.
VERDICTS = (FOUND, INCONCLUSIVE, NOT_FOUND)
LINEAGES = (DERIVED, CANNOT_TELL, NOT_DERIVED)
# The sections of a document that are about one key; a page draws figures from them.
OF_ONE_KEY = ("parameters", "reading", "paper", "odds")
# Bytes of a suspect on a server that are read between two reports of progress.
FROM_SERVER_BYTES = 64 << 20
# An embedding in float32 of twice the width has four times the bytes of one in bfloat16.
MOST_TIMES = 8
ALIGNING = "Aligning the suspect and ranking its marked rows"
# Files received from others are hashed up to this multiple of the original's bytes, and up to this number of bytes in
# any case. A sparse file may claim terabytes at no cost to its sender; a copy in float64 has four times the bytes.
HASHED_SHARE, HASHED_BYTES = 16, 64 << 30


Suspect = irwm.Checkpoint | GeneratingSuspect


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that an investigation tries.

    Attributes:
        ids: in the vault.
        keys: the keys themselves.
        damaged: records that could not be read and were left out.
        held: number of keys in the vault with this original's embedding, whether or not they are tried; `elsewhere` is
            added to it.
        elsewhere: number of keys of other originals that are tried on the same suspect; part of the correction.
        misfits: the keys that were left out because they were made for another original with the same embedding, such
            as a fine-tune that did not change it.
        made: by identifier, when the key was made by the clock of the vault's computer, ISO 8601; none if not known.
    """

    ids: tuple[str, ...]
    keys: tuple[irwm.Key, ...] = field(repr=False)
    damaged: tuple[RecordName, ...]
    held: int
    misfits: tuple[str, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    elsewhere: int = 0

    @property
    def tried(self) -> int:
        """The number of keys that every verdict is corrected for."""
        return len(self.keys) + self.elsewhere

    @classmethod
    def chosen(cls, vault: Vault, request: ExamineRequest, original: irwm.Checkpoint, work: Work) -> Keys:
        """The keys of a request, read from the vault when the work starts.

        Raises:
            KeyMismatchError: none of them was made for this original.
            IrwmError: no key is left.
        """
        keys, problem = cls.fitting(vault, request, original, work)
        if problem is not None:
            raise problem
        return keys

    @classmethod
    def fitting(
        cls, vault: Vault, request: ExamineRequest, original: irwm.Checkpoint, work: Work
    ) -> tuple[Keys, IrwmError | None]:
        """As `chosen`, with the error if no key is left."""
        work.progress(0, 0, "Reading the keys from the vault")
        fingerprint, misfit = original.fingerprint, _Misfits(original)
        listed, matching = request.keys, request.matching
        damaged = vault.find_keys(limit=1).damaged
        there = vault.key_ids(model_fingerprint=fingerprint)
        if listed is not None:
            wanted: Iterable[str] = dict.fromkeys(listed)  # a key listed twice is tried, and corrected for, once
        else:
            wanted = vault.key_ids(matching, model_fingerprint=fingerprint) if matching else there
        lost: list[RecordName] = []
        ids, keys, misfits = [], [], []
        for id, data in vault.keys_bytes(wanted, damaged=lost):
            key = irwm.Key.from_bytes(data)
            wrong_kind = request.noisy and not key.parameters.noise_coordinates
            if wrong_kind:
                continue
            if listed is not None or not misfit(key):
                ids.append(id)
                keys.append(key)
            else:
                misfits.append(id)
        problem: IrwmError | None = None
        if not keys:
            problem = misfit.error or IrwmError(
                "no key was chosen" if not lost else "none of the chosen keys can be read",
                found=f"damaged records: {len(lost)}" if lost else None,
                advice="Choose at least one key that was made for this original",
            )
        # Keys of another original may have been requested by their ids.
        held = len({*there, *ids})
        made = {record.id: record.created for record in vault.key_records(ids)}
        left_out = tuple(dict.fromkeys((*damaged, *lost)))
        return cls(tuple(ids), tuple(keys), left_out, held, tuple(misfits), made), problem

    @property
    def places(self) -> int:
        """Noise coordinates to look up for all keys: the work of a tracing."""
        return sum(key.vocab_size * key.parameters.noise_coordinates for key in self.keys)


class _Misfits:
    """Counts keys made for another original; of keys with the same layer 0, head and neurons, only one is checked."""

    def __init__(self, original: irwm.Checkpoint) -> None:
        self._original = original
        self._known: dict[tuple[str, str, NeuronsKey | None], KeyMismatchError | None] = {}
        self.count = 0
        self.error: KeyMismatchError | None = None

    def __call__(self, key: irwm.Key) -> bool:
        """Whether this key is one of them."""
        alike = key.layer0_digest, key.head.model_fingerprint if key.head is not None else "", key.neurons
        if alike not in self._known:
            self._known[alike] = None
            try:
                check_original(key, self._original)
            except KeyMismatchError as error:
                self._known[alike] = self.error = error
        self.count += self._known[alike] is not None
        return self._known[alike] is not None


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """The results for one suspect.

    Attributes:
        keys: the keys tried.
        tracing: None if no key has noise.
        traced: place among `keys` of each of the tracing's traces.
        findings: of the rank rule, by place among `keys`.
        best: the key that the report is about.
        supporting: other readings of that key.
        controls: the self-tests.
        error_rates: readings of decoy keys and the neutral model; None until they are read.
    """

    keys: Keys
    tracing: Tracing | None
    traced: tuple[int, ...]
    findings: Mapping[int, irwm.Finding]
    best: int
    supporting: tuple[irwm.Finding, ...]
    controls: tuple[SelfTest, ...]
    error_rates: ErrorRates | None

    @property
    def said(self) -> tuple[str, str]:
        """The verdict in one word, "found" also if a recipient is named, and its reason."""
        finding = self.findings[self.best]
        if self.tracing is not None and self.tracing.named:
            return "found", self.tracing.reason
        return finding.verdict, finding.reason

    @property
    def strength(self) -> tuple[int, float, int, float]:
        """A sort key for results on the same suspect, the strongest first; "inconclusive" outweighs "not found"."""
        lineage = self.findings[self.best].lineage
        similarity = 0.0 if math.isnan(lineage.similarity) else lineage.similarity
        return VERDICTS.index(self.said[0]), self.log10_risk, LINEAGES.index(lineage.status), -similarity

    @property
    def log10_risk(self) -> float:
        """log10 of the corrected probability of the strongest finding by chance: a named recipient's or the mark's."""
        finding = self.findings[self.best]
        named = [trace.log10_risk for trace in self._traces().values() if trace.named]
        return min([*named, log10_risk(finding.reading, finding.comparisons)])

    @property
    def people(self) -> list[str]:
        """The recipients that were named, or else the recipient or the owner of the mark that was found."""
        return whose(self.said[0], self.rows())

    def document(
        self,
        suspect: Suspect,
        original: irwm.Checkpoint,
        case: Mapping[str, str],
        extra: Mapping[str, str],
        work: Work,
        stamp_of: Callable[[str], TimestampRecord | None] | None = None,
        seen_of: Callable[[Mapping[str, str]], str] | None = None,
        hashed: bool = True,
    ) -> schema.Report:
        """The results as a report's document; the items are hashed for it.

        Args:
            hashed: False omits the items' hashes, for findings that are shown before the report.
            stamp_of: maps a key's id in the vault to the timestamp of its commitment; None if not looked up.
            seen_of: maps the suspect's weight files and their SHA-256 to the time since when it is known to exist, ISO
                8601 with its zone, or "" if not known. None if not looked up.
        """
        by_text = isinstance(suspect, GeneratingSuspect)
        traced = None
        if self.tracing is not None:
            marks = {i: self.findings[place] for i, place in enumerate(self.traced) if place in self.findings}
            keys = [self.keys.keys[place] for place in self.traced]
            traced = Traced(self.tracing, keys, {} if by_text else marks)
        said = {} if by_text else {"Keys read by the rank rule": str(len(self.findings))}
        if dismissed := sum(finding.screened for finding in self.findings.values()):
            said["Keys dismissed in the screening"] = str(dismissed)
        stamp = time_stamp(stamp_of(self.keys.ids[self.best])) if stamp_of is not None else None
        if self.keys.damaged:
            said["Damaged vault records (left out)"] = str(len(self.keys.damaged))
        if self.keys.elsewhere:
            said |= {"Keys of other originals, which the verdict is corrected for too": str(self.keys.elsewhere)}
        if self.keys.misfits:
            what = "Keys made for another original with the same embedding; to try them, choose that original"
            said[what] = str(len(self.keys.misfits))
        received = hashes(suspect, work, original) if hashed else {}
        seen = seen_of(received) if seen_of is not None else ""
        made = self.keys.made.get(self.keys.ids[self.best])
        if made:
            case = {**case, MADE: wording.day(made)}
        return finding_document(
            self.findings[self.best],
            suspect=described(suspect, received) if hashed else ItemDescription.of(suspect),
            original=ItemDescription.of(original, hashes=hashes(original, work) if hashed else {}),
            key_info=KeyInfo.of(self.keys.keys[self.best]),
            case=case,
            created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            tool_versions=installed_versions(),
            extra={**extra, **said},
            self_tests=self.controls,
            disclose_rows=not by_text,  # no mark was read, so nobody needs its rows
            traced=traced,
            supporting=self.supporting,
            time_stamp=stamp,
            suspect_seen_utc=seen or None,
            error_rates=self.error_rates,
            keys_held=self.keys.held,
        )

    def others(self) -> list[schema.OtherKey]:
        """The readings of all keys but the report's own, most likely first, so that a page can draw their figures: the
        parts of a document that are about one key, up to `MOST_POSITIONS` in total."""
        found: list[schema.OtherKey] = []
        left = MOST_POSITIONS
        for place in self._order():
            finding = self.findings.get(place)
            if finding is None or finding.screened or place == self.best:
                continue
            left -= finding.parameters.positions
            if left < 0:
                break
            key = self.keys.keys[place]
            parts: Mapping[str, object] = examination(finding, finding.marked_rows.tolist())
            info = {"commitment": key.commitment, **asdict(KeyInfo.of(key))}
            found.append(plain({"key": info} | {name: parts[name] for name in OF_ONE_KEY}))
        return found

    def rows(self) -> list[KeyRow]:
        """A row per key for a page, most likely first; with very many keys, only the first ones and those named."""
        traces, order = self._traces(), self._order()
        named = sum(trace.named for trace in traces.values())
        return [plain(self._row(place, traces.get(place))) for place in order[: max(SHOWN, named, len(self.findings))]]

    def _traces(self) -> dict[int, irwm.Trace]:
        return dict(zip(self.traced, self.tracing.traces, strict=True)) if self.tracing is not None else {}

    def _order(self) -> list[int]:
        """Places of the keys: named keys first, then the most likely."""
        traces = self._traces()

        def likeliest(place: int) -> tuple[bool, bool, float, float]:
            trace, finding = traces.get(place), self.findings.get(place)
            z = trace.z if trace is not None and not math.isnan(trace.z) else -math.inf
            risk = log10_risk(finding.reading, finding.comparisons) if finding is not None else 0.0
            return not (trace and trace.named), finding is None or finding.verdict != "found", -z, risk

        return sorted(range(len(self.keys.keys)), key=likeliest)

    def _row(self, place: int, trace: irwm.Trace | None) -> dict[str, object]:
        key, finding = self.keys.keys[place], self.findings.get(place)
        row: dict[str, object] = {
            "key_id": self.keys.ids[place],
            "owner": key.owner,
            "recipient": key.recipient,
            "commitment": key.commitment,
            "positions": key.parameters.positions,
            "verdict": "not read",
            "reason": "",
            "count": 0,
            "present": 0,
            "log10_p": 0.0,
            "log10_risk": 0.0,
            "lineage": self.findings[self.best].lineage.status,
            "named": bool(trace and trace.named),
        }
        if finding is not None:
            row |= mark_of(finding) | {"reason": finding.reason, "log10_p": finding.log10_p}
        if trace is not None:
            row |= {
                "z": trace.z,
                "trace_log10_p": trace.log10_p,
                "trace_log10_risk": trace.log10_risk,
                "share": trace.share,
                "rows": trace.rows,
            }
        return row


class Examiner:
    """Examines one suspect after the other; data of the original is read and computed once for all.

    Args:
        original: the unmarked original.
        keys: tried on every suspect.
        request: the additional reading and the number of decoys.
        executor: runs the scoring of a tracing.
        folder: of the work; its scratch folder holds the neutral model until the work ends.
    """

    def __init__(
        self,
        original: irwm.Checkpoint,
        keys: Keys,
        request: ExamineRequest,
        executor: Executor | None,
        folder: Path,
    ) -> None:
        self._original, self._keys, self._request = original, keys, request
        self._executor, self._folder = executor, folder
        self._unmarked: dict[str, irwm.Examination] = {}
        self._of_device: dict[str, Controls] = {}

    def examine(
        self,
        suspect: irwm.Checkpoint,
        device: str,
        work: Reports,
        first: Callable[[Examined], None] | None = None,
        *,
        controls: bool = True,
        neurons: bool = True,
    ) -> Examined:
        """Trace every key with noise, then read the named and the next best, and every key without noise, by rank.

        Args:
            controls: whether to run the controls and to read the wrong keys, which a report needs.
            neurons: as for `Examination.with_suspect`.
            first: called with the findings before the controls are run, which take most of the time.
        """
        keys = self._keys
        _read_from_server(suspect, self._original, work)
        examination = self._on(device).with_suspect(suspect, neurons=neurons)
        traced = tuple(i for i, key in enumerate(keys.keys) if key.parameters.noise_coordinates)
        tracing = None
        if traced:
            noisy = [keys.keys[i] for i in traced]
            tracing = trace_each(examination, noisy, RISK, self._executor, DECOYS, work.progress, keys_tried=keys.tried)
        chosen = _to_read(keys, traced, tracing, examination)
        findings: dict[int, irwm.Finding] = {}
        work.progress(0, len(chosen), ALIGNING)
        tried = keys.tried
        # A report shows the marks of all traced keys.
        screen = tracing is None and len(chosen) > MOST_UNSCREENED
        read = detect_marks(examination, [keys.keys[i] for i in chosen], **WAY, keys_tried=tried, screen=screen)
        unread = listed(suspect.unread)
        for place, finding in zip(chosen, read, strict=True):
            findings[place] = judge_opened(finding, unread)
            work.progress(len(findings), len(chosen), ALIGNING)
        best = _best(findings, traced, tracing)
        if findings[best].screened:
            (read_again,) = detect_marks(examination, [keys.keys[best]], **WAY, keys_tried=tried)
            findings[best] = judge_opened(read_again, unread)
        way = self._request.way
        supporting: tuple[irwm.Finding, ...] = ()
        if way != WAY and controls:
            work.progress(0, 0, "Reading the most likely key with the second method")
            supporting = tuple(detect_marks(examination, [keys.keys[best]], **way, keys_tried=tried))
        early = Examined(keys, tracing, traced, findings, best, supporting, (), None)
        if not controls:
            return early
        if first is not None:
            first(early)
        work.progress(0, 0, "Running the self-tests")
        run = self._controls(device).run(examination, keys.keys[best], findings[best])
        tests = list(run.tests)
        if tracing is not None and tracing.decoys.size:
            tests.append(decoy_test(tracing))
        number, seed = self._request.decoys or NUMBER, WAY["seed"]
        ranked = rank_decoys(examination, keys.keys[best], findings[best], number, seed, work.progress)
        rates = ErrorRates(ranked, run.neutral)
        return Examined(keys, tracing, traced, findings, best, supporting, tuple(tests), rates)

    def _on(self, device: str) -> irwm.Examination:
        """The unmarked original against itself, the first control, with the data that all suspects share."""
        if device not in self._unmarked:
            self._unmarked[device] = irwm.Examination(self._original, self._original, device)
        return self._unmarked[device]

    def _controls(self, device: str) -> Controls:
        """The controls of all suspects on a device; their neutral model is in the scratch folder."""
        if device not in self._of_device:
            scratch = self._folder / SCRATCH_NAME
            private_folder(scratch)
            self._of_device[device] = Controls(self._on(device), scratch)
        return self._of_device[device]


def examine_generated(
    suspect: GeneratingSuspect, keys: Keys, device: str, work: Work, fits: Fits | None = None
) -> Examined:
    """Trace every key with noise in generated text. A mark cannot be read there, and the only control is that of
    recipients who were never issued a copy."""
    traced = tuple(i for i, key in enumerate(keys.keys) if key.parameters.noise_coordinates)
    noisy, tried = [keys.keys[i] for i in traced], keys.tried
    found = trace_generated(
        suspect.generated, suspect.original, noisy, tried, device=device, progress=work.progress, fits=fits
    )
    z = [-math.inf if math.isnan(trace.z) else trace.z for trace in found.traces]
    best = traced[z.index(max(z))]
    unread = unread_mark(keys.keys[best], suspect.original, tried, WAY["seed"])
    return Examined(keys, found, traced, {best: unread}, best, (), (decoy_test(found),), None)


def _to_read(keys: Keys, traced: Sequence[int], tracing: Tracing | None, examination: irwm.Examination) -> list[int]:
    """Places of the keys to read by the rank rule: all without noise, and the most likely of the others.

    If nobody is named, they include a key that cannot be dismissed.
    """
    noisy = set(traced)
    plain_keys = [i for i in range(len(keys.keys)) if i not in noisy]
    if tracing is None:
        return plain_keys
    order = sorted(range(len(traced)), key=lambda i: (math.isnan(tracing.traces[i].z), -tracing.traces[i].z))
    chosen = [traced[i] for i in order[:MOST_READ]]
    if not tracing.named and len(traced) > MOST_READ:
        unread = (i for i in traced if i not in chosen and examination.neurons_unread(keys.keys[i]))
        chosen += itertools.islice(unread, 1)
    return sorted(chosen + plain_keys)


def _best(findings: Mapping[int, irwm.Finding], traced: Sequence[int], tracing: Tracing | None) -> int:
    """The key a report is about: the strongest named; else the strongest by the rank rule. A key that is not dismissed
    outweighs those that are."""
    if tracing is not None and tracing.named:
        z = [trace.z if trace.named else -math.inf for trace in tracing.traces]
        return traced[z.index(max(z))]
    return min(
        findings,
        key=lambda i: (VERDICTS.index(findings[i].verdict), log10_risk(findings[i].reading, findings[i].comparisons)),
    )


def decoy_test(tracing: Tracing) -> SelfTest:
    """The control of a tracing: no recipient who was never issued a copy may be named."""
    names = ("keys_tried", "tensors_read", "maps", "places", "looks", "tries", "risk", "decoys")
    found: schema.Compared = plain({"forms": FORMS} | {name: getattr(tracing, name) for name in names})
    return SelfTest(**tracing_control(found))


def time_stamp(stamp: TimestampRecord | None) -> schema.TimeStamp | None:
    """The section of a document about a timestamp, read again from its files; None if there is none."""
    if stamp is None:
        return None
    return StampedCommitment(stamp.commitment_document, stamp.request, stamp.response).section()


def most_hashed(original: irwm.Checkpoint) -> int:
    """Most bytes of files received from others that are hashed."""
    return max(HASHED_BYTES, HASHED_SHARE * original.bytes_total)


def _read_from_server(suspect: irwm.Checkpoint, original: irwm.Checkpoint, work: Reports) -> None:
    """Reads the embedding of a suspect on a server, which is most of what an examination reads, with progress.

    One that claims to be far larger than the original's is left to the examination, which reads only what it can use.
    """
    parts = suspect.tensors[suspect.layout.embedding.name].parts if server_of(suspect.path) else ()
    done, total = 0, sum(part.nbytes for part in parts)
    if total > MOST_TIMES * original.tensors[original.layout.embedding.name].nbytes:
        return
    for part in parts:
        for start in range(part.start, part.stop, FROM_SERVER_BYTES):
            stop = min(part.stop, start + FROM_SERVER_BYTES)
            work.progress(done, total, f"Reading the suspect from {server_of(suspect.path)}")
            announce(part.file, [(start, stop)])
            done += stop - start


def described(checkpoint: Suspect, received: Mapping[str, str]) -> ItemDescription:
    """A received item as a report describes it, with a note on files that were not hashed."""
    item = ItemDescription.of(checkpoint, hashes=received)
    left_out = [file.name for file in item.files if not file.sha256]
    if not left_out or item.source is not None:
        return item
    note = f"Files that were not hashed because they are much larger than the original's: {listed(left_out)}."
    return replace(item, notes=(*item.notes, note))


def hashes(checkpoint: Suspect, work: Work, original: irwm.Checkpoint | None = None) -> dict[str, str]:
    """SHA-256 of the weight files as received; without those on a server, of which only parts are read.

    Args:
        original: received files are first compared with it: if they exceed `most_hashed` bytes, the largest ones are
            left out. None for our own files.
    """
    what = "Hashing the items for the report"
    shards, total = [], 0
    here = (shard for shard in checkpoint.shards if not server_of(shard))
    for shard in sorted(here, key=lambda shard: shard.stat().st_size):
        size = shard.stat().st_size
        if original is None or total + size <= most_hashed(original):
            shards.append(shard)
            total += size
    done, found = 0, {}
    for shard in shards:
        digest = hashlib.sha256()
        with open(shard, "rb") as stream:
            while block := stream.read(8 << 20):
                digest.update(block)
                done += len(block)
                work.progress(done, total, what)
        found[shown_path(shard.name)] = digest.hexdigest()
    return found
