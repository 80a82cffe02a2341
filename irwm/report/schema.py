"""The types of the five documents: report, dispute, lab, sweep and review. docs/report-schema.md explains every field.

A document is a plain dictionary of JSON values. A received document is checked against its type once, by
`irwm.report.structure`, which also writes docs/report-schema.json from these types. A number that was NaN or infinite
is null; a type has `None` only where that is possible.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeVar

from pydantic import FailFast

# Of `typing` only from Python 3.12 on, where pydantic accepts both; pydantic requires this package.
from typing_extensions import TypedDict

_Part = TypeVar("_Part")
# Checked up to the first wrong part: half a million of them may be wrong.
Listed = Annotated[list[_Part], FailFast()]
Word = Literal["found", "not found", "inconclusive"]
RestsOn = Literal["mark", "tracing"]
Place = Literal["embedding", "head"]
# Where a fingerprint, but no mark, may also be.
FingerprintPlace = Literal["embedding", "head", "neurons"]
Map = Literal["aligned", "least squares"]
# Of a tracing: in generated text there is no map, but a weighting of the tokens and perhaps a fit of the original.
TracedBy = Literal[
    "aligned",
    "least squares",
    "text",
    "text, soft prompt",
    "text, weights",
    "log-probabilities",
    "log-probabilities, soft prompt",
    "log-probabilities, weights",
]
# Why no further fit was made.
TriesEnded = Literal["named", "all made", "not requested", "too few answers", "not supported", "too little memory"]
Statistic = Literal["joint", "sum", "difference"]
Invariant = Literal["original", "suspect"]
Origin = Literal["derived", "not derived", "cannot tell"]
# A number that may be infinite, which JSON does not have.
Extended = float | Literal["infinity"]
# A further detail of a report or a lab.
Detail = str | float | bool | None


class Custody(TypedDict):
    identity: str
    audit_head: str
    audit_entries: int


class Status(TypedDict):
    signed: bool
    court_ready: bool
    note: str
    custody: NotRequired[Custody]  # of a signed document


class Framed(TypedDict):
    """The sections that a report, a dispute and a lab have in common."""

    created_utc: str
    status: Status
    case: dict[str, str]
    versions: dict[str, str]
    limitations: Listed[str]


class File(TypedDict):
    name: str
    bytes: int
    sha256: str  # "" if it was not hashed


class Recording(TypedDict):
    endpoint: str
    model: str
    api: str
    scale: Literal["all tokens", "chosen tokens", "generated tokens", "text"]
    original: str
    prompt_seed: int
    prompts: int
    requests: int
    began: str
    ended: str
    requests_sha256: str
    responses_sha256: str


class Answers(TypedDict):
    given: int
    used: int
    tokens: int
    directions: int | None
    recording: Recording | None
    form: Literal["vectors", "generated tokens", "text"]


class ReadRange(TypedDict):
    """A part of a file on a server that was read: half-open, in bytes. It arrived at `utc`, by the examiner's clock."""

    start: int
    stop: int
    sha256: str
    utc: str


class SourceFile(TypedDict):
    """A file on a server of which parts were read, in this order; its name is relative to the item's folder.

    `sha256` of the whole file and `etag` are as the server stated them, or "".
    """

    name: str
    bytes: int
    sha256: str
    etag: str
    ranges: Listed[ReadRange]


class Source(TypedDict):
    """The server that an item was read from: a host or bucket, and a repository's commit ("" elsewhere)."""

    address: str
    server: str
    commit: str
    files: Listed[SourceFile]


class Item(TypedDict):
    """A model, as `irwm.report.items.ItemDescription`."""

    name: str
    family: str
    dtype: str
    vocab_size: int
    hidden_size: int
    tied: bool
    heads: int
    kv_heads: int
    head_dim: int
    fingerprint: str
    bytes_total: int
    files: Listed[File]
    other_files: Listed[File]
    notes: Listed[str]
    answers: Answers | None
    source: Source | None


class Key(TypedDict):
    commitment: str
    owner: str
    recipient: str
    scale: float
    model_fingerprint: str


class Parameters(TypedDict):
    """As `irwm.Parameters.to_dict`."""

    positions: int
    constraints: int
    scale: float | Literal["auto"]
    hidden: bool
    condition_limit: float
    rank_threshold: float
    required_positions: int
    permutations: int
    noise_coordinates: int
    noise_level: NotRequired[Literal["row", "global"]]  # of noise that replaces numbers
    spread: NotRequired[float]  # of a key with noise
    places: Listed[FingerprintPlace]


class TimeStamp(TypedDict):
    time_utc: str
    authority: str
    policy: str
    serial: str
    accuracy_s: float
    sha256: str
    commitment: Listed[str]  # the three files in base64, in lines
    request: Listed[str]
    response: Listed[str]


