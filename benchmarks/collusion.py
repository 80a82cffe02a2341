"""Recipients who combine their copies: who is named, and the result of the paper's rank rule.

    python -m benchmarks.collusion [--parts mean strategies demo large files finetuned vaults curve]
                                   [--rows 16000] [--columns 512] [--write]

The checkpoint is a Llama of one layer with random weights in bfloat16, written by transformers. Fine-tuning uses the
bundled demo model. Every copy is made by the code that writes releases. The embeddings are combined in memory
(`irwm.attacks.collusion.strategy`, like `collude`), which saves writing up to 64 folders; "files" runs one case from
`irwm.insert` to the end through folders. Marks and fingerprints use the preset for many recipients, except in the
paper's curve.

mean: the mean of 32 copies with noise of 0.3 deviations, 10 000 decoys. strategies: 16 copies by every strategy, each
then damaged, 1 000 decoys. demo: the same on the bundled model, with noise. large: the geometry of an 8B model, by
theory and by copies of some of its rows. vaults: 1 000 vaults of 300 recipients, on copies of other vaults' customers.
curve: the paper's collusion figure, with `docs/images/collusion-*.png`. --write puts the tables into docs/collusion.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import torch
from playwright.sync_api import sync_playwright
from scipy.stats import kstest, norm

import irwm
from benchmarks.written import printed_table
from irwm.attacks.collusion import strategy
from irwm.evidence.differences import Differences
from irwm.evidence.finding import FORMS, MAPS
from irwm.evidence.fingerprint import first_pass_spans
from irwm.evidence.sign_sums import Task, score
from irwm.explore.capacity import Collusion, naming_z, simulated
from irwm.inference import default_text
from irwm.report.plots import theme as plot_theme
from irwm.scheme.basis import Basis
from irwm.scheme.keystream import derive
from irwm.scheme.parameters import many_recipients
from irwm.scheme.probabilities import rademacher_tail_log10
from irwm.tracing import Tracing, trace_each
from tools.copies import copy_of, keys_for, write_embedding
from tools.running_app import CHROMIUM, CHROMIUM_ARGUMENTS
from tools.small_models import write_llama

torch.set_num_threads(2)  # the same sums, in the same order, on every machine

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("mean", "strategies", "demo", "large", "files", "finetuned", "vaults", "curve")
STRATEGIES = ("mean", "weighted", "median", "max", "min-max", "copy-paste")
# An 8B model: rows, coordinates, and how many rows are simulated.
LARGE_ROWS, LARGE_COLUMNS, SIMULATED_ROWS = 128_256, 4096, 4096
WEIGHTS = {"weighted": [1.0 + i % 4 for i in range(16)]}
HEADER = (
    "| suspect | copies | named of the guilty | innocents named | weakest z | decoys: n, mean, deviation, largest "
    "| copies estimated | seconds |\n|---|---|---|---|---|---|---|---|"
)
ROWS_AT_ONCE = 2000


def write_original(folder: Path, rows: int, columns: int) -> irwm.Checkpoint:
    heads = max(1, columns // 64)
    path = write_llama(
        folder,
        dtype=torch.bfloat16,
        vocab_size=rows,
        hidden_size=columns,
        intermediate_size=columns,
        num_attention_heads=heads,
        num_key_value_heads=heads,
    )
    return irwm.open_checkpoint(path)


def combined(copies: Sequence[torch.Tensor], how: str, weights: Sequence[float] | None = None) -> torch.Tensor:
    """Combine several embeddings like `irwm.attacks.collude`."""
    begin = strategy(how, len(copies), weights)
    combine = begin()
    blocks = range(0, len(copies[0]), ROWS_AT_ONCE)
    return torch.cat([combine(torch.stack([copy[b : b + ROWS_AT_ONCE].float() for copy in copies])) for b in blocks])


def say(label: str, copies: int, tracing: Tracing, guilty: set[str], started: float) -> None:
    named = {trace.recipient for trace in tracing.named}
    weakest = min(trace.z for trace in tracing.traces if trace.recipient in guilty)
    d = tracing.decoys
    print(
        f"| {label} | {copies} | {len(named & guilty)} of {len(guilty)} | {len(named - guilty)} | {weakest:.1f} "
        f"| {d.size}, {d.mean():.2f}, {d.std():.2f}, {d.max():.1f} | {tracing.colluders:.1f} "
        f"| {time.perf_counter() - started:.0f} |",
        flush=True,
    )


Damage = Callable[[Path, Path], Path]
DAMAGES: dict[str, Damage | None] = {
    "": None,
    "noise 0.3": lambda folder, out: irwm.attacks.add_noise(folder, out, 0.3, seed=7),
    "int8": lambda folder, out: irwm.attacks.quantize(folder, out, 8),
    "int4": lambda folder, out: irwm.attacks.quantize(folder, out, 4),
    "pruned 30 %": lambda folder, out: irwm.attacks.prune(folder, out, 0.3),
}


def mean(model: irwm.Checkpoint, root: Path) -> None:
    keys = keys_for(model, [f"guilty {i}" for i in range(32)])
    total = torch.zeros(model.vocab_size, model.hidden_size)
    for key in keys:
        total += copy_of(model, key).float() / len(keys)
    print(HEADER, flush=True)
    suspect = write_embedding(model, total, root / "mean")
    noisy = irwm.open_checkpoint(irwm.attacks.add_noise(suspect.path, root / "mean-noise", 0.3, seed=7))
    started = time.perf_counter()
    say(
        "mean, noise 0.3",
        32,
        trace_each(irwm.Examination(noisy, model), keys, decoys=10_000),
        {key.recipient for key in keys},
        started,
    )


def strategies(model: irwm.Checkpoint, root: Path) -> None:
    _each_strategy(model, root, DAMAGES)


def demo(_model: irwm.Checkpoint, root: Path) -> None:
    original = irwm.open_checkpoint(ROOT / "assets" / "demo")
    _each_strategy(original, root / "demo", {name: DAMAGES[name] for name in ("", "noise 0.3")})


def large(_model: irwm.Checkpoint, _root: Path) -> None:
    """Print z of colluders who average copies of an 8B model: by theory, and with fingerprints on rows of its size."""
    draw = np.random.Generator(np.random.PCG64(8))
    rows = 0.01 * draw.standard_normal((SIMULATED_ROWS, LARGE_COLUMNS))
    p = many_recipients(LARGE_COLUMNS)
    print("| copies | noise | z by theory, one | the weakest | z simulated, mean of all | needed |")
    print("|---|---|---|---|---|---|")
    # With fewer rows z is smaller by this factor, and its deviation is still 1.
    factor = np.sqrt(LARGE_ROWS / SIMULATED_ROWS)
    needed = naming_z(1e-6, 64 * len(MAPS) * FORMS)
    for copies in (16, 64):
        for noise in (0.0, 0.3):
            case = Collusion(LARGE_ROWS, LARGE_COLUMNS, p.noise_coordinates, copies, noise, p.spread)
            z = simulated(rows, np.arange(SIMULATED_ROWS), case)
            mean = f"{z.mean():.1f} ± {factor / np.sqrt(copies):.1f}"
            theory = f"{case.expected_z:.1f} | {case.weakest_z:.1f}"
            print(f"| {copies} | {noise:g} | {theory} | {mean} | {needed:.1f} |", flush=True)


def _each_strategy(model: irwm.Checkpoint, root: Path, damages: Mapping[str, Damage | None]) -> None:
    root.mkdir(exist_ok=True)
    keys = keys_for(model, [f"guilty {i}" for i in range(16)])
    innocent = [replace(keys[0], recipient=f"innocent {i}") for i in range(300)]
    copies = [copy_of(model, key) for key in keys]
    guilty = {key.recipient for key in keys}
    print(HEADER, flush=True)
    for how in STRATEGIES:
        mixed = combined(copies, "mean" if how == "weighted" else how, WEIGHTS.get(how))
        plain = write_embedding(model, mixed, root / f"16 {how}")
        for name, damage in damages.items():
            started = time.perf_counter()
            suspect = irwm.open_checkpoint(damage(plain.path, root / f"{how} {name}")) if damage else plain
            tracing = trace_each(irwm.Examination(suspect, model), [*innocent, *keys], decoys=1000)
            say(f"{how}, {name}" if name else how, 16, tracing, guilty, started)


def files(model: irwm.Checkpoint, root: Path) -> None:
    """Write, combine, blur and quantise four releases as folders."""
    keys = keys_for(model, [f"guilty {i}" for i in range(4)])
    started = time.perf_counter()
    folders = [irwm.insert(model, key, root / f"release {i}").path for i, key in enumerate(keys)]
    print(f"4 × irwm.insert: {time.perf_counter() - started:.0f} s\n")
    print(HEADER, flush=True)
    started = time.perf_counter()
    mixed = irwm.attacks.collude(folders, root / "mixed")
    noisy = irwm.attacks.add_noise(mixed, root / "mixed and blurred", 0.3)
    suspect = irwm.open_checkpoint(irwm.attacks.quantize(noisy, root / "mixed, blurred, int4", 4))
    tracing = trace_each(irwm.Examination(suspect, model), keys, decoys=1000)
    say("through folders: mean, noise 0.3, int4", 4, tracing, {key.recipient for key in keys}, started)


def finetuned(model: irwm.Checkpoint, root: Path) -> None:
    """Combine copies of the demo model and train all weights further, with AdamW at 2e-5 and at 1e-3."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    demo = irwm.open_checkpoint(ROOT / "assets" / "demo")
    keys = keys_for(demo, [f"guilty {i}" for i in range(16)])
    copies = [copy_of(demo, key) for key in keys]
    text = default_text()
    tokens = torch.tensor(AutoTokenizer.from_pretrained(demo.path)(text, verbose=False)["input_ids"])
    print(HEADER, flush=True)
    for how in ("mean", "median", "max", "min-max", "copy-paste"):
        plain = write_embedding(demo, combined(copies, how), root / f"demo {how}")
        for rate in (2e-5, 1e-3):
            started = time.perf_counter()
            trained = AutoModelForCausalLM.from_pretrained(plain.path, dtype=torch.float32)
            optimiser = torch.optim.AdamW(trained.parameters(), lr=rate)
            for step in range(20):
                batch = tokens[step * 1024 : (step + 1) * 1024].reshape(4, 256)
                trained(input_ids=batch, labels=batch).loss.backward()
                optimiser.step()
                optimiser.zero_grad()
            out = root / f"demo {how} {rate}"
            trained.to(torch.bfloat16).save_pretrained(out)  # type: ignore[arg-type]  # a decorator of theirs hides self
            tracing = trace_each(irwm.Examination(irwm.open_checkpoint(out), demo), keys, decoys=1000)
            say(f"demo, {how}, 20 steps at {rate:g}", 16, tracing, {key.recipient for key in keys}, started)


