"""Checks a model against llama.cpp: the most likely next tokens after each prefix."""

import torch

from pellucid.base.errors import quote
from pellucid.base.files import temporary_folder
from pellucid.formats import gguf
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.second_readers import has_rope_scaling, read_header
from pellucid.verification.checks.outside.huggingface import compare_with_transformers, distance, log_softmax
from pellucid.verification.checks.outside.llamacpp_answers import LlamaCppAnswers, ask_llamacpp
from pellucid.verification.checks.outside.transformers_run import load_gguf
from pellucid.verification.checks.outside.witnesses import Departure, Witness, judge_departure
from pellucid.verification.verdict import Finding, Verdict

AGREEMENT, CLEARLY = 0.99, 0.1
"""The part of the choices that must agree, apart from those that are less than this many nats below ours."""
APART, ROUNDED_APART = 0.05, 0.5
"""Nats, on average: with float32 weights, and where it rounds activations to the 8 bits of a quantized file.
Measured on healthy models: 4e-4 (its table of GELU) and 0.12."""
SPREAD = 1e-4
"""The part of the range of the log-probabilities that is allowed where this is more."""
EXPORT_APART = 1e-2


def measure_choices(subject: Subject) -> Finding:
    answers = ask_llamacpp(subject)
    if isinstance(answers, str):
        return Finding(Verdict.SKIPPED, answers)
    module = subject.module(torch.float32, answers.layers)
    with torch.no_grad():
        ids = torch.tensor([answers.read], device=module.device)
        ours = torch.log_softmax(module(ids)[0].double(), -1).cpu()
    equal, measured, departure = _compare(subject, answers, ours)
    if departure is None:
        verdict = Verdict.EQUAL if equal == len(answers.read) else Verdict.NOISE
        part = f" and its first {answers.layers} blocks" if answers.layers < subject.config.n_layer else ""
        return Finding(verdict, f"{measured}, {answers.source}{part}")
    return judge_departure(
        "llama.cpp", departure, answers.is_of_the_file, list(_hear_transformers(subject, answers))
    )


def _compare(
    subject: Subject, answers: LlamaCppAnswers, ours: torch.Tensor
) -> tuple[int, str, Departure | None]:
    """Returns how many choices are equal, the figures, and the departure if there is one."""
    choices = [best[0][0] for best in answers.predictions]
    equal = sum(id == int(ours[t].argmax()) for t, id in enumerate(choices))
    behind = [float(ours[t].max() - ours[t, id]) for t, id in enumerate(choices)]
    spread = float(ours.max() - ours.min())  # large logits have large errors
    clearly = [t for t, nats in enumerate(behind) if not nats <= max(CLEARLY, SPREAD * spread)]
    apart = distance(answers, ours)
    measured = (
        f"{equal} of {len(choices)} choices equal, {len(clearly)} clearly different, log-probabilities "
        f"{apart:.1e} apart"
    )
    if answers.is_exact and len(clearly) > (1 - AGREEMENT) * len(choices):
        t = clearly[0]
        predicted = subject.model.token(choices[t])
        text = subject.model.tokenizer.decode(answers.read[: t + 1])
        message = (
            f"after {text!r} llama.cpp, {answers.source}, predicts {predicted!r}, which is "
            f"{behind[t]:.2f} nats below our choice"
        )
        return equal, measured, Departure(f"logits[t={t}]", message, measured)
    if not apart <= max(APART if answers.is_exact else ROUNDED_APART, SPREAD * spread):
        message = f"the log-probabilities of llama.cpp, {answers.source}, are {apart:.1e} nats from ours"
        return equal, measured, Departure("logits", message, measured)
    return equal, measured, None


def _hear_transformers(subject: Subject, answers: LlamaCppAnswers) -> list[Witness]:
    """Returns whether transformers, which read the same file, sides with us; where llama.cpp read our export,
    also whether transformers reads that export as we meant it."""
    found = compare_with_transformers(subject)
    if isinstance(found, str):
        return [Witness("transformers", None, f"cannot be asked: {found}")]
    if not answers.is_of_the_file:
        return [_hear_about_export(subject)]
    if not found.is_of_the_file:
        return [Witness("transformers", None, "reads our export alone")]
    if has_rope_scaling(read_header(subject.model.pretrained.provenance.path)):
        return [Witness("transformers", None, "drops the scaling of RoPE when it reads GGUF")]
    return [Witness("transformers", found.departure is None)]


def _hear_about_export(subject: Subject) -> Witness:
    name = "transformers (of the same export)"
    with temporary_folder() as folder:
        path = folder / "model.gguf"
        try:
            gguf.write(path, subject.model.replace().pretrained, "F32")
            theirs = load_gguf(path, subject)
        except Exception as error:  # another library, which may be missing
            return Witness(name, None, f"cannot be asked: {quote(error)}")
    ids = subject.ids
    module = subject.module(torch.float32)
    with torch.no_grad():
        found = theirs.model(torch.tensor([ids]), use_cache=False).logits[0].double()
        ours = module(torch.tensor([ids], device=module.device))[0].double().cpu()
    apart = float((log_softmax(found.numpy()) - log_softmax(ours.numpy())).abs().mean())
    return Witness(name, apart <= EXPORT_APART)
