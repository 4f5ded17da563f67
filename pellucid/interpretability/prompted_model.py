"""What a look is about: a model, and the tokens that it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pellucid.interpretability.runner import Runner
from pellucid.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class PromptedModel:
    """A model under its name, its runner, the ids of the prompt, and how a token is shown (`·cat`)."""

    name: str
    runner: Runner
    ids: tuple[int, ...]
    show_token: Callable[[int], str] = str
    tokenizer: Tokenizer | None = None

    @cached_property
    def labels(self) -> list[str]:
        """The text of each position, as it is shown."""
        return [self.show_token(id) for id in self.ids]