def vaults(model: irwm.Checkpoint, root: Path) -> None:
    """Trace innocent recipients only: every vault has its own secret and basis, and none of them made the suspect."""
    demo = irwm.open_checkpoint(ROOT / "assets" / "demo")
    customers = keys_for(demo, [f"customer {i}" for i in range(40)], secret=bytes([99]) * 32)
    copies = [copy_of(demo, key) for key in customers]
    suspects: list[torch.Tensor] = [copies[i] for i in range(5)]
    suspects += [
        combined(copies[i : i + 8], how) for i, how in enumerate(("mean", "median", "max", "min-max", "copy-paste"))
    ]
    started, best, z = time.perf_counter(), 0.0, []
    accused = 0
    params = many_recipients(demo.hidden_size)
    (template,) = keys_for(demo, ["anyone"], params)
    number = 0
    for index, embedding in enumerate([*suspects, *suspects]):
        plain = write_embedding(demo, embedding, root / f"vaults {index}")
        if index >= len(suspects):
            damage = list(DAMAGES.values())[1 + index % 4]
            assert damage is not None
            plain = irwm.open_checkpoint(damage(plain.path, root / f"vaults {index} damaged"))
        alignment = irwm.align(plain, demo)
        assert alignment.aligned
        sample = np.concatenate([np.arange(*span) for span in first_pass_spans(demo.vocab_size, bytes(32))])
        for _ in range(50):
            number += 1
            owner = replace(template, secret=derive(b"innocent vault", b"", number.to_bytes(4, "big")))
            basis = Basis.derive(owner.derivation.basis_key(), demo.hidden_size)
            differences = Differences.between(plain, demo, alignment, basis, sample)
            streams = tuple(replace(owner, recipient=f"r{i}").derivation.noise_key() for i in range(300))
            task = Task(
                differences, ((0, demo.vocab_size),), streams, params.noise_coordinates, params.noise_size, None
            )
            scores = score(task).z
            z.append(scores)
            log10_risk = rademacher_tail_log10(scores) + np.log10(300)
            accused += int((log10_risk <= -6).any())
            best = min(best, float(log10_risk.min()))
    everyone = np.concatenate(z)
    print("| vaults | recipients | suspects | accused | z: mean, deviation, largest | KS p | lowest log10 risk | s |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {number} | 300 | {2 * len(suspects)} | {accused} "
        f"| {everyone.mean():.4f}, {everyone.std():.4f}, {everyone.max():.2f} "
        f"| {kstest(everyone, norm.cdf).pvalue:.2f} | {best:.1f} | {time.perf_counter() - started:.0f} |",
        flush=True,
    )


