"""The specification's speed at the shape of SmolLM2-135M, beside what reading the weights alone takes.

python -m benchmarks.specification
"""

import datetime
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from pellucid.config import preset
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.training import forward

TOKENS = 8
GIB = 2**30


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def random_weights(seed: int = 0) -> dict[str, Array]:
    draw = np.random.default_rng(seed)
    shapes = preset("smollm2-135m").parameters()
    return {
        name: draw.standard_normal(shape) * (1.0 if len(shape) == 1 else 0.02)
        for name, shape in shapes.items()
    }


def start_time() -> float:
    """Best of five starts of a command that needs no torch."""
    command = [sys.executable, "-m", "pellucid.cli", "explain", "abcd", "A B", "--at", "probs[1,2]"]
    return min(timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(5))


def main() -> None:
    config, weights = preset("smollm2-135m"), random_weights()
    ids = np.random.default_rng(1).integers(0, config.vocab_size, (1, TOKENS))
    reading = min(timed(lambda: [w.sum() for w in weights.values()]) for _ in range(3))
    size = sum(w.nbytes for w in weights.values())
    ahead = min(timed(lambda: forward(config, weights, ids, np.roll(ids, -1))) for _ in range(3))
    start = time.perf_counter()
    tape = forward(config, weights, ids, np.roll(ids, -1))
    tape.backward(tape.ref("loss"))
    both = time.perf_counter() - start
    trace = Trace(tape)
    addresses = (
        "probs[t=7,v=11]",
        "blocks.5.attn.pattern[h=3,t=3,s=1]",
        "d.blocks.5.mlp.up_proj.weight[3,17]",
    )
    cells = {at: min(timed(lambda at=at: derive(trace, at, depth=0)) for _ in range(5)) for at in addresses}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    print(f"{datetime.date.today()}  {platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}")
    print(f"SmolLM2-135M shape, random weights, {TOKENS} tokens, float64, every value kept")
    print(f"limit: reading the weights once   {reading:7.3f} s   ({size / reading / 1e9:.1f} GB/s)")
    print(
        f"forward and loss                  {ahead:7.3f} s   ({reading / ahead:.0%} of it reading; asked ≤ 1)"
    )
    print(f"forward, loss and backward        {both:7.3f} s   (asked ≤ 6)")
    print(f"peak memory with weights          {peak:7.2f} GiB (asked ≤ 4)")
    for at, seconds in cells.items():
        print(f"one cell explained                {seconds * 1e3:7.2f} ms  {at} (asked ≤ 10)")
    print(f"start of a command without torch  {start_time():7.3f} s   (asked ≤ 0.35)")


if __name__ == "__main__":
    main()
