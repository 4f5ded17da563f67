"""The events of a run, in the order in which they happen; views display them, and the log keeps them."""

from dataclasses import dataclass
from enum import Enum


class EndReason(Enum):
    """Why a run ended. The value begins the message of the end, in every version's log."""

    FINISHED = "finished"
    EARLY_STOPPED = "stopped early"
    NONFINITE = "stopped"
    INTERRUPTED = "interrupted"

    @classmethod
    def from_message(cls, message: str) -> "EndReason | None":
        """
        >>> EndReason.from_message("stopped early: 3 evaluations without a better loss")
        <EndReason.EARLY_STOPPED: 'stopped early'>
        """
        return next((reason for reason in cls if message.partition(":")[0] == reason.value), None)


@dataclass(frozen=True)
class Started:
    """The run begins, or continues from a checkpoint."""

    step: int
    steps: int
    parameters: int
    tokens_per_step: int
    flops_per_token: float
    device: str
    compiled: str
    """"yes", or "no: " and the reason."""
    floor: float | None
    """The entropy floor: the loss that no model can beat, where the data have a known entropy."""
    resumed: bool = False


@dataclass(frozen=True)
class Stepped:
    """One update of the weights."""

    step: int
    loss: float
    smoothed: float
    lr: float
    grad_norm: float
    """Of all gradients as one vector, before clipping."""
    tokens: int
    tokens_per_second: float
    seconds: float
    memory: int
    """Bytes at the peak so far."""


@dataclass(frozen=True)
class Evaluated:
    """The validation loss, and a text that the model generated."""

    step: int
    loss: float
    best: bool
    bits_per_byte: float | None
    gap: float | None
    """The loss above the entropy floor, where that is known."""
    sample: str
    learned: float | None = None
    """The fraction learned: 0 at the loss of a bigram model, 1 at the entropy floor."""
    accuracy: float | None = None
    """The fraction of targets that were the most likely token."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint was saved, or the best model so far."""

    step: int
    folder: str
    seconds: float
    loss: float | None = None
    """The validation loss of the best model."""


@dataclass(frozen=True)
class Skipped:
    """A loss or gradient was NaN or Inf, so no weight was changed."""

    step: int
    name: str
    """The first value that was NaN or Inf."""
    about: str = ""
    """How much of it was, and which inputs it was computed from, where that is known."""


@dataclass(frozen=True)
class Rescheduled:
    """The run was given another number of steps, so that it ends within its minutes."""

    step: int
    steps: int
    before: int
    """The number of steps that it was to have."""


@dataclass(frozen=True)
class Recorded:
    """Sizes of the activations, gradients and updates of a step, by name; see `recorder.py`."""

    step: int
    activations: dict[str, dict[str, float]]
    """rms, max and zeros."""
    parameters: dict[str, dict[str, float]]
    """gradient, weight and ratio."""


@dataclass(frozen=True)
class Compared:
    """The first compiled step of a process was compared with an eager one."""

    step: int
    difference: float
    """The largest of the loss and the gradients, relative to their sizes; NaN where it could not be had."""
    seconds: float
    """What the eager step took."""
    about: str = ""
    """What was wrong, and what was done about it; "" where nothing was."""

    @property
    def message(self) -> str:
        """
        >>> Compared(1, 1.5e-7, 0.5).message
        'compiled code agrees with eager code to 1.5e-07 (an eager step, once: 0.5 s)'
        """
        agrees = f"compiled code agrees with eager code to {self.difference:.2g}"
        return self.about or f"{agrees} (an eager step, once: {self.seconds:.1f} s)"


@dataclass(frozen=True)
class Ended:
    step: int
    reason: EndReason
    loss: float
    best: float | None
    seconds: float
    detail: str = ""

    @property
    def message(self) -> str:
        """
        >>> Ended(5, EndReason.NONFINITE, 1.5, None, 9.0, "step 5 without a finite gradient").message
        'stopped: step 5 without a finite gradient'
        """
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


Event = Started | Compared | Stepped | Evaluated | Saved | Skipped | Rescheduled | Recorded | Ended
