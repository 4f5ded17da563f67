"""Checks a model against `transformers` on the same file, layer by layer."""

import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pellucid.checks.check import Check, Subject
from pellucid.errors import PellucidError, quote
from pellucid.interop import huggingface
from pellucid.judge.judge_run import judge_run
from pellucid.judge.recorded import RecordedValue
from pellucid.judge.verdict import Finding, Verdict
from pellucid.reference.training import forward

MEAN, WORST = 1e-4, 1e-2
TOKENS = 16


@contextlib.contextmanager
def load_theirs(subject: Subject) -> Iterator[Any]:
    """Yields transformers' model of the subject's own file, or of our export where it cannot open that."""
    path = subject.model.pretrained.provenance.path
    if subject.model.pretrained.provenance.format == "huggingface":
        yield _load(path)
        return
    if path.suffix == ".gguf":
        model = None
        with contextlib.suppress(Exception):  # transformers needs two more packages for it
            model = _load(path.parent, gguf_file=path.name)
        if model is not None:
            yield model
            return
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        huggingface.write(Path(folder) / "model", subject.model.pretrained)
        yield _load(Path(folder) / "model")


def _load(path: Path, **more: str) -> Any:
    """Loads a model without the progress bars of transformers, which would mix with our output."""
    from transformers import AutoModelForCausalLM

    with contextlib.redirect_stderr(io.StringIO()):
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True, **more)


def measure_logits(subject: Subject) -> Finding:
    """Recomputes each of their layers by the specification from its own input; then compares the
    log-probabilities of the fast engine in float32 with theirs."""
    ids = subject.ids[:TOKENS]
    try:
        with load_theirs(subject) as theirs, torch.no_grad():
            found = theirs.eval()(torch.tensor([ids]), output_hidden_states=True)
    except ImportError:
        return Finding(Verdict.SKIPPED, "transformers is not installed: pip install transformers")
    except PellucidError as error:
        return Finding(Verdict.SKIPPED, str(error))
    except Exception as error:  # another library on an untrusted file
        return Finding(Verdict.SKIPPED, f"transformers cannot read this model: {quote(error)}")
    last = len(found.hidden_states) - 1
    names = {i: f"blocks.{i - 1}.resid_post" for i in range(1, last)} | {
        0: "blocks.0.resid_pre",
        last: "final_norm.out",
    }
    recorded = {name: found.hidden_states[i] for i, name in names.items()} | {"logits": found.logits}
    tape = forward(subject.config, subject.weights, [ids])
    values = {
        name: RecordedValue(value.double().numpy(), "float32")
        for name, value in recorded.items()
        if name in tape
    }
    judged = judge_run(subject.trace(tape, ids), values).summarize()
    if judged.verdict is Verdict.BUG:
        return judged
    ours = subject.module(torch.float32)
    with torch.no_grad():
        mine = ours(torch.tensor([ids], device=ours.device)).cpu()
    apart = (torch.log_softmax(mine.double(), -1) - torch.log_softmax(found.logits.double(), -1)).abs()
    mean, worst = float(apart.mean()), float(apart.max())
    measured = f"log-probabilities {mean:.1e} apart, {worst:.1e} at worst"
    if mean <= MEAN and worst <= WORST:  # NaN fails as well
        return Finding(Verdict.NOISE, measured)
    return Finding(
        Verdict.BUG, measured, "logits", "each layer agrees with transformers, and the logits do not."
    )


CHECKS = (
    Check(
        "transformers",
        "`transformers` computes the same values from the same file, layer by layer.",
        f"rounding; {MEAN:g} on average, {WORST:g} at worst",
        measure_logits,
    ),
)
