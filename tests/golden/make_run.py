"""Makes a run as this version writes it, for later versions to go on with: run-N, N the checkpoints' format.

    python -m tests.golden.make_run

A format that was once released is made no more: its folder stays as it is.
"""

import os
import shutil
import tempfile
from pathlib import Path

from pellucid.formats.checkpoint_manifest import VERSION
from tests.training.small_run_folders import trained

HERE = Path(__file__).parent
HALF, WHOLE = 50, 100
CHANGES = (
    f"steps={WHOLE}",
    f"checkpoint.every={HALF}",
    "checkpoint.keep=2",
    "evaluation.every=50",
    "model.n_layer=1",
    "optimizer.kind=muon",
    "train.accumulate=2",
    "train.ema=0.9",
    "train.device=cpu",
    "train.initialization=gpt2",
)
"""Two optimizers in one, and a running mean beside the weights; no dropout, whose random numbers differ
on other kinds of processors. The initialization is named, so that a model of 8 channels starts as that of
run-2 did."""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # so that no path of this machine is in the run
        out = Path("run")
        trained(out, *CHANGES)
        for name in ("checkpoints/step-0000100", "model", "best"):
            shutil.rmtree(out / name)
        for name in ("lock", "recorder.jsonl"):
            (out / name).unlink()
        shutil.copytree(out, HERE / f"run-{VERSION}")


if __name__ == "__main__":
    main()
