"""Settings of an answer against the model and the engine: whether it fits the context, and the slots."""

from pellucid.base.errors import PellucidError
from pellucid.generation.context import check_fits
from pellucid.generation.settings.sampling import Sampling
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import request_errors
from pellucid.server.openai.answers.plan import AnswerPlan
from pellucid.server.openai.served_model import ServedModel

MOST_LOGPROBS = 2**20
"""Of one answer: about 250 megabytes of memory, and 40 of JSON."""
MOST_ECHO = 2**25
"""Characters of prompts that one answer repeats."""


def check_sampling(served: ServedModel, sampling: Sampling) -> None:
    """Raises where a token is beyond the vocabulary, or there are more choices or beams than slots."""
    vocab_size = served.pretrained.config.vocab_size
    try:
        sampling.check_vocabulary(vocab_size)
    except PellucidError as error:
        name = str(error).partition(":")[0].partition(" ")[0]  # a message begins with the setting's name
        raise RequestError(str(error), param=name) from None
    slots, needed = served.engine.load.slots, max(sampling.n, sampling.beams)
    if slots and needed > slots:
        name = "n" if sampling.n >= sampling.beams else "beams"
        raise RequestError(
            f"{name} must be at most {slots}, the texts that this server generates at once; got {needed}.",
            param=name,
        )


def check_prompt_length(
    served: ServedModel, sampling: Sampling, length: int, param: str, new_param: str = "max_tokens"
) -> None:
    """Raises where a prompt, alone or with the new tokens that are asked for, does not fit the context; the
    error names the field of the one or of the other."""
    config, new = served.pretrained.config, sampling.max_new_tokens or 0
    if sampling.context == "refuse" and length + new > config.context_length:
        has_room = length < config.context_length
        raise served.encoder.make_context_error(length, new_param if has_room else param, new)
    with request_errors(param):
        check_fits(length, sampling, config.context_length, config.mask.bidirectional_prefix)


def check_prompt_count(served: ServedModel, count: int) -> None:
    """Raises where a request has more prompts than run or wait at once, however often it is sent again."""
    most = served.engine.load.most_requests
    if most and count > most:
        raise RequestError(
            f"prompt must have at most {most} texts, which are all that run or wait at once; got {count}.",
            param="prompt",
        )


def check_size(plan: AnswerPlan) -> None:
    """Raises where an answer would have more numbers, or more of its prompts, than the server holds for one.

    A prompt is repeated with each of its choices, and so are its numbers: few bytes can ask for gigabytes.
    """
    new, echoed = plan.sampling.get("max_new_tokens") or 0, plan.has_echo
    if plan.top_logprobs is not None:
        tokens = sum(new + len(prompt.ids) * echoed for prompt in plan.prompts)
        count = tokens * plan.n * (1 + plan.top_logprobs)
        if count > MOST_LOGPROBS:
            raise RequestError(
                f"an answer has at most {MOST_LOGPROBS:,} log-probabilities, and this could have {count:,}: "
                "ask for fewer at each place, for fewer tokens or choices, or send fewer prompts at a time.",
                param="logprobs",
            )
    characters = sum(len(prompt.text) for prompt in plan.prompts) * plan.n * echoed
    if characters > MOST_ECHO:
        raise RequestError(
            f"an answer repeats at most {MOST_ECHO:,} characters of prompts, and echo would repeat "
            f"{characters:,}: send fewer prompts at a time, or ask for fewer choices.",
            param="echo",
        )


def find_place(param: str, place: int, count: int) -> str:
    """Returns the name of one of some prompts, as an error has it.

    >>> find_place("prompt", 1, 3), find_place("prompt", 0, 1)
    ('prompt[1]', 'prompt')
    """
    return f"{param}[{place}]" if count > 1 else param