class Counted(TypedDict):
    """A reading in numbers only."""

    count: int
    present: int
    log10_p: float
    log10_p_count: float


class Keys(TypedDict):
    tried: int
    held: int | None


class Said(TypedDict):
    """What a verdict says."""

    word: Word
    reason: str
    warnings: Listed[str]
    rests_on: RestsOn


class Verdict(Said):
    mark: Word
    mark_reason: str
    count: int
    present: int
    positions: int
    expected_by_chance: float
    required: int
    rule_met: bool


class Likelihood(TypedDict):
    log10_lr: float | None
    log10_lr_per_comparison: float | None
    verbal: str | None
    evidence_bits: float


class Evaluation(Likelihood):
    log10_p: float
    log10_p_count: float
    log10_p_floor: float
    log10_p_count_floor: float
    smallest_rank: float
    combinations: int
    keys_tried: int
    tensors_read: int
    maps: int
    forms: int
    places: int
    log10_risk: float
    found_at_log10_risk: float
    dismissed_above_log10_risk: float


class Evidence(TypedDict):
    form: Literal["mark", "fingerprint"]
    place: FingerprintPlace
    log10_p: float
    by: Map
    tensors_read: int
    z: float | None  # null of a mark
    rows: int
    log10_risk: float


class Null(TypedDict):
    shape: Listed[int]
    sha256: str
    quantile_levels: Listed[float]


class Position(TypedDict):
    """One marked row; its values are null if the row is gone."""

    position: int
    token: int | None
    text: str | None
    state: Literal["ranked", "gone"]
    observed: float | None
    rank: float | None
    counts: bool
    threshold: float | None
    null_quantiles: Listed[float | None]


class Way(TypedDict):
    statistic: Statistic
    invariant: Invariant


class SeededWay(Way):
    seed: int


class Reading(Way, Counted):
    by: Map
    gone: int
    rule_met: bool
    chance_of_counting: float
    null: Null
    positions: Listed[Position]


class Supporting(SeededWay):
    count: int
    present: int
    expected_by_chance: float
    rule_met: bool
    log10_risk: float


class Mark(TypedDict):
    """The result of the rank rule for one recipient."""

    verdict: Word
    count: int
    present: int
    rule_met: bool
    paper_count: int | None
    paper_present: int | None
    log10_risk: float


class Recipient(TypedDict):
    place: int
    recipient: str
    owner: str
    commitment: str
    z: float | None
    log10_p: float
    log10_risk: float
    named: bool
    share: float | None
    rows: int
    mark: Mark | None


class Others(TypedDict):
    """Recipients that are not listed, by their z."""

    count: int
    edges: Listed[float]
    counts: Listed[int]


class Compared(TypedDict):
    """The numbers of a tracing on which the odds of a z depend, and the z of its decoys."""

    keys_tried: int
    risk: float
    tensors_read: int
    maps: int
    places: int
    forms: int
    looks: int
    tries: int
    decoys: Listed[float | None]


class Growth(TypedDict):
    """z of the likeliest recipient from the first tokens of generated text."""

    tokens: int
    z: float | None


class Traced(Compared):
    """The measured part of a tracing."""

    recipients: int
    by: TracedBy
    tries_made: int
    tries_ended: TriesEnded
    place: FingerprintPlace
    aligned: bool
    rows: int
    first_pass_rows: int
    reason: str
    read_by_rank_rule: int
    growth: Listed[Growth]
    ranked: Listed[Recipient]
    others: Others


class TracingSummary(TypedDict):
    """The values that follow from the rows of a tracing."""

    named: int
    log10_risk: float | None
    copies_estimated: float | None
    z_needed: float
    z_of_decoys: float | None


class Tracing(Traced, TracingSummary):
    pass


class Success(TypedDict):
    p: float
    probability: float


class Odds(TypedDict):
    observed_share: float | None
    success: Listed[Success]
    log10_random_user: float
    keys: int
    log10_wrong_user: float


class Step(TypedDict):
    name: str
    said: str
    confidence: float
    measure: str


class Similarities(TypedDict):
    edges: Listed[float]
    rows: Listed[int]
    decoys: Listed[int]


class Alignment(TypedDict):
    aligned: bool
    reason: str
    exhausted: bool
    steps: Listed[Step]
    embedding_tensor: str
    minor_components: bool
    median_cosine: float | None
    median_decoy_cosine: float | None
    needed_median_cosine: float
    whole: float
    rows_compared: int
    rows_of_original: int
    rows_of_original_gone: int
    marked_rows_gone: int
    row_scale: float | None
    columns: int
    columns_moved: int
    columns_mutual_share: float | None
    broken_rows: int
    first_broken_rows: Listed[int]
    histogram: Similarities


