"""A language-model workbench in which every number can be seen, checked and reproduced.

>>> import pellucid
>>> model = pellucid.load("abcd")
>>> found = model.explain("A B", at="probs[t=1,v=2]")
>>> print(f"{found.address} = {found.value:.5f}: {found.formula}, from {found.operands[0].address}")
probs[t=1,v=2] = 0.32384: p[t,v] = e^ℓ[t,v] / Σ_v' e^ℓ[t,v'], from logits[t=1,v=2]
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and type checkers; at run time each is imported when it is first used
    from pellucid import ops
    from pellucid.base.errors import (
        AddressError,
        ConfigError,
        FileError,
        PellucidError,
        RankError,
        ResourceError,
        TapeError,
        TokenError,
        UsageError,
    )
    from pellucid.config import ModelConfig
    from pellucid.engine.taps import edit, record
    from pellucid.evaluation.calibration.calibrate import calibrate
    from pellucid.evaluation.evaluate import evaluate
    from pellucid.evaluation.quantization.quantize import quantize
    from pellucid.evaluation.score import score
    from pellucid.evaluation.tokenizers.compare import compare_tokenizers
    from pellucid.explanation.trace import Trace
    from pellucid.explanation.tracing import trace
    from pellucid.formats.fetch import get
    from pellucid.generation.chat import chat
    from pellucid.generation.conversation import Conversation
    from pellucid.generation.generate import generate
    from pellucid.generation.request import Request
    from pellucid.generation.scheduler import Engine
    from pellucid.generation.settings.sampling import Sampling
    from pellucid.interpretability.look import look
    from pellucid.model import Model, load, save
    from pellucid.reference.tape import Tape
    from pellucid.report.report import Report
    from pellucid.server.explorer.export import explore
    from pellucid.text.tokenizer import Tokenizer
    from pellucid.training.run import Run
    from pellucid.training.train import train
    from pellucid.verbs import explain
    from pellucid.verification.checks.catalogue import verify
    from pellucid.verification.checks.itself import verify_self
    from pellucid.verification.compare import compare

__version__ = "0.2.0"
__all__ = [
    "AddressError",
    "ConfigError",
    "Conversation",
    "Engine",
    "FileError",
    "Model",
    "ModelConfig",
    "PellucidError",
    "RankError",
    "Report",
    "Request",
    "ResourceError",
    "Run",
    "Sampling",
    "Tape",
    "TapeError",
    "TokenError",
    "Tokenizer",
    "Trace",
    "UsageError",
    "calibrate",
    "chat",
    "compare",
    "compare_tokenizers",
    "edit",
    "evaluate",
    "explain",
    "explore",
    "generate",
    "get",
    "load",
    "look",
    "ops",
    "quantize",
    "record",
    "save",
    "score",
    "trace",
    "train",
    "verify",
    "verify_self",
]

_HOMES = {
    "pellucid.verification.checks.catalogue": ("verify",),
    "pellucid.verification.checks.itself": ("verify_self",),
    "pellucid.config": ("ModelConfig",),
    "pellucid.base.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "pellucid.server.explorer.export": ("explore",),
    "pellucid.generation.scheduler": ("Engine",),
    "pellucid.generation.request": ("Request",),
    "pellucid.generation.settings.sampling": ("Sampling",),
    "pellucid.engine.taps": ("edit", "record"),
    "pellucid.reference.tape": ("Tape",),
    "pellucid.report.report": ("Report",),
    "pellucid.verification.compare": ("compare",),
    "pellucid.verbs": ("explain",),
    "pellucid.interpretability.look": ("look",),
    "pellucid.model": ("Model", "load", "save"),
    "pellucid.explanation.tracing": ("trace",),
    "pellucid.evaluation.evaluate": ("evaluate",),
    "pellucid.evaluation.calibration.calibrate": ("calibrate",),
    "pellucid.evaluation.quantization.quantize": ("quantize",),
    "pellucid.evaluation.tokenizers.compare": ("compare_tokenizers",),
    "pellucid.explanation.trace": ("Trace",),
    "pellucid.formats.fetch": ("get",),
    "pellucid.generation.chat": ("chat",),
    "pellucid.generation.generate": ("generate",),
    "pellucid.generation.conversation": ("Conversation",),
    "pellucid.evaluation.score": ("score",),
    "pellucid.training.run": ("Run",),
    "pellucid.text.tokenizer": ("Tokenizer",),
    "pellucid.training.train": ("train",),
}
"""The public names of each module."""


def __getattr__(name: str) -> object:
    """Imports on first use, so that a command pays only for what it needs."""
    import importlib

    if name == "ops":
        return importlib.import_module("pellucid.ops")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names, for `dir(pellucid)` and Tab."""
    return [*__all__, "__version__"]
