"""The transforms as attacks: a model folder in, a new model folder out.

All of them take `dtype`, what floating tensors are stored as ("float16", "bfloat16", "float32" or "float64"; None for
each tensor's own), return the new folder's path, and raise

    NotApplicableError                        the transform would change what this model computes; says why
    ParameterError                            an option out of its range, or a number too large for the dtype
    CheckpointError                           `model_dir` is not a checkpoint that this version reads
    OutputExistsError, PublishError           `out_dir` exists, or the disk refused

and then nothing is written. The arithmetic is done in float64 and rounded once, on saving.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from irwm.attacks.equivalence.catalogue import Step, apply, obstacles
from irwm.attacks.equivalence.naming import Scheme
from irwm.attacks.equivalence.state import read_state, write_state
from irwm.attacks.equivalence.tokens import Rows, Tokenizer
from irwm.release.partial import require_absent

Folder = str | Path


def disguise(
    model_dir: Folder, out_dir: Folder, steps: Sequence[Step], seed: int = 0, dtype: str | None = None
) -> Path:
    """Apply several transforms in memory, in the order given, and write the result once.

    Args:
        model_dir: a model folder, or one .safetensors file.
        out_dir: a new folder.
        steps: names of transforms, each alone or in a pair with its options: ["rotate", ("map_qk", {"condition": 3})].
        seed: step i draws with seed + i, unless its options say otherwise.
        dtype: see the module.
    """
    require_absent(Path(out_dir))  # before the work and not after it
    return write_state(apply(read_state(model_dir), steps, seed), out_dir, dtype)


def applicable(model_dir: Folder) -> dict[str, str | None]:
    """For each transform's name None where it can run on this model, else the reason why not. Reads no weights."""
    return obstacles(read_state(model_dir, weights=False))


def permute_residual(model_dir: Folder, out_dir: Folder, seed: int = 0, dtype: str | None = None) -> Path:
    """Permute the residual stream's coordinates in every layer. All families; a BERT without a prediction head puts
    out its hidden states in the new order."""
    return disguise(model_dir, out_dir, ["permute_residual"], seed, dtype)


def flip_signs(model_dir: Folder, out_dir: Folder, seed: int = 0, dtype: str | None = None) -> Path:
    """Flip the signs of random residual coordinates; of all coordinates together in LayerNorm families (BERT)."""
    return disguise(model_dir, out_dir, ["flip_signs"], seed, dtype)


def rotate(model_dir: Folder, out_dir: Folder, seed: int = 0, dtype: str | None = None) -> Path:
    """Fold the gains and turn the residual stream by a random dense orthogonal matrix; a tied head is untied.
    RMSNorm families without norms behind the sublayers: not BERT, not Gemma 2."""
    return disguise(model_dir, out_dir, ["rotate"], seed, dtype)


def rescale(
    model_dir: Folder, out_dir: Folder, seed: int = 0, factor: float | None = None, dtype: str | None = None
) -> Path:
    """Multiply the residual stream by `factor` > 0 (None: drawn between 1/8 and 8) and the config's eps by its square.
    All families."""
    return disguise(model_dir, out_dir, [("rescale", {"factor": factor})], seed, dtype)


def fold_gains(model_dir: Folder, out_dir: Folder, dtype: str | None = None) -> Path:
    """Multiply the norms' gains into the matrices behind them and leave gains of one; a tied head is untied.
    RMSNorm families."""
    return disguise(model_dir, out_dir, ["fold_gains"], dtype=dtype)


def regain(model_dir: Folder, out_dir: Folder, seed: int = 0, spread: float = 2.0, dtype: str | None = None) -> Path:
    """Replace the norms' gains by random ones between 1 / spread and spread, the matrices behind them making up for
    it; a tied head is untied. RMSNorm families."""
    return disguise(model_dir, out_dir, [("regain", {"spread": spread})], seed, dtype)


def map_qk(
    model_dir: Folder, out_dir: Folder, seed: int = 0, condition: float = 10.0, dtype: str | None = None
) -> Path:
    """Multiply queries by a random map per key head and keys by its inverse transpose; `condition` bounds the map's
    condition number. Under rotary embeddings a scaled rotation per pair of entries, in BERT any matrix. Not Qwen 3."""
    return disguise(model_dir, out_dir, [("map_qk", {"condition": condition})], seed, dtype)


def map_vo(
    model_dir: Folder, out_dir: Folder, seed: int = 0, condition: float = 10.0, dtype: str | None = None
) -> Path:
    """Multiply values by a random dense map per key head and the output projection by its inverse; `condition` bounds
    the map's condition number. All families."""
    return disguise(model_dir, out_dir, [("map_vo", {"condition": condition})], seed, dtype)


