"""`pellucid.verify_self`: the checks of the program itself, on models that it brings along.

A user's model may be broken, and so may its files; these are not. `abcd` has almost no parts, the others have
between them grouped heads, RoPE, learned positions, a window, both norms, biases and both unembeddings.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pellucid.base.arguments import check_bool, check_function, check_text
from pellucid.config import ModelConfig
from pellucid.formats import model_folder
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.model import Model, load
from pellucid.reference.op import Array
from pellucid.text.kinds import train
from pellucid.training.machine import use_threads
from pellucid.verification.checks.catalogue import select_checks
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.verdict import Finding, Judged, VerifyReport

SEED, SCALE = 0, 0.15
"""The standard deviation of the weights makes every part visible in the logits: attention patterns are
neither uniform nor one key's, and biases are not 0."""
SIZES = {"vocab_size": 258, "context_length": 64, "n_layer": 2, "n_head": 4, "d_model": 64, "d_ff": 96}
RANDOM: dict[str, dict[str, Any]] = {
    "random llama": SIZES | {"context_length": 160, "n_kv_head": 2, "unembedding": "linear"},
    "random gpt2": SIZES
    | {
        "positions": "learned",
        "mask": {"kind": "window", "size": 9},
        "norm": "layer_norm",
        "mlp": "gelu_tanh",
        "biases": ["qkv", "output", "mlp", "norm"],
    },
}
"""The configs of the models with random weights."""


def verify_self(
    *,
    quick: bool = False,
    device: str = "cpu",
    before: Callable[[Check[Any]], None] = lambda check: None,
    after: Callable[[Finding], None] = lambda finding: None,
) -> VerifyReport:
    """Measures those claims of `pellucid.verify` that judge this program, on `abcd` and two models with
    random weights, and returns what was found.

    A bug here is one of this program: no model, file or machine of a user's own need be mended. `quick`,
    `device`, `before` and `after` are those of `pellucid.verify`. `report.by_model` has the report on each
    model, and `report[NAME]` the gravest finding of a check.

    >>> import pellucid
    >>> report = pellucid.verify_self(quick=True)  # doctest: +SKIP
    >>> bool(report), list(report.by_model)  # doctest: +SKIP
    (True, ['abcd', 'random llama', 'random gpt2'])
    """
    quick = check_bool("quick", quick)
    for parameter, function in (("before", before), ("after", after)):
        check_function(parameter, function)
    findings: list[Finding] = []
    with TemporaryDirectory() as folder, use_threads(1):  # on models so small, threads only wait
        for name, model in open_models(Path(folder), check_text("device", device)):
            subject = Subject(model, is_quick=quick)
            for check in select_checks(quick, model.resolve_device().type):
                if check.judges is Judged.PROGRAM:
                    before(check)
                    findings.append(replace(check.run(subject), model=name))
                    after(findings[-1])
    return VerifyReport(tuple(findings))


def open_models(folder: Path, device: str) -> Iterator[tuple[str, Model]]:
    """Yields each model with its name; those with random weights are written into the folder and read from
    there, as a user's are."""
    yield "abcd", load("abcd", device=device)
    for name, config in RANDOM.items():
        model_folder.write(folder / name, make_model(name, ModelConfig.from_dict(config)))
        yield name, load(folder / name, device=device)


def make_model(name: str, config: ModelConfig) -> Pretrained:
    """Returns a model with weights N(0, 0.15²), gains N(1, 0.15²), and a tokenizer of bytes."""
    draw = np.random.default_rng(SEED)
    weights: dict[str, Array] = {}
    for parameter, shape in config.parameters().items():
        mean = 1.0 if parameter.endswith("norm.weight") else 0.0
        weights[parameter] = draw.normal(mean, SCALE, shape).astype(np.float32)
    nowhere = Provenance(Path(), "memory", "pellucid", {}, 0)
    return Pretrained(name, config, weights, train("bytes", ()), nowhere)