Curve = dict[tuple[int, float | str], list[tuple[float, float, float]]]
CONSTRAINTS, SCALES = (5, 10, 20), ("auto", 100.0, 1000.0)
MOST_COLLUDERS = 8
KEYS_READ = 3  # keys whose ranks are read, so that 9 settings take minutes


def curve(model: irwm.Checkpoint, root: Path) -> None:
    found: Curve = {}
    for t in CONSTRAINTS:
        for scale in SCALES:
            found[t, scale] = list(curve_of(model, root, t, scale))
    print("| t | scale | reading | " + " | ".join(f"{c}" for c in range(1, MOST_COLLUDERS + 1)) + " |")
    print("|---|---|---|" + "---|" * MOST_COLLUDERS)
    for (t, scale), points in found.items():
        for column, label in (
            (0, "paper: share in the top 50 %"),
            (1, "`joint`, A(original)"),
            (2, "tracing, weakest z"),
        ):
            cells = " | ".join(f"{point[column]:.2f}" if column < 2 else f"{point[column]:.0f}" for point in points)
            print(f"| {t} | {scale if scale == 'auto' else int(scale)} | {label} | {cells} |")
    for dark in (False, True):
        picture(figure(found, dark), ROOT / "docs" / "images" / f"collusion-{'dark' if dark else 'light'}.png")


