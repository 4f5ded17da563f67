"""Against `transformers`: their model of the same file, layer by layer."""

import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pellucid.checks.finding import Check, Finding, judged
from pellucid.checks.subject import Subject
from pellucid.errors import PellucidError, quote
from pellucid.interop import huggingface
from pellucid.judge.judge_run import RecordedValue, judge_run
from pellucid.reference.training import forward

MEAN, WORST = 1e-4, 1e-2
TOKENS = 16


@contextlib.contextmanager
def their_model(subject: Subject) -> Iterator[Any]:
    """Their model of the subject's own file; where they cannot open it, of our export of it."""
    path = subject.model.pretrained.source.path
    if subject.model.pretrained.source.format == "huggingface":
        yield _loaded(path)
        return
    if path.suffix == ".gguf":
        model = None
        with contextlib.suppress(Exception):  # they need two more packages for it
            model = _loaded(path.parent, gguf_file=path.name)
        if model is not None:
            yield model
            return
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        huggingface.write(Path(folder) / "model", subject.model.pretrained)
        yield _loaded(Path(folder) / "model")


def _loaded(path: Path, **more: str) -> Any:
    """Without their bars of progress, which would stand among our lines."""
    from transformers import AutoModelForCausalLM

    with contextlib.redirect_stderr(io.StringIO()):
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True, **more)


def logits(subject: Subject) -> Finding:
    """Each of their layers recomputed by the specification from what they gave it; then the log-probabilities
    of the fast engine in float32 against theirs."""
    ids = subject.ids[:TOKENS]
    try:
        with their_model(subject) as theirs, torch.no_grad():
            found = theirs.eval()(torch.tensor([ids]), output_hidden_states=True)
    except ImportError:
        return Finding("skipped", "transformers is not installed: pip install transformers")
    except PellucidError as error:
        return Finding("skipped", str(error))
    except Exception as error:  # another library on somebody's files
        return Finding("skipped", f"transformers cannot read this model: {quote(error)}")
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
    verdict = judged(judge_run(subject.trace(tape, ids), values))
    if verdict.verdict == "BUG":
        return verdict
    ours = subject.module(torch.float32)
    with torch.no_grad():
        mine = ours(torch.tensor([ids], device=ours.device)).cpu()
    apart = (torch.log_softmax(mine.double(), -1) - torch.log_softmax(found.logits.double(), -1)).abs()
    mean, worst = float(apart.mean()), float(apart.max())
    measured = f"log-probabilities {mean:.1e} apart, {worst:.1e} at worst"
    if mean <= MEAN and worst <= WORST:  # not a number is not small
        return Finding("noise", measured)
    return Finding("BUG", measured, "logits", "each of their layers is ours, and the logits are not.")


CHECKS = (
    Check(
        "transformers",
        "transformers computes the same from the same file, layer by layer",
        f"rounding; {MEAN:g} on average, {WORST:g} at worst",
        logits,
    ),
)
