"""The embedding of a text: the mean of its final hidden states, normalized to length 1."""

from typing import TYPE_CHECKING

from pellucid.base.errors import TokenError, UsageError

if TYPE_CHECKING:  # torch is imported when the model is
    from pellucid.model import Model

CHUNK = 512
"""Tokens that are read at a time, as many as a step of the engine reads."""


class TextEmbedding:
    """A prompt that is embedded some tokens at a time, so that other work goes on between.

    A prompt of several parts has its keys and values in a cache of its own; with a mask under which earlier
    positions depend on later ones, it is read at once.
    """

    def __init__(self, model: "Model", prompt: tuple[int, ...]) -> None:
        import torch

        from pellucid.engine.cache import Cache

        config, module = model.config, model.module
        if not prompt:
            raise TokenError("the prompt is empty: give at least one token.")
        if len(prompt) > (most := config.context_length):
            raise TokenError(f"{len(prompt):,} tokens do not fit the context of {most:,}: shorten the text.")
        self._module, self._ids = module, torch.tensor([prompt], device=module.device)
        module.check_ids(self._ids)
        is_whole = len(prompt) <= CHUNK or config.mask.bidirectional_prefix > CHUNK
        self._cache = (
            None if is_whole else Cache(config, 1, len(prompt), dtype=module.dtype, device=module.device)
        )
        self._chunk = len(prompt) if is_whole else CHUNK
        self._sum = torch.zeros(config.d_model, dtype=torch.float64)
        self._read = 0

    def read(self) -> bool:
        """Reads the next tokens; returns whether they were the last."""
        import torch

        some = self._ids[:, self._read : self._read + self._chunk]
        with torch.inference_mode():
            if self._cache is None:
                states = self._module.hidden_states(some)
            else:
                self._cache.reserve(some.shape[1])
                states = self._module.hidden_states(some, cache=self._cache)
                self._cache.advance(some.shape[1])
            self._sum = self._sum + states[0].double().sum(0).cpu()
        self._read += some.shape[1]
        return self._read == self._ids.shape[1]

    def to_list(self) -> list[float]:
        """Returns the vector, when all tokens are read."""
        mean = self._sum / self._read
        length = float(mean.norm())
        if not 0 < length < float("inf"):
            raise UsageError(
                f"the mean of the hidden states has the length {length}, so that it cannot be normalized: "
                "try another dtype, or `pellucid verify`."
            )
        found: list[float] = (mean / length).tolist()
        return found