def curve_of(model: irwm.Checkpoint, root: Path, t: int, scale: float | str) -> Iterator[tuple[float, float, float]]:
    """Yield for 1 to 8 colluders the share of ranks up to 0.5, by the paper's reading and ours, and the weakest z."""
    params = irwm.Parameters(constraints=t, scale=scale, noise_coordinates=t, spread=0.0, permutations=199)
    keys = keys_for(model, [f"guilty {i}" for i in range(MOST_COLLUDERS)], params)
    total = torch.zeros(model.vocab_size, model.hidden_size)
    for count, key in enumerate(keys, start=1):
        total += copy_of(model, key).float()
        suspect = write_embedding(model, total / count, root / f"curve {t} {scale} {count}")
        read = keys[: min(count, KEYS_READ)]
        found = list(irwm.detect_each(irwm.Examination(suspect, model), read))
        paper = [f.paper for f in found if f.paper is not None]
        assert len(paper) == len(found)
        theirs, ours = (
            float(np.mean([(each.ranks <= 0.5).mean() for each in readings]))
            for readings in (paper, [f.reading for f in found])
        )
        yield theirs, ours, min(trace.z for trace in irwm.trace(suspect, model, keys[:count]))


def figure(found: Curve, dark: bool) -> go.Figure:
    c = plot_theme.colours(dark)
    fig = plot_theme.figure(
        "By the paper's rank rule, colluders hide each other",
        "Mean of 1 to 8 copies: share of a colluder's positions ranked in the lower half; 50 % is chance",
        dark=dark,
        height=plot_theme.TALL,
    )
    colliding = list(range(1, MOST_COLLUDERS + 1))
    colours = dict(zip(CONSTRAINTS, (c.null, c.accent, c.ink), strict=True))
    for (t, scale), points in found.items():
        dash = {"auto": "solid", 100.0: "dash", 1000.0: "dot"}[scale]
        name = f"t = {t}, scale {scale if scale == 'auto' else int(scale)}"
        line = {"color": colours[t], "dash": dash, "width": 2}
        fig.add_scatter(x=colliding, y=[100 * p[0] for p in points], name=name, line=line, mode="lines+markers")
    fig.add_hline(y=50, line=plot_theme.dashed(c))
    fig.update_xaxes(title="Copies averaged", dtick=1)
    fig.update_yaxes(title="Ranks in the top 50 %", ticksuffix=" %", range=[40, 102])
    fig.update_layout(margin={"b": 150})
    return fig


def picture(fig: go.Figure, path: Path) -> None:
    """Draw the figure in Chromium, like every picture in docs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        page = browser.new_page(viewport={"width": 1100, "height": plot_theme.TALL})
        page.set_content(fig.to_html(include_plotlyjs=True, config={"displayModeBar": False}))
        page.add_style_tag(content="body { margin: 0 }")
        page.wait_for_timeout(1500)
        page.screenshot(path=path)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/collusion.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        model = write_original(root / "original", options.rows, options.columns)
        for part in options.parts:
            print(f"\n## {part}\n", flush=True)
            with printed_table("collusion.md", part, write=options.write):
                globals()[part](model, root)


if __name__ == "__main__":
    main()