def reorder_heads(model_dir: Folder, out_dir: Folder, seed: int = 0, dtype: str | None = None) -> Path:
    """Permute the key heads with their groups, and the query heads within each group. All families."""
    return disguise(model_dir, out_dir, ["reorder_heads"], seed, dtype)


def shift_key_bias(
    model_dir: Folder, out_dir: Folder, seed: int = 0, size: float = 1.0, dtype: str | None = None
) -> Path:
    """Add a random vector of deviation `size` to each layer's key bias, which the softmax ignores. BERT."""
    return disguise(model_dir, out_dir, [("shift_key_bias", {"size": size})], seed, dtype)


def reorder_neurons(
    model_dir: Folder, out_dir: Folder, seed: int = 0, spread: float = 2.0, dtype: str | None = None
) -> Path:
    """Permute the MLPs' hidden units; in gated MLPs also scale them by factors between 1 / spread and spread.
    All families."""
    return disguise(model_dir, out_dir, [("reorder_neurons", {"spread": spread})], seed, dtype)


def shift_rows(model_dir: Folder, out_dir: Folder, seed: int = 0, size: float = 1.0, dtype: str | None = None) -> Path:
    """Add one random number, of `size` deviations, to all entries of each word's row. LayerNorm families (BERT)."""
    return disguise(model_dir, out_dir, [("shift_rows", {"size": size})], seed, dtype)


def shift_tables(
    model_dir: Folder, out_dir: Folder, seed: int = 0, size: float = 1.0, dtype: str | None = None
) -> Path:
    """Add one random vector, of `size` deviations, to all word rows and subtract it from all position rows. BERT."""
    return disguise(model_dir, out_dir, [("shift_tables", {"size": size})], seed, dtype)


def reorder_tokens(
    model_dir: Folder, out_dir: Folder, seed: int = 0, tokenizer: Tokenizer = "keep", dtype: str | None = None
) -> Path:
    """Permute the token ids in embedding, head, configs and, with "keep", tokenizer files; "drop" leaves these out.
    All families."""
    return disguise(model_dir, out_dir, [("reorder_tokens", {"tokenizer": tokenizer})], seed, dtype)


def trim_tokens(
    model_dir: Folder,
    out_dir: Folder,
    seed: int = 0,
    keep: Sequence[int] | None = None,
    fraction: float = 0.1,
    tokenizer: Tokenizer = "keep",
    dtype: str | None = None,
) -> Path:
    """Drop all tokens but `keep`, or a random `fraction` of them; special tokens stay. Texts of tokens that are left
    are computed as before. All families."""
    options = {"keep": keep, "fraction": fraction, "tokenizer": tokenizer}
    return disguise(model_dir, out_dir, [("trim_tokens", options)], seed, dtype)


def pad_tokens(
    model_dir: Folder,
    out_dir: Folder,
    count: int = 64,
    seed: int = 0,
    rows: Rows = "random",
    interleave: bool = False,
    tokenizer: Tokenizer = "keep",
    dtype: str | None = None,
) -> Path:
    """Add `count` rows that no text uses, "random" or "zero", at the end or between the others. All families."""
    options = {"count": count, "rows": rows, "interleave": interleave, "tokenizer": tokenizer}
    return disguise(model_dir, out_dir, [("pad_tokens", options)], seed, dtype)


def rename_tensors(
    model_dir: Folder, out_dir: Folder, scheme: Scheme = "prefix", seed: int = 0, dtype: str | None = None
) -> Path:
    """Rename every tensor: "prefix" puts another module in front, "scrambled" leaves numbers in random order and hides
    the family. Any model; what comes out is for the thief's own loader."""
    return disguise(model_dir, out_dir, [("rename_tensors", {"scheme": scheme})], seed, dtype)


def cast(model_dir: Folder, out_dir: Folder, dtype: str = "float16") -> Path:
    """Store every floating tensor as "float16", "bfloat16", "float32" or "float64". Any model."""
    return disguise(model_dir, out_dir, [("cast", {"dtype": dtype})])


def as_llama(model_dir: Folder, out_dir: Folder, dtype: str | None = None) -> Path:
    """Write the model as a Llama: Phi-3, Gemma, Mistral and Qwen 2, unless they use a sliding window or a rotary
    embedding that a Llama has not."""
    return disguise(model_dir, out_dir, ["as_llama"], dtype=dtype)