class Among(TypedDict):
    """A suspect's place among the stored models."""

    agreement: float
    unrelated: int
    as_alike: int
    p: float
    descendants: int
    as_unlike: int
    table: str


class NeuronMatch(TypedDict):
    """The suspect's MLP neurons that resemble the original's."""

    agreement: float
    decoy: float
    pairs: int
    ours: float
    theirs: float
    layers: Listed[Listed[int]]


class Lineage(TypedDict):
    status: Origin
    similarity: float | None
    decoy_similarity: float | None
    reason: str
    attention: float | None
    attention_decoy: float | None
    fitted: float | None
    among: Among | None
    place: Place
    circuits: float | None
    circuits_decoy: float | None
    neurons: NeuronMatch | None


class Histogram(TypedDict):
    edges: Listed[float]
    counts: Listed[int]


class Share(TypedDict):
    log10_risk: int
    count: int
    share: float
    low: float
    high: float


class Decoys(TypedDict):
    number: int
    seed: int
    maps: int
    bank_rows: int
    positions: int
    permutations: int
    histogram: Histogram
    shares: Listed[Share]
    smallest_log10_risk: float
    mean_count: float
    largest_count: int
    suspect_log10_risk: float
    as_low_as_suspect: int


class Neutral(TypedDict):
    name: str
    rows: int
    verdict: Word
    reason: str
    aligned: bool
    similarity: float | None
    needed_similarity: float
    log10_risk: float


class ErrorRates(TypedDict):
    decoys: Decoys | None
    neutral: Listed[Neutral]
    method: str


class Standing(TypedDict):
    status: Literal["committed before", "committed too late", "suspect not dated", "not committed"]
    evidence_bits: float
    search_bits: float
    committed_utc: str | None
    suspect_seen_utc: str | None
    margin_bits: float
    authority: str
    sentence: str


class SelfTest(TypedDict):
    name: str
    expected: Word
    verdict: Word
    count: int
    present: int
    log10_risk: float


class Items(TypedDict):
    suspect: Item
    original: Item


class Reproduce(TypedDict):
    python: Listed[str]
    tolerance: str


class OfOneKey(TypedDict):
    """The sections that are about one key only."""

    parameters: Parameters
    reading: Reading
    paper: Reading | None
    odds: Odds


class OtherKey(OfOneKey):
    """The sections of another key than the report's, which the app keeps for its figures."""

    key: Key


class Examination(OfOneKey):
    """The computed part of a report, which is the same if the examination is run again."""

    verdict: Verdict
    evaluation: Evaluation
    place: Place
    elsewhere: Reading | None
    evidence: Listed[Evidence]
    supporting: Listed[Supporting]
    tracing: Tracing | None
    alignment: Alignment
    lineage: Lineage
    seed: int


class ReportSchema(TypedDict):
    name: Literal["irwm-report"]
    version: Literal[22]


class Report(Framed, Examination):
    schema: ReportSchema
    key: Key
    keys: Keys
    rows_disclosed: bool
    error_rates: ErrorRates | None
    standing: Standing
    time_stamp: TimeStamp | None
    propositions: Listed[str]
    self_tests: Listed[SelfTest]
    items: Items
    extra: dict[str, Detail]
    reproduce: Reproduce


class Claim(TypedDict):
    """One claim of a dispute, from `irwm.report.dispute.claim_section`."""

    claimant: str
    ours: bool
    commitment: str
    owner: str
    recipient: str
    parameters: Parameters
    original: Item
    release: Item | None
    committed_utc: str | None
    stamp: str
    time_stamp: TimeStamp | None


class Exhibit(TypedDict):
    name: str
    item: Item


class Elsewhere(Counted):
    tensors_read: int


class Fingerprint(TypedDict):
    place: FingerprintPlace
    tensors_read: int
    z: float
    rows: int


class Tested(TypedDict):
    """A key on a model."""

    claimant: str
    model: str
    kind: Literal["original", "release", "exhibit"]
    brought_by: str
    reason: str
    log10_risk: float


class Refused(Tested):
    """A key that was not read, because it does not fit its own original."""

    verdict: Literal["refused"]
    count: None
    present: None
    log10_p: None
    log10_p_count: None
    place: None
    tensors_read: None
    forms: None
    places: None
    elsewhere: None
    fingerprint: None
    lineage: None


class Read(Tested, Counted):
    verdict: Word
    place: Place
    tensors_read: int
    forms: int
    places: int
    elsewhere: Elsewhere | None
    fingerprint: Fingerprint | None
    lineage: Origin


Test = Read | Refused


class Ruling(TypedDict):
    claimants: Listed[str]
    rule: str
    winner: str | None
    sentence: str
    would_decide: str
    margin_bits: float | None


class Outcome(TypedDict):
    tests: Listed[Test]
    comparisons: int
    rulings: Listed[Ruling]
    remarks: Listed[str]
    winner: str | None
    sentence: str


