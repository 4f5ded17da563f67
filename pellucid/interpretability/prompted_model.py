"""The subject of a look: a model, and the tokens that it reads."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from pellucid.base.errors import TokenError, UsageError
from pellucid.config import ModelConfig
from pellucid.interpretability.runner import Runner
from pellucid.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class PromptedModel:
    """A model under its name, its runner, the ids of the prompt, and how a token is shown (`·cat`); `begin`
    are the tokens that every text of the model begins with: its bos token, or none."""

    name: str
    runner: Runner
    ids: tuple[int, ...]
    show_token: Callable[[int], str] = str
    tokenizer: Tokenizer | None = None
    begin: tuple[int, ...] = ()

    @cached_property
    def labels(self) -> list[str]:
        """The text of each position, as it is shown."""
        return [self.show_token(id) for id in self.ids]


def check_position(position: int, length: int) -> int:
    """Returns a position of a prompt counted from 0; −1 is the last one. Raises where there is none."""
    if not -length <= position < length:
        raise UsageError(f"position {position} is outside of the prompt: it has {length} tokens, from 0.")
    return position % length


def check_tokens(config: ModelConfig, tokens: Iterable[int | None]) -> None:
    """Raises where a token, other than None, is not in the vocabulary."""
    for id in tokens:
        if id is not None and not 0 <= id < config.vocab_size:
            raise TokenError(
                f"token {id} is not in the vocabulary: ids go from 0 to {config.vocab_size - 1}."
            )
