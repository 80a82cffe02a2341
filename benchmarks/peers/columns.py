"""The columns of the table: the peers, and ours last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import irwm
from benchmarks.peers import (
    awm,
    cisco,
    csu,
    emmark,
    fernandez,
    ghostspec,
    huref,
    match,
    mdir,
    reef,
    seedprints,
    self_,
)
from benchmarks.peers.score import Score, cannot

Scorer = Callable[[Path, Path], Score]


@dataclass(frozen=True, slots=True)
class Column:
    """One method.

    Attributes:
        title: heading of the column.
        score: the method.
        about: one or two Markdown sentences: description, source, threshold, choices in its favour.
        watermark: the release that it reads: "" for the one with our mark, or the name of the peer's.
        says: word in the cells for the answer "derived".
    """

    title: str
    score: Scorer
    about: str
    watermark: str = ""
    says: str = "derived"


class Ours:
    """Our detection, run once per pair and used for two columns."""

    def __init__(self, original: Path, release: Path, secret: bytes) -> None:
        """Write the release.

        Args:
            original: the unmarked model.
            release: folder for the marked copy.
            secret: the key's secret.
        """
        self._model = irwm.open_checkpoint(original)
        self._key = irwm.generate_key(self._model, secret=secret)
        self._found: dict[Path, irwm.Finding | str] = {}
        irwm.insert(self._model, self._key, release)

    def _detect(self, suspect: Path) -> irwm.Finding | str:
        if suspect not in self._found:
            try:
                self._found[suspect] = irwm.detect(irwm.open_checkpoint(suspect), self._model, self._key)
            except irwm.IrwmError as error:
                self._found[suspect] = str(error)
        return self._found[suspect]

    def lineage(self, _original: Path, suspect: Path) -> Score:
        """Score whether the suspect descends from the original; "cannot tell" counts as not derived."""
        found = self._detect(suspect)
        if isinstance(found, str):
            return cannot(found)
        reason = f"{found.lineage.status}: {found.lineage.reason}"
        derived = found.lineage.status == "derived"
        return Score(found.alignment.similarity, None, "derived" if derived else "not derived", reason)

    def mark(self, _original: Path, suspect: Path) -> Score:
        """Score whether the mark of this release is found; "inconclusive" counts as not found."""
        found = self._detect(suspect)
        if isinstance(found, str):
            return cannot(found)
        share, p = found.count / max(found.present, 1), 10.0 ** max(found.log10_p, -400.0)
        marked = found.verdict == "found"
        return Score(share, p, "derived" if marked else "not derived", f"{found.verdict}: {found.reason}")


# The peers that decide whether a model descends from another.
OF_DESCENT = (
    Column(
        "HuRef",
        huref.score,
        "Invariant-terms cosine similarity (ICS) of the last two layers: Zeng et al., NeurIPS 2024, "
        f"arXiv:2312.04828. No threshold is published; {huref.THRESHOLD} is about ten deviations above "
        "unrelated pairs. In its favour: tokens are matched by string, key heads are paired as the model pairs "
        "them, and the third term is the paper's W_up W_down and not the W_gate * W_up of the authors' code, which "
        "sign flips already change.",
    ),
    Column(
        "AWM",
        awm.score,
        "Columns aligned by linear assignment on the embedding, then unbiased CKA of W_q and W_k: ICLR 2026, "
        f"arXiv:2510.06738. No threshold is published; {awm.THRESHOLD:.3f} is fifty deviations above the unrelated "
        "pairs that the authors report. In its favour: ten are enough for their models, but with a model as small "
        "as ours, separately trained models exceed that. Without a tokenizer it compares without alignment, like "
        "their code.",
    ),
    Column(
        "CSU",
        csu.score,
        "Tests whether the rows of W_up match in order: Zhu et al., ICML 2025, arXiv:2502.12292. Value: mean "
        "Spearman correlation; derived below p = 1e-6, the level in the authors' code. Exact for honest models, "
        "and by design not robust to reordering.",
    ),
    Column(
        "MATCH",
        match.score,
        "The same authors' robust test: whether the activations of W_gate and W_up match neurons in the same way. "
        "It runs both models on the same tokens. In its favour: matching by cosine, tokens matched by string, "
        "inputs drawn from tokens that both vocabularies have.",
    ),
    Column(
        "MDIR",
        mdir.score,
        "The orthogonal map between the embeddings, and between heads in each pair of layers, and how close it is "
        "to a signed permutation: Zhang and Goldstein, 2025, arXiv:2508.06309. Value: trace of the map with the "
        "smallest p, as a share of its maximum; derived below p = 1e-6 (no level is known to us). The bound on p "
        "is our derivation; the authors' code could not be obtained.",
    ),
    Column(
        "GhostSpec",
        ghostspec.score,
        "Singular values of attention's products, layers matched in order: Wang et al., AAAI 2026, "
        "arXiv:2511.06390. Value: mean cosine of the matched layers' spectra; derived above "
        f"{ghostspec.THRESHOLD} (no threshold is known to us; the authors' code could not be obtained). In its "
        "favour: layers of models of different depth are matched without a penalty.",
    ),
    Column(
        "SELF",
        self_.score,
        "Singular values and eigenvalues of attention's products, layer by layer: Zhang and Zheng, 2025, "
        f"arXiv:2512.03620. Value: 1 minus the relative distance; derived above {self_.THRESHOLD}. The paper's "
        "decision comes from a network trained for each owner; this is the distance in the authors' code, which "
        "needs no training.",
    ),
    Column(
        "REEF",
        reef.score,
        "Centred kernel alignment of hidden states on the same statements: Zhang et al., ICLR 2025, "
        f"arXiv:2410.14273. It runs both models; derived above {reef.THRESHOLD}, as in the paper. In its favour: "
        "the suspect's layer is the one that agrees most.",
    ),
    Column(
        "SeedPrints",
        seedprints.score,
        "Kendall's tau of hidden states on random tokens, in the least active coordinates: Tong et al., ICLR 2026, "
        f"arXiv:2509.26404. It runs both models; derived below p = {seedprints.LEVEL}, as in the paper. In its "
        "favour: tokens are matched by string. It reads fewer and shorter sequences than the authors do.",
    ),
    Column(
        "Cisco kit",
        cisco.score,
        "The decision of cisco-ai-provenance-kit 1.0.0: models of equal architecture match before any weight is "
        "read, others above 0.75. The vendor's own program, run separately. In its favour: a folder without a "
        "tokenizer, which it refuses, gets the original's.",
    ),
    Column(
        "Cisco kit, weights",
        cisco.score_weights,
        "The same program's identity score alone, above the same 0.75, which compares the weights.",
    ),
)


def columns(ours: Ours) -> tuple[Column, ...]:
    """Return all methods, in the order of the table."""
    return (
        *OF_DESCENT,
        Column(
            "EmMark",
            emmark.score,
            "A separate watermark: Zhang & Koushanfar, DAC 2024, arXiv:2402.17938. Its release is the original "
            "quantised to 4 bits (groups of 128), 40 bits per matrix, de-quantised, then disguised like ours. Value: "
            "share of matching bits; p by the published binomial tail, derived below 1e-6 (no threshold is published). "
            "In its favour: weights are rounded to the owner's grid; the suspect need not be quantised.",
            watermark="emmark",
            says="found",
        ),
        Column(
            "Fernandez",
            fernandez.score,
            "A separate watermark: Fernandez et al., ICASSP 2024, arXiv:2310.11446. Its release is the original under "
            f"function-preserving transforms that an identifier of {fernandez.BITS} bits for each level chooses: a "
            "permutation of the residual stream, scaled norms, scaled q and k. Value: share of equal chunks; p by the "
            "published binomial tail, derived below 1e-6 (no threshold is published). It changes no output at all, and "
            "is lost when someone else transforms the model in the same way. In its favour: its copy is float32.",
            watermark="fernandez",
            says="found",
        ),
        Column(
            "ours: lineage",
            ours.lineage,
            "`irwm.detect(...).lineage`: derived or not, mark or no mark. Value: median cosine of the aligned rows.",
        ),
        Column(
            "ours: mark",
            ours.mark,
            "`irwm.detect(...).verdict`: whether it is this licensee's copy. Value: share of the positions with rank "
            "below 0.2; chance is 0.2.",
            says="found",
        ),
    )


def releases(original: Path, folder: Path) -> dict[str, Path]:
    """Return the releases of peers with a watermark, by `Column.watermark`."""
    return {
        "emmark": emmark.mark(original, folder / "emmark"),
        "fernandez": fernandez.mark(original, folder / "fernandez"),
    }
