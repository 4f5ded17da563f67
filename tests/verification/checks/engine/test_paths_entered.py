"""No line of the fast engine exists that no check enters, so that a new kernel or path needs a check."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

import pellucid
from pellucid.engine import linear, positions
from pellucid.model import Model
from pellucid.verification.checks.check import DTYPES, Subject
from pellucid.verification.checks.engine import paths, schedule
from pellucid.verification.run_report import RunReport
from tests.formats.gguf import random_models
from tests.verification.checks.subjects import find_check

ENGINE = Path(pellucid.__file__).parent / "engine"
LLAMA, GPT2 = random_models.LLAMA, random_models.GPT2
LINEAR = {"attention": "linear_elu", "context_length": 80}  # longer than a chunk
MODELS = (
    LLAMA | {"qk_norm": LLAMA["norm"], "mask": {"kind": "window", "size": 9}, "positions": "t5"},
    GPT2 | {"embed_norm": "layer_norm", "mask": {"kind": "prefix", "length": 3}, "placement": "post"},
    GPT2 | {"positions": "alibi", "mlp": "relu_squared", "placement": "sandwich", "biases": ["unembed"]},
    LLAMA | {"score_cap": {"kind": "tanh", "limit": 5.0}, "residual": "scaled", "mlp": "gelu"},
    LLAMA | LINEAR | {"positions": "sinusoidal", "mlp": "relu", "norm": "none"},
    LLAMA | {"positions": "none", "attention": "linear_random", "residual": "none"},
    LLAMA | {"attention": "linear_relu", "mask": "none", "logit_cap": {"kind": "tanh", "limit": 9.0}},
    LLAMA | {"attention": {"kind": "tiled", "tile": 8}, "mlp": "none"},
)
"""Together they have every kind of part that the fast engine computes in its own way."""
QUANTIZED = LLAMA | {"d_ff": 100}  # not a multiple of a group
MADE = (
    *("specification", "gradients", "float32", "bfloat16", "float16", "far positions"),
    *("fused", "batched", "padded", "packed rows", "training pass", "cached", "chunked prefill"),
    *("scheduled", "scheduled together", "decoded", "long prompt"),
    *("far decoding", "int8 cache", "backward paths"),
)
ELSEWHERE = {
    "initializations.py": "weights before the first step, not what is computed from them",
    "lora.py": "adapters are merged before a model is verified; a run with them is verified as a run",
    "device_memory.py": "which device computes, and how much of its memory is free",
    "compile_cache.py": "where compiled code is kept",
    "compiler.py": "which code is compiled: the check `compiled`",
    "recording.py": "what a recording shows",
    "taps.py": "how values are recorded and edited",
    "cross_entropy_kernel.py": "runs on a GPU alone: the check `backward paths` there",
    "tables.py": "tables that are made once",
}
"""Files that do not compute a value of a verified model on a CPU, and why."""
NOT_HERE = {
    "activations.py: gelu_by_sigmoid": "compiled for a GPU",
    "activations.py: gelu_tanh": "its line for compiled code of a GPU",
    "chunked_loss.py: _score_chunk": "its lines for the GPU kernel",
    "chunked_loss.py: _sum_chunks": "its line for a loss without gradients",
    "chunked_loss.py: _add_product": "weights in half precision: a run is verified as a run",
    "chunked_loss.py: _multiply": "the same",
    "chunked_loss.py: _dtype": "autocast: a run is verified as a run",
    "cache.py: __init__": "its lines for CUDA graphs",
    "cache.py: advance": "its line for a GPU",
    "cache.py: advance_rows": "for a GPU: `tests/engine/gpu`",
    "cache.py: set_lengths": "its line for a GPU",
    "cache.py: reorder": "beams of a cache that a user makes: `test_cache.py`",
    "cache.py: bytes": "a size",
    "linear.py: linear": "its lines for CPUs without instructions for half precision",
    "linear.py: _multiply_rows": "one of two branches, by the CPU",
    "linear.py: widen_weight": "for looking inside",
    "linear.py: multiply": "for looking inside",
    "linear.py: project": "layers with adapters",
    "attention.py: _sum_heads": "for looking inside",
    "attention.py: forward": "its line for looking inside",
    "layer_cache.py: make_zeros": "pages of the system, for large caches",
    "transformer.py: _checkpoint": "its line for compiled code",
    "transformer.py: _count_positions": "the same",
    "transformer.py: weights": "a copy",
    "transformer.py: __init__": "random weights",
    "transformer.py: from_weights": "its line for a GPU",
    "transformer.py: _load_weight": "a shared parameter: `conventions`, of a model that knows the text",
    "precision.py: disable_reduced_precision_reduction": "a GPU's products",
    "transformer.py: forward_packed": "the logits of some tokens alone: the check `generated`",
    "transformer.py: forward_cached": "the logits of the last token, which nothing asks for",
    "positions.py: cover": "its line for compiled code",
    "positions.py: forward": "a fixed table of biases: no kind of ours has one, a user's may",
    "tiled.py: __call__": "a scope that records nothing",
    "cache.py: batch": "a size",
    "quantized_tensor.py: ndim": "a size",
    "quantized_tensor.py: __len__": "a size",
    "quantized_tensor.py: extra_repr": "words",
    "quantized_tensor.py: _apply": "moved to another type or device: `test_quantized_tensor.py`",
    "transformer.py: cache_dtype": "a type",
    "transformer.py: empty": "memory",
    "transformer.py: check_ids": "arguments",
    "loss.py: loss": "class weights: a run is verified as a run",
    "loss.py: _compute_explicit": "class weights and smoothing are not watched",
    "loss.py: _count_targets": "class weights",
    "dropout.py: forward": "training: a run is verified as a run",
    "precision.py: sums_narrowly": "half precision in training: a run is verified as a run",
    "norms.py: forward": "half precision in training",
    "softmax.py: forward": "its lines for half precision in training",
    "softmax.py: _attend_for_training": "half precision in training",
    "softmax.py: _multiply": "the same",
}
"""Functions with lines that no check of a model enters on a CPU, and why."""


def find_missing(measured: coverage.Coverage) -> Iterator[str]:
    """Yields FILE: FUNCTION and the line of every statement that was not run and does not raise."""
    for file in sorted(ENGINE.rglob("*.py")):
        if file.relative_to(ENGINE).parts[0] in ("cpu", "gpu"):  # calls of C and Triton, judged as wholes
            continue
        if file.name in ELSEWHERE or file.name == "__init__.py":
            continue
        tree = ast.parse(file.read_text())
        raised = {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.Raise)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        _, _, _, missing, _ = measured.analysis2(str(file))
        for line in sorted(set(missing) - raised):
            owners = [node for node in functions if node.body[0].lineno <= line <= (node.end_lineno or 0)]
            owner = max(owners, key=lambda node: node.lineno).name if owners else ""
            if owner and f"{file.name}: {owner}" not in NOT_HERE:
                yield f"{file.name}: {owner}, line {line}: {file.read_text().splitlines()[line - 1].strip()}"


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tool traces the lines that are run")
def test_every_line_of_the_fast_engine_is_entered_by_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above 10 s: nine models run on every path, with each line counted. What they compute is not judged."""
    monkeypatch.setattr(paths, "judge_run", lambda *given, **more: RunReport(()))
    monkeypatch.setattr(Subject, "dtypes", DTYPES[1:3])
    monkeypatch.setattr(schedule, "ROUNDS", 1)
    monkeypatch.setattr(positions, "FIRST_POSITIONS", 4)
    monkeypatch.setattr(linear, "_TRIED", {})
    measured = coverage.Coverage(data_file=None, config_file=False, include=[f"{ENGINE}/*"])
    measured.start()
    try:
        for shape, weights in (*((shape, None) for shape in MODELS), (QUANTIZED, "int4")):
            subject = Subject(Model(random_models.model(shape | {"n_layer": 1}), weights=weights))
            for check in map(find_check, MADE):
                assert not check.run(subject).verdict.is_failure, check.name
    finally:
        measured.stop()
    missing = list(find_missing(measured))
    assert not missing, "\n".join(missing)
