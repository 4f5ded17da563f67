"""`pellucid.verify`: every check of the catalogue, the nearest to the arithmetic first."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pellucid.base.arguments import check_bool, check_function, check_int, check_text
from pellucid.base.errors import UsageError
from pellucid.explanation.probe.difference import ERRORS
from pellucid.explanation.probe.probe import encode_evidence
from pellucid.formats.resolve import is_run
from pellucid.model import Model, load
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.engine import (
    cache,
    edited,
    engines,
    far_positions,
    gpu,
    gradients,
    native,
    paths,
    schedule,
)
from pellucid.verification.checks.engine.paths import ROUNDING
from pellucid.verification.checks.files import file_weights, weights
from pellucid.verification.checks.generation import (
    constrained,
    figures,
    generated,
    repeated,
    sampling,
    shortcuts,
    whole_model,
)
from pellucid.verification.checks.outside import huggingface, llamacpp, prompts, tokens
from pellucid.verification.mismatch import BETWEEN_ENGINES
from pellucid.verification.verdict import Finding, Judged, Verdict, VerifyReport

CHECKS: tuple[Check[Subject], ...] = (
    Check("weights", "Every weight is a finite number.",
          "no NaN, no Inf", weights.measure_finite, Judged.MODEL, required=True),
    Check("file weights", "Every weight is the number that a second reader finds in the file.",
          "bit for bit", file_weights.measure_file_weights),
    Check("engine weights", "Every parameter of the fast engine is the weight, rounded once to its type.",
          "bit for bit", file_weights.measure_engine_weights),
    Check("specification", "The fast engine in float64 gives every value that the specification names.",
          f"{BETWEEN_ENGINES:g}", engines.measure_values),
    Check("gradients", "The fast engine in float64 gives every gradient that the specification derives.",
          f"{BETWEEN_ENGINES:g}", engines.measure_gradients, quick=False, needs_floats=True),
    Check("float32", "Each step in float32 equals the result recomputed from its own inputs within rounding.",
          ROUNDING, engines.judge_precision(torch.float32, "eager"), Judged.MACHINE),
    Check("bfloat16",
          "Each step in bfloat16 equals the result recomputed from its own inputs within rounding.",
          ROUNDING, engines.judge_precision(torch.bfloat16, "eager"), Judged.MACHINE),
    Check("float16", "Each step in float16 equals the result recomputed from its own inputs within rounding.",
          ROUNDING, engines.judge_precision(torch.float16, "eager"), Judged.MACHINE, quick=False),
    Check("far positions",
          "At the end of the context, each step in bfloat16 equals its recomputed result within rounding.",
          ROUNDING, engines.judge_far_positions, quick=False),
    Check("compiled",
          "In float32, each span of steps in compiled code equals its recomputed result within rounding.",
          ROUNDING, engines.judge_precision(torch.float32, "compiled"), Judged.MACHINE, quick=False),
    Check("fused", "Each span of steps in a fused kernel equals its recomputed result.",
          ROUNDING, paths.judge_path(paths.run_fused)),
    Check("batched", "Each value of a row of a batch equals the result recomputed from that row.",
          ROUNDING, paths.judge_path(paths.run_batched)),
    Check("padded", "Each value of a padded row equals the result recomputed without padding.",
          ROUNDING, paths.judge_path(paths.run_padded)),
    Check("packed rows", "Each value of a document in a packed row equals the result of the document alone.",
          ROUNDING, paths.judge_path(paths.run_packed_rows), quick=False),
    Check("training pass", "Each value of a pass that records gradients equals its recomputed result.",
          ROUNDING, paths.judge_path(paths.run_trained), quick=False, needs_floats=True),
    Check("cached", "Decoding with the cache, rows of different lengths, gives the values of one pass.",
          ROUNDING, paths.judge_path(paths.run_cached, has_cache=True)),
    Check("chunked prefill", "Prefill of a prompt in chunks gives the values of one pass over all tokens.",
          ROUNDING, paths.judge_path(paths.run_chunked_prefill, has_cache=True)),
    Check("scheduled",
          "Each value of a text equals its recomputed result, whatever happened to its slot before.",
          ROUNDING, paths.judge_path(schedule.run_schedule, has_cache=True)),
    Check("scheduled together", "Each value equals its recomputed result where one call decodes all slots.",
          ROUNDING, paths.judge_path(schedule.run_static_schedule, has_cache=True), quick=False),
    Check("decoded",
          "Each value of a decoded token equals its recomputed result, for any number of texts at once.",
          ROUNDING, paths.judge_path(schedule.run_decoded, has_cache=True)),
    Check("long prompt",
          "Each value beyond the first chunk of a prompt, or after a reused prefix, equals its recomputed "
          "one.",
          ROUNDING, paths.judge_path(schedule.run_long_prompt, has_cache=True)),
    Check("unequal lengths",
          "Reading rows of unequal lengths gives each row's last token the logits that it has without a "
          "cache.",
          f"{cache.TOLERANCE:.0e} of the largest logit in float64", cache.measure_lengths),
    Check("native decoded",
          "Each value that the compiled decoder computes for a decoded token equals its recomputed result.",
          ROUNDING, native.judge_native(schedule.run_decoded), Judged.MACHINE, device="cpu"),
    Check("native prompt",
          "Each value of a long prompt in the compiled decoder equals its recomputed result.",
          ROUNDING, native.judge_native(schedule.run_long_prompt), Judged.MACHINE, device="cpu"),
    Check("native scheduled",
          "Each value of a text in the compiled decoder equals its result, whatever happened to its slot.",
          ROUNDING, native.judge_native(schedule.run_schedule), Judged.MACHINE, device="cpu"),
    Check("native far",
          "Each value of the compiled decoder after many keys, or in a full context, equals its result.",
          ROUNDING, far_positions.measure_native_far, Judged.MACHINE, device="cpu"),
    Check("gpu decoded",
          "Each value of a token that the fused step computes equals its recomputed result, for any "
          "number of texts at once.",
          ROUNDING, gpu.judge_gpu(gpu.run_together), Judged.MACHINE, device="cuda"),
    Check("gpu prompt",
          "Each value of a prompt that the fused step reads beside other texts equals its recomputed result.",
          ROUNDING, gpu.judge_gpu(gpu.run_prompts), Judged.MACHINE, device="cuda"),
    Check("gpu long", "Each value of a long text that the fused step computes equals its recomputed result.",
          ROUNDING, gpu.judge_gpu(gpu.run_long), Judged.MACHINE, device="cuda"),
    Check("edited",
          "A text that is read after an edit of a weight or an activation equals that of a new decoder.",
          "the same bits; of PyTorch and a GPU, 1 % of the change", edited.measure_edited),
    Check("far decoding",
          "Past a window, past the trained length and at the end of the context, each value equals its "
          "result.",
          ROUNDING, far_positions.measure_far_decoding),
    Check("int8 cache",
          "A key or value in int8 is off by half of a step at most, and attention equals what they give.",
          "0.5 steps; rounding", cache.measure_int8_cache),
    Check("repeated",
          "A second evaluation gives the same bits, and a seed gives the same text beside other requests.",
          "0, bit for bit", repeated.measure_repeated, Judged.MACHINE),
    Check("generated",
          "Each log-probability of a generated text and its prompt equals that of one uncached pass.",
          f"{whole_model.TIMES:g} times the module's own uncached error; in float32 at most 0.01 nats",
          generated.measure_generated),
    Check("sampled",
          "Each drawn token is the one that its u and the definitions of the samplers give, and "
          "frequencies equal the specification's probabilities.",
          "a false alarm in 1e10", sampling.measure_draws),
    Check("seeds", "Each bit of a seed changes the text that is drawn, and one seed gives one text.",
          f"a false alarm in {repeated.CERTAIN:.0e}", repeated.measure_seeds),
    Check("figures",
          "Each figure of a ledger and of a server's answer equals its definition for the engine's logits.",
          "1e-9 of each figure, 4 decimals of a printed one", figures.measure_figures),
    Check("proposals", "A text with proposed tokens, a wrong one at each place, equals the text without any.",
          "tokens: 0; log-probabilities: 1e-9 in float64", shortcuts.measure_proposals),
    Check("prefix reuse",
          "A text equals the one without reuse where prompts part before, at or behind the border of a "
          "chunk.",
          "tokens: 0; log-probabilities: 1e-9 in float64", shortcuts.measure_reuse),
    Check("constrained",
          "Each constrained text is one that its constraint allows; a mask equals a search through all "
          "texts.",
          "0", constrained.measure_constrained),
    Check("backward paths",
          "Each gradient of a fused, chunked or checkpointed pass equals the specification's.",
          f"{gradients.TOLERANCE:g}", gradients.measure_backward_paths, quick=False, needs_floats=True),
    Check("finite differences",
          "Along a random direction of each kind of parameter, the loss changes as its gradient says.",
          f"{gradients.TOLERANCE:g}", gradients.measure_finite_differences, quick=False, needs_floats=True),
    Check("saved", "The model is the same after it is saved and opened again.",
          "bit for bit", weights.measure_saved, quick=False),
    Check("tokenizer", "Decoding the ids of a text returns that text.",
          "character for character", tokens.measure_round_trip, Judged.MODEL),
    Check("tokenizer outside", "Other programs encode a text to the same ids with its tokenizer file.",
          "id for id", tokens.measure_same_ids, Judged.MODEL),
    Check("bos", "A prompt is preceded by the tokens that its tokenizer's configuration puts there.",
          "id for id", prompts.measure_bos, Judged.MODEL),
    Check("chat template", "A conversation is written as `transformers` writes it.",
          "character for character, id for id", prompts.measure_template, Judged.MODEL),
    Check("conventions", "No other convention for these weights fits a text better.",
          f"{ERRORS:g} standard errors", weights.measure_other_conventions, Judged.MODEL),
    Check("transformers", "`transformers` computes the same values, step by step.",
          f"rounding; {huggingface.WORST:g} nats for the fast engine", huggingface.measure_transformers,
          Judged.MODEL),
    Check("llama.cpp", "`llama.cpp` predicts the same next tokens.",
          f"{llamacpp.AGREEMENT:.0%} of the choices, but for those within {llamacpp.CLEARLY:g} nats; "
          f"{llamacpp.APART:g} nats on average",
          llamacpp.measure_choices, Judged.MODEL),
)  # fmt: skip
"""Each check: its name and claim, the error budget, what measures it, what it judges, when it applies."""


def verify(
    model: Model | str | os.PathLike[str],
    *,
    quick: bool = False,
    device: str | None = None,
    weights: str | None = None,
    step: int | None = None,
    text: str | None = None,
    before: Callable[[Check[Any]], None] = lambda check: None,
    after: Callable[[Finding], None] = lambda finding: None,
) -> VerifyReport:
    """Measures a catalogue of claims about a model's numbers, and returns what was found.

    `model` is a loaded model or what `pellucid.load` takes; `device` is where the fast engine of a model that
    is loaded here runs, and `weights` how it holds its matrices ("int8", "int4", "file"). With `quick`, only
    the checks that take seconds are made. `before` and `after` are called for each check, to show progress.

    `text` is one of the kind that the model was trained on, all of which is read under every other
    convention; by default it is English prose of ours.

    Of a run or its folder, one step is replayed and judged first, batch, loss, gradients and update, and the
    logged validation loss; then the newest model. `step` is the step to replay, by default one soon after a
    checkpoint.

    >>> from pellucid.verification.checks.catalogue import verify
    >>> report = verify("abcd", quick=True)
    >>> bool(report), str(report["specification"].verdict)
    (True, 'equal')
    """
    if isinstance(model, Model) and (device is not None or weights is not None):
        given = "device is" if weights is None else "weights is"
        raise UsageError(f"{given} for a model that is loaded here; a loaded model has its own.")
    for parameter, function in (("before", before), ("after", after)):
        check_function(parameter, function)
    if step is not None:
        step = check_int("step", step, least=0)
    opened = model if isinstance(model, Model) else load(model, device=device or "cpu", weights=weights)
    text = None if text is None else check_text("text", text)
    if text is not None and opened.pretrained.tokenizer is not None:  # refused before anything is measured
        encode_evidence(opened.pretrained.tokenizer, text)
    subject = Subject(opened, is_quick=quick, evidence=text)
    on = subject.model.resolve_device()  # raises where the device cannot be used, before anything is measured
    checks, of_run = select_checks(check_bool("quick", quick), on.type), list[Finding]()
    if not isinstance(model, Model) and is_run(Path(model)):
        from pellucid.verification.checks.training.runs import verify_run  # a model alone needs no training

        of_run = verify_run(Path(model), step, quick, before, after)
    elif step is not None:
        raise UsageError(f"step={step} is for the folder of a run, one of whose steps is replayed: omit it.")
    findings: list[Finding] = []
    for check in checks:
        before(check)
        findings.append(check.run(subject))
        after(findings[-1])
        if check.required and findings[-1].verdict is Verdict.BUG:
            break
    not_run = tuple(check.name for check in checks[len(findings) :])
    return VerifyReport((*of_run, *findings), not_run=not_run)


def select_checks(quick: bool, device: str = "cpu") -> list[Check[Subject]]:
    """Returns the checks that `verify` runs on a healthy model."""
    return [check for check in CHECKS if (check.quick or not quick) and check.device in ("", device)]
