"""The keywords of `Model`'s generation methods, declared once: every key of `Sampling`, and how to run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from pellucid.base.arguments import check_bool, check_int
from pellucid.base.dtypes import CACHE_NAMES, check_dtype
from pellucid.base.errors import UsageError, show
from pellucid.base.formatting import pluralize
from pellucid.formats.pretrained import Pretrained
from pellucid.model import Model, load

if TYPE_CHECKING:
    from torch import dtype as Dtype

    from pellucid.generation.settings.sampling import Sampling


class SamplingOptions(TypedDict, total=False):
    """The keys of `Sampling` that are not parameters of their own, for editors and type checkers."""

    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    banned_tokens: Sequence[int]
    forced_tokens: Sequence[int]
    regex: str | None
    json_schema: str | Mapping[str, Any] | None
    grammar: str | None
    samplers: Sequence[Any]
    min_new_tokens: int
    stop: str | Sequence[str]
    stop_ids: Sequence[int] | None
    beams: int
    length_penalty: float
    early_stopping: bool
    context: str
    keep: int


class GenerationOptions(SamplingOptions, total=False):
    """What every generation method takes besides its prompt, `max_new_tokens`, `temperature` and `seed`."""

    sampling: "Sampling | None"
    """All settings at once, in place of the model's own; further keywords change single ones."""
    preset: str | None
    cache: "str | Dtype | None"
    """The type in which keys and values are kept; by default the model's own."""
    parse_special: bool
    """Whether special tokens in a text, such as <|im_start|>, are parsed."""
    draft: "Model | str | None"
    """A smaller model with the same tokenizer, which proposes tokens: the text is the same, sooner."""
    lookup: bool
    """Whether tokens are proposed from what stands in the text already."""
    draft_tokens: int
    """Tokens that are proposed at a time."""


@dataclass(frozen=True)
class GenerationCall:
    """The keywords of one call, checked."""

    sampling: "Sampling"
    origins: Mapping[str, str]
    """Where each setting that is not the default came from: "model", "preset balanced", "given"."""
    parse_special: bool
    engine: Mapping[str, Any]
    """The keywords of `Engine`; a draft is still a `Model`, whose weights are not read yet."""


RUN_KEYS = ("cache", "draft", "lookup", "draft_tokens")


def read_options(model: "Model", given: Mapping[str, Any]) -> GenerationCall:
    """Returns the settings of a call: keywords win over a preset or a `Sampling`, and those over the settings
    in the model's own files. A keyword that is None is not given."""
    from pellucid.generation.settings.resolve import resolve_sampling

    rest = {key: value for key, value in given.items() if value is not None}
    sampling, preset = rest.pop("sampling", None), rest.pop("preset", None)
    parse_special = check_bool("parse_special", rest.pop("parse_special", False))
    engine = read_engine_options(model, {key: rest.pop(key) for key in RUN_KEYS if key in rest})
    own = own_settings(model.pretrained)
    if sampling is not None:
        rest, own = _read_sampling(sampling, preset) | rest, {}
    return GenerationCall(*resolve_sampling(own, preset, rest), parse_special, engine)


def own_settings(pretrained: Pretrained) -> dict[str, Any]:
    """Returns the generation settings of the model's files, without the tokens that end a text: those are
    `Pretrained.eos_ids`, which the engine is given."""
    return {key: value for key, value in pretrained.generation.items() if key != "eos_token_id"}


def _read_sampling(sampling: Any, preset: Any) -> dict[str, Any]:
    """Returns every setting of a `Sampling`, which is complete: nothing of a preset or a model adds to it."""
    from pellucid.generation.settings.sampling import Sampling

    if not isinstance(sampling, Sampling):
        raise UsageError(f"sampling must be a pellucid.Sampling, not {show(sampling)}.")
    if preset is not None:
        raise UsageError("sampling and preset are both complete settings: give one of them.")
    return {name: getattr(sampling, name) for name in sampling.given}


def read_engine_options(model: "Model", given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keywords of `Engine` that these of `RUN_KEYS` mean."""
    found: dict[str, Any] = {}
    if "cache" in given:
        import torch

        found["cache_dtype"] = getattr(torch, check_dtype(given["cache"], CACHE_NAMES, "cache"))
    if "draft" in given:
        draft = given["draft"]
        if not isinstance(draft, Model):
            draft = load(draft, device=model.device, dtype=model.dtype)
        found["draft"] = draft
    if "lookup" in given:
        found["lookup"] = check_bool("lookup", given["lookup"])
    if "draft_tokens" in given:
        found["draft_tokens"] = check_int("draft_tokens", given["draft_tokens"], least=1)
        if not (found.get("draft") or found.get("lookup")):
            raise UsageError("draft_tokens is how many tokens draft or lookup propose: give one of them too.")
    return found


def split_seeds(sampling: "Sampling", seed: Any, count: int) -> "list[Sampling]":
    """Returns the settings of each prompt: one seed is that of all, several are one for each."""
    if not isinstance(seed, Sequence) or isinstance(seed, str | bytes):
        return [sampling if seed is None else sampling.merge({"seed": seed})] * count
    if len(seed) != count:
        given = pluralize(len(seed), "seed")
        raise UsageError(f"{given} for {pluralize(count, 'prompt')}; give one for all, or one for each.")
    return [sampling.merge({"seed": one}) for one in seed]
