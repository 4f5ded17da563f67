"""Training on a GPU: the step of GPT-2 124M beside its peers and its limit, and how low two recipes get.

python -m benchmarks.gpu step           tokens a second, the fraction of the measured peak, memory
python -m benchmarks.gpu shakespeare    the recipe `shakespeare_char`: the best loss within a minute
python -m benchmarks.gpu books          the recipe `books`: bits per byte after five minutes

PELLUCID_DATA names a folder with shakespeare.txt, books-train.txt.xz and books-valid.txt. The step is that of
GPT-2's shape and curve without biases, for all contestants, on random tokens: the speed is the same.
"""

import argparse
import datetime
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from benchmarks.training import BETAS, CLIP, DECAY, LR, Peer, RandomRows, make_run
from pellucid.config.cost import count_flops_per_token
from pellucid.training.events import Evaluated, Stepped
from pellucid.training.machine import measure_peak
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override, read_table
from pellucid.training.resume import begin
from pellucid.training.saving.run_folder import RunFolder

SHAPE = (12, 12, 768, 1024, 50304)
ASKED, MEMORY = 600_000, 21.5
"""Tokens a second; GiB at 32 rows."""
OURS = {"mlp": "gelu_tanh", "device": "cuda", "compile": True, "dtype": "bfloat16", "weights": "bfloat16"}
ROUNDS, STEPS = 3, 10
Step = Callable[[], object]
Maker = Callable[[int, int], Step]
"""Makes a step from the rows of a micro-batch and the number of micro-batches before an update."""


def peers_step(model: nn.Module, rows: int, parts: int, loss: Callable[..., torch.Tensor]) -> Step:
    """nanoGPT's loop: autocast, a fused AdamW, clipping, one graph; the loss is not waited for."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, fused=True)
    forward, random_rows = torch.compile(loss), RandomRows(SHAPE[3], SHAPE[4])

    def step() -> None:
        for _ in range(parts):
            drawn = random_rows.take(rows, slice(0, rows))
            ids, targets = (
                torch.from_numpy(x).pin_memory().to("cuda", non_blocking=True)
                for x in (drawn.ids, drawn.targets)
            )
            with torch.autocast("cuda", torch.bfloat16):
                value = forward(ids, targets) / parts
            value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def ours(rows: int, parts: int) -> Step:
    return make_run(SHAPE, rows * parts, accumulate=parts, **OURS).step


def nano(rows: int, parts: int) -> Step:
    torch.manual_seed(0)
    model = Peer(*SHAPE, approximate="tanh").cuda()
    return peers_step(model, rows, parts, model)


def transformers(rows: int, parts: int) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=SHAPE[4], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config).cuda()

    def loss(ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=ids).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return peers_step(model, rows, parts, loss)


def seconds(step: Step, steps: int) -> float:
    """Of one step, the mean of a few behind one another."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def race(makers: list[Maker], rows: int, parts: int = 1) -> None:
    """Every contestant alone on the device, for its memory; then its fastest of a few rounds."""
    limit = measure_peak("cuda", "bfloat16")
    per_token = count_flops_per_token(make_run(SHAPE, rows, device="cpu", compile=False).state.model.config)
    an_update = f"{parts} × {rows} × {SHAPE[3]} tokens" if parts > 1 else f"{rows} × {SHAPE[3]} tokens"
    print(f"GPT-2 124M, {an_update} an update, bfloat16; products {limit / 1e12:.0f} TFLOP/s")
    for make in makers:
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step = make(rows, parts)
        steps = max(2, STEPS // parts)
        seconds(step, steps)
        best = min(seconds(step, steps) for _ in range(ROUNDS))
        speed, memory = parts * rows * SHAPE[3] / best, torch.cuda.max_memory_allocated() / 2**30
        share, name = speed * per_token / limit, "nanoGPT-style" if make is nano else make.__name__
        print(f"  {name:<14} {speed:8.0f} tokens/s, {share:.0%} of the peak, {memory:.1f} GiB", flush=True)
        del step


def step() -> None:
    race([ours, nano, transformers], 64)
    race([ours, nano], 64, parts=8)  # half a million tokens an update, as this shape is usually trained
    print(f"  (asked ≥ {ASKED} tokens/s)")
    race([ours, nano], 32)
    print(f"  (asked < {MEMORY} GiB)")


def learned(name: str, *changes: str) -> None:
    """A shipped recipe, run as a user runs it; every evaluation on a line."""
    with tempfile.TemporaryDirectory() as place:
        recipe = Recipe.from_dict(override(read_table(name), [f"out={place}/run", *changes]))
        folder, begun = RunFolder(Path(recipe.out)), time.perf_counter()
        with folder.lock():
            run = begin(recipe, folder, print)
            print(f"prepared in {time.perf_counter() - begun:.0f} s")
            compiled = 0.0
            for event in run.events():
                if isinstance(event, Stepped) and not compiled:
                    compiled = event.seconds
                if isinstance(event, Evaluated):
                    bits = f", {event.bits_per_byte:.4f} bits per byte" if event.bits_per_byte else ""
                    at = f"step {event.step}, {run.state.meters.seconds - compiled:.0f} s"
                    print(
                        f"  {at}: {event.loss:.4f} nats per token{bits}{' (best)' * event.best}", flush=True
                    )
        parameters = sum(p.numel() for p in run.state.weights.named.values())
        speed = run.state.meters.tokens / (run.state.meters.seconds - compiled)
        print(f"  {parameters:,} parameters, best {run.state.meters.best_loss:.4f} nats per token")
        print(f"  {speed:.0f} tokens/s after a first step of {compiled:.0f} s, which compiled")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["step", "shakespeare", "books"])
    what, texts = parser.parse_args().what, os.environ.get("PELLUCID_DATA", ".")
    print(f"{datetime.date.today()}  {torch.cuda.get_device_name()}, torch {torch.__version__}")
    if what == "step":
        step()
    elif what == "shakespeare":
        learned("shakespeare_char", f"data.path={texts}/shakespeare.txt")
        print("  (asked ≤ 1.465 on the whole validation set within 60 s; nanoGPT 1.469 by an estimate)")
    else:
        learned("books", f"data.path={texts}/books-train.txt.xz", f"data.validation={texts}/books-valid.txt")
        print("  (asked ≤ 1.36 bits per byte after 300 s; nanoGPT's model and loop 1.403)")


if __name__ == "__main__":
    main()
