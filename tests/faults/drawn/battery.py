"""What people run, on tiny models and runs: texts, log-probabilities, ledgers, scores, and training logs.

No check of the package has a part in it. Each part's figures begin with its subject and its name; a part
that raises has that for its only figure.
"""

import json
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pellucid
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder, find_obstacle
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import Model
from pellucid.training.history.log import CLOCK
from pellucid.training.resume import resume
from pellucid.training.saving.run_folder import RunFolder
from tests.faults.drawn.figures import Figures, flatten
from tests.faults.drawn.tiny import RUNS, TinyModel, open_tiny
from tests.training.small_run_folders import trained

IDS = [(7 * i * i + 3 * i + 5) % 250 + 3 for i in range(60)]
AGAIN = [*IDS[:9], *IDS[:9], *IDS[:5]]
"""A text that repeats itself, from which tokens can be proposed."""
SAMPLED: dict[str, dict[str, Any]] = {
    "filters": {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "min_p": 0.01},
    "typical": {"temperature": 1.3, "typical_p": 0.8},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    "bias": {"logit_bias": {17: 4.0, 40: -3.0}, "banned_tokens": [5, 6], "temperature": 2.0},
    "forced": {"forced_tokens": [9, 11], "min_new_tokens": 6},
    "three": {"n": 3, "temperature": 1.5},
    "beams": {"beams": 3, "length_penalty": 0.7},
    "early": {"beams": 2, "early_stopping": True, "n": 2},
    "digits": {"regex": "([0-9]{2,3}-)+[a-c]?x"},
    "words": {"regex": "(?:the|a) [^a-f]*[k-z]+|in{2}"},
    "object": {
        "json_schema": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 3, "maximum": 170},
                "kind": {"enum": ["a", "the"]},
                "on": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
            },
            "required": ["n", "kind", "on"],
            "additionalProperties": False,
        },
        "max_new_tokens": 34,
    },
    "either": {
        "json_schema": {
            "anyOf": [
                {"type": "integer", "minimum": -25, "exclusiveMaximum": 1234},
                {"type": "string", "minLength": 2, "maxLength": 4},
                {"type": "string", "pattern": "^[a-e]+$"},
                {"type": ["number", "null"]},
                {"$ref": "#/$defs/pair"},
            ],
            "$defs": {"pair": {"type": "array", "items": {"const": "in"}, "minItems": 2, "maxItems": 3}},
        },
        "temperature": 3.0,
        "n": 8,
    },
}
"""Settings of generation by name."""
STORY = {"grammar": "stories:easy", "max_new_tokens": 300, "temperature": 2.0}


def run_battery(folder: Path) -> Figures:
    """Returns every figure; the subjects' files are in the folder, where runs are trained."""
    found = Figures()
    for subject, part, compute in list_parts(folder):
        try:
            figures = flatten(compute())
        except Exception as error:
            figures = {"": [describe_error(error)]}
        found |= {f"{subject}/{part}{name}": values for name, values in figures.items()}
    return found


