"""The columns of the table: the peers, and ours last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import irwm
from benchmarks.peers import awm, cisco, csu, emmark, huref, match
from benchmarks.peers.score import Score, cannot

Scorer = Callable[[Path, Path], Score]


@dataclass(frozen=True, slots=True)
class Column:
    """One method.

    Attributes:
        title: the head of the column.
        score: the method.
        about: a Markdown sentence or two: what it is, source, threshold, what favours it.
        watermark: whose release it reads: "" for the one with our mark, else the name of its own.
        says: what the method's answer is called in the cells when it is "derived".
    """

    title: str
    score: Scorer
    about: str
    watermark: str = ""
    says: str = "derived"


class Ours:
    """Our detection, run once per pair and read twice."""

    def __init__(self, original: Path, release: Path, secret: bytes) -> None:
        """Writes the release.

        Args:
            original: the unmarked model.
            release: where the marked copy goes.
            secret: of the key.
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
        """Whether the suspect descends from the original; "cannot tell" counts as not derived."""
        found = self._detect(suspect)
        if isinstance(found, str):
            return cannot(found)
        reason = f"{found.lineage.status}: {found.lineage.reason}"
        derived = found.lineage.status == "derived"
        return Score(found.alignment.similarity, None, "derived" if derived else "not derived", reason)

    def mark(self, _original: Path, suspect: Path) -> Score:
        """Whether the mark of this one release is found; "inconclusive" counts as not found."""
        found = self._detect(suspect)
        if isinstance(found, str):
            return cannot(found)
        share, p = found.count / max(found.present, 1), 10.0 ** max(found.log10_p, -400.0)
        marked = found.verdict == "found"
        return Score(share, p, "derived" if marked else "not derived", f"{found.verdict}: {found.reason}")


def columns(ours: Ours) -> tuple[Column, ...]:
    """All methods, in the order of the table."""
    return (
        Column(
            "HuRef",
            huref.score,
            "Invariant-terms cosine similarity (ICS) of the last two layers: Zeng et al., NeurIPS 2024, "
            f"arXiv:2312.04828. No threshold is published; {huref.THRESHOLD} stands about ten deviations above "
            "unrelated pairs. In its favour: tokens are matched by string, key heads are paired as the model pairs "
            "them, and the third term is the paper's W_up W_down, not the W_gate * W_up of the authors' code, which "
            "flipped signs upset already.",
        ),
        Column(
            "AWM",
            awm.score,
            "Columns aligned by linear assignment on the embedding, then unbiased CKA of W_q and W_k: ICLR 2026, "
            f"arXiv:2510.06738. No threshold is published; {awm.THRESHOLD:.3f} is fifty deviations above the unrelated "
            "pairs that the authors report. In its favour: ten would do for their models, but on one as small as ours "
            "separately trained ones go beyond that. Without a tokenizer it compares unaligned, as their code does.",
        ),
        Column(
            "CSU",
            csu.score,
            "Do the rows of W_up match in order: Zhu et al., ICML 2025, arXiv:2502.12292. Value: mean Spearman "
            "correlation; derived below p = 1e-6, the level in the authors' code. Exact for honest models, and by "
            "design not meant to survive a reordering.",
        ),
        Column(
            "MATCH",
            match.score,
            "The same authors' robust test: do the activations of W_gate and W_up match neurons alike. It runs both "
            "models on the same tokens. In its favour: matching by cosine, tokens matched by string, inputs drawn from "
            "tokens that both vocabularies have.",
        ),
        Column(
            "EmMark",
            emmark.score,
            "A watermark of its own: Zhang & Koushanfar, DAC 2024, arXiv:2402.17938. Its release is the original "
            "quantised to 4 bits (groups of 128), 40 bits per matrix, de-quantised, then disguised as ours is. Value: "
            "share of matching bits; p by the published binomial tail, derived below 1e-6 (no threshold is published). "
            "In its favour: weights are snapped back to the owner's own grid; the suspect need not be quantised.",
            watermark="emmark",
            says="found",
        ),
        Column(
            "Cisco kit",
            cisco.score,
            "cisco-ai-provenance-kit 1.0.0 as it decides: models of equal architecture are a match before any "
            "weight is looked at, others above 0.75. The vendor's own program, run apart. In "
            "its favour: a folder without a tokenizer, which it refuses, is given the original's.",
        ),
        Column(
            "Cisco kit, weights",
            cisco.score_weights,
            "The same program's identity score alone, above the same 0.75: its view of the weights.",
        ),
        Column(
            "ours: lineage",
            ours.lineage,
            "`irwm.detect(...).lineage`: derived or not, mark or no mark. Value: median cosine of the aligned rows.",
        ),
        Column(
            "ours: mark",
            ours.mark,
            "`irwm.detect(...).verdict`: is it this licensee's copy. Value: share of the positions with rank below "
            "0.2; chance is 0.2.",
            says="found",
        ),
    )


def releases(original: Path, folder: Path) -> dict[str, Path]:
    """The releases of the peers that mark, by `Column.watermark`."""
    return {"emmark": emmark.mark(original, folder / "emmark")}
