"""What happens in a run, in the order in which it happens; views draw it, the log keeps it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Started:
    """The run begins, or goes on from a step that was saved."""

    step: int
    steps: int
    parameters: int
    tokens_per_step: int
    flops_per_token: float
    device: str
    compiled: str
    """yes, or why not."""
    floor: float | None
    """The loss that no model can beat, where the data tell."""
    resumed: bool = False


@dataclass(frozen=True)
class Stepped:
    step: int
    loss: float
    smoothed: float
    lr: float
    grad_norm: float
    tokens: int
    tokens_per_second: float
    seconds: float
    memory: int
    """Bytes at the peak so far."""


@dataclass(frozen=True)
class Evaluated:
    step: int
    loss: float
    best: bool
    bits_per_byte: float | None
    gap: float | None
    """The loss above its floor, where that is known."""
    sample: str
    learned: float | None = None
    """The share of what can be learned beyond pairs of words, where that is known."""
    accuracy: float | None = None
    """The share of targets that were the likeliest token."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint was saved, or the best model so far."""

    step: int
    folder: str
    seconds: float
    loss: float | None = None
    """Of the best model, on the validation text."""


@dataclass(frozen=True)
class Skipped:
    """A loss or gradient was no finite number, so no weight was changed."""

    step: int
    name: str
    """The first value that was none."""
    about: str = ""
    """How much of it, and what it was made of, where that could be seen."""


@dataclass(frozen=True)
class Recorded:
    """How large the numbers of a step were, by name; see `recorder.py`."""

    step: int
    activations: dict[str, dict[str, float]]
    """rms, max and zeros."""
    parameters: dict[str, dict[str, float]]
    """gradient, weight and ratio."""


@dataclass(frozen=True)
class Ended:
    step: int
    why: str
    """finished, stopped early, stopped (by gradients that are not finite), or interrupted."""
    loss: float
    best: float | None
    seconds: float


Event = Started | Stepped | Evaluated | Saved | Skipped | Recorded | Ended