def describe_error(error: BaseException) -> str:
    """Returns what was raised, in which files of the package: "raised TypeError in engine/norms.py, …"."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files = dict.fromkeys(
        name.rpartition("/pellucid/")[2] for name in reversed(frames) if "/pellucid/" in name
    )
    return f"raised {type(error).__name__} in {', '.join(files)}: {error}"[:400]


def list_parts(folder: Path) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    for name in TinyModel.ALL:
        model: list[Model] = []

        def get(name: str = name, model: list[Model] = model) -> Model:
            if not model:
                model.append(open_tiny(folder, name))
            return model[0]

        for part, compute in MODEL_PARTS.items():
            yield name, part, partial(lambda compute, get: compute(get()), compute, get)
        if name == "alibi":
            yield name, "story", partial(lambda get: write(get(), IDS[:4], **STORY), get)
        if name == "llama":
            for part, options in SAMPLED.items():
                yield name, part, partial(lambda options, get: write(get(), **options), options, get)
            for part, compute in ENGINE_PARTS.items():
                yield name, part, partial(lambda compute, get: compute(get()), compute, get)
    for run in RUNS:
        yield run, "run", partial(train, folder, run)


# ---- parts of a model


def write(model: Model, prompt: list[int] | None = None, **options: Any) -> Any:
    """A generated text with its ledger."""
    given = {"temperature": 0.8, "seed": 7, "max_new_tokens": 14, "stop_ids": ()} | options
    if "beams" in options:
        given["temperature"] = 0.0
    _, ledger = model.generate(IDS[:9] if prompt is None else prompt, return_ledger=True, **given)
    return {"completions": ledger.completions, "cuts": ledger.shortenings, "beams": ledger.beams} | {
        "replayed": str(ledger.replay())
    }


def read_logits(model: Model) -> Any:
    """Logits of a text, and of two texts of unequal lengths."""
    both = model.logits([IDS[:7], IDS[5:25]]).float().nan_to_num(0.0)
    return {"one": model.logits(IDS[:33]).float().numpy(), "two": both.numpy()}


def decode_compiled(model: Model) -> Any:
    """Logits of the compiled decoder: prompts of several lengths in one call, then decode steps."""
    if find_obstacle(model.module) is not None:
        return {}
    found = {}
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        decoder = NativeDecoder(model.module)
        decoder.threads = 2
        caches = [Cache(model.config, 1, 48, dtype=dtype) for _ in range(2)]
        prompts = list(zip(caches, (IDS[:35], IDS[3:12]), strict=True))
        logits = [decoder.forward_packed(prompts, [34, 43])]
        logits += (decoder.forward_packed([(cache, [id]) for cache in caches], [0, 1]) for id in IDS[40:44])
        found[f"{dtype}".removeprefix("torch.")] = torch.cat(logits).float().numpy()
    return found


def run_engine(model: Model, **options: Any) -> Any:
    """Four texts at once in the slots of one cache, whose prompts begin alike, in PyTorch."""
    engine = Engine(model.module, model.tokenizer, slots=3, chunk=8, capacity=52, **options)
    settings: list[dict[str, Any]] = [
        {}, {"temperature": 0.7, "seed": 3}, {"temperature": 1.1, "top_k": 9}, {},
    ]  # fmt: skip
    prompts = (IDS[:26], IDS[:19], [*IDS[:17], *IDS[30:35]], AGAIN)
    done = []
    for prompt, own in zip(prompts, settings, strict=True):
        sampling = Sampling(max_new_tokens=7, stop_ids=(), **{"temperature": 0.0, "seed": 4, **own})
        request = Request(
            tuple(prompt), sampling, logprobs=True, prompt_logprobs=True, top_logprobs=3, uncertainty=True
        )
        done.append(engine.add(request, streams=False))
    found = [handle.result() for handle in done]
    return {"texts": found, "prompts": [getattr(handle, "prompt_logprobs", None) for handle in done]}


MODEL_PARTS: dict[str, Callable[[Model], Any]] = {
    "logits": read_logits,
    "compiled": decode_compiled,
    "score": lambda model: model.score(IDS[:25]).logprobs[1:],
    "greedy": lambda model: write(model, temperature=0.0),
    "drawn": lambda model: write(model, top_p=0.95),
    "engine": run_engine,
}
"""Of every model."""
ENGINE_PARTS: dict[str, Callable[[Model], Any]] = {
    "int8 cache": lambda model: write(model, cache="int8"),
    "bfloat16 cache": lambda model: write(model, cache="bfloat16"),
    "lookup": lambda model: write(model, AGAIN, lookup=True, temperature=0.3),
    "draft": lambda model: write(model, draft=model, draft_tokens=3),
    "cropped": lambda model: write(model, IDS[:58], context="crop", max_new_tokens=12),
    "kept": lambda model: write(model, IDS[:58], context="roll", keep=4, max_new_tokens=12),
    "lookup engine": lambda model: run_engine(model, lookup=True),
    "static": lambda model: run_engine(model, is_static=True),
    "text": lambda model: [*model.stream("the 12 in a", 12, 0.7, 5, stop="zz")],
    "likelihood": lambda model: model.loglikelihood("the 1", [" the", "2 in a", "!"]),
}
"""Of the first model alone."""


# ---- runs


def train(folder: Path, name: str) -> Any:
    """The log of a training run, which is interrupted and resumed, and its last weights."""
    path = folder / "runs" / name
    changes = [change.replace("FOLDER", str(folder)) for change in RUNS[name]]
    trained(path, *changes)
    run = RunFolder(path)
    with run.lock():
        list(resume(run, lambda _: None, changes=["steps=8"]).events())
    lines = [json.loads(line) for line in (path / "log.jsonl").read_text("utf-8").splitlines()]
    hidden = {*CLOCK, "folder"}
    log = [{key: value for key, value in line.items() if key not in hidden} for line in lines]
    weights = pellucid.load(path).weights
    norms = {key: float(np.linalg.norm(np.asarray(value, np.float64))) for key, value in weights.items()}
    ends = {key: np.asarray(value, np.float64).ravel()[-4:] for key, value in weights.items()}
    return {"log": log, "norms": norms, "ends": ends}