class DisputeSchema(TypedDict):
    name: Literal["irwm-dispute"]
    version: Literal[8]


class Dispute(Framed):
    schema: DisputeSchema
    claims: Listed[Claim]
    exhibits: Listed[Exhibit]
    outcome: Outcome
    seed: int


class Text(TypedDict):
    name: str
    characters: int
    sha256: str


class LabSettings(TypedDict):
    text: Text
    tokens: int
    seed: int
    companions_sha256: str


class LabReading(Way, Counted):
    """A copy in one way of reading."""

    verdict: Word
    share: float | None
    top: Listed[int]  # positions with a rank below each of `irwm.report.lab_rows.TOP`
    log10_risk: float
    rule_met: bool
    tensors_read: int
    places: int


class LabTraced(TypedDict):
    z: float | None
    named: bool
    tensors_read: int
    places: int


class Utility(TypedDict):
    """As `irwm.inference.Utility`."""

    tokens: int
    perplexity_reference: Extended | None
    perplexity: Extended | None
    change: Extended | None
    change_error: Extended | None
    kl: Extended | None
    kl_error: Extended | None
    top1: Extended | None
    compared: int
    similarity: Extended | None
    reason: str


class Proof(TypedDict):
    """As `irwm.inference.SameFunction`."""

    largest: Extended
    typical: Extended
    scale: Extended
    tolerance: Extended
    typical_tolerance: Extended
    same: bool
    positions: int
    dtype: str


class Attacked(TypedDict):
    """The attack and its strength in words."""

    label: str
    strength: str


class LabRow(Attacked):
    """One attacked copy; without readings if the attack was not carried out."""

    role: Literal["release", "control", "attack"]
    attack: str
    value: float | str
    group: str
    symbol: str
    keeps_function: bool
    verdict: Word | None
    rests_on: RestsOn
    log10_risk: float | None
    ways: Listed[LabReading]
    traced: LabTraced | None
    utility: Utility | None
    proof: Proof | None
    reason: str
    seconds: float


class LabMark(TypedDict):
    """One marked copy under attack."""

    mode: Literal["single", "many"]
    key: Key
    parameters: Parameters
    release: Item
    unmeasured: str
    rows: Listed[LabRow]


class LabSchema(TypedDict):
    name: Literal["irwm-lab"]
    version: Literal[8]


class Lab(Framed):
    schema: LabSchema
    rehearsal: bool
    complete: bool
    trials: int
    settings: LabSettings
    original: Item
    marks: Listed[LabMark]
    extra: dict[str, Detail]


class SweptError(TypedDict):
    """Why a suspect could not be examined, as `irwm.errors.IrwmError`."""

    type: str
    problem: str
    file: str | None
    tensor: str | None
    expected: str | None
    found: str | None
    advice: str | None


class Suspect(TypedDict):
    path: str
    stamp: str
    json: str


class Failed(Suspect):
    error: SweptError


class SweptSummary(TypedDict):
    """The values of a suspect's own report that the overview repeats."""

    verdict: Word
    word: str
    rests_on: RestsOn
    whose: Listed[str]
    log10_risk: float
    copies_estimated: float | None
    lineage: Origin
    fingerprint: str
    bytes: int
    sha256: str


class Swept(Suspect, SweptSummary):
    error: None


SweepRow = Swept | Failed


class SweepSchema(TypedDict):
    name: Literal["irwm-sweep"]
    version: Literal[5]


class Sweep(TypedDict):
    schema: SweepSchema
    folder: str
    original: str
    keys: int
    keys_held: NotRequired[int]  # missing in old overviews
    keys_sha256: str
    case_id: str
    settings: SeededWay
    suspects: int
    refused: Listed[str]
    too_deep: Listed[str]
    cut: bool
    versions: dict[str, str]
    complete: bool
    rows: Listed[SweepRow]


class Reviewed(TypedDict):
    """The report that a review is about."""

    json: str
    sha256: str
    kind: str
    version: int
    created_utc: str
    examiner: str  # "" if the report names none
    result: str
    identity: str  # its signer's first public key; "" if it is not signed


class ReviewCheck(TypedDict):
    name: str
    ok: bool | None  # None if it was not made
    said: str


class ReviewSchema(TypedDict):
    name: Literal["irwm-review"]
    version: Literal[1]


class Review(Framed):
    schema: ReviewSchema
    reviewed: Reviewed
    reviewer: str
    extent: Literal["read", "recomputed", "examined"]
    conclusion: Literal["agrees", "agrees with remarks", "disagrees"]
    remarks: str
    checks: Listed[ReviewCheck]


Document = Report | Dispute | Lab | Sweep | Review
DOCUMENTS = (Report, Dispute, Lab, Sweep, Review)
