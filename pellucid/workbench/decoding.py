"""What a model decodes with: its compiled decoder on a CPU, else the module itself."""

import logging
from functools import cache
from typing import TYPE_CHECKING

from pellucid.pretrained import parameter_count

if TYPE_CHECKING:  # torch is imported when the fast engine is first asked for
    from pellucid.native.decoder import Decoder
    from pellucid.workbench.model import Model

LARGE = 10_000_000
"""Parameters from which it is worth a line that a model is decoded in PyTorch."""

log = logging.getLogger(__name__)


def make_decoder(model: "Model") -> "Decoder":
    """Returns the model's compiled decoder, or its module where the machine or a choice of the model leaves
    none; of a large model on a CPU, the log then says why, once."""
    from pellucid.native.decoder import accelerate

    matters = model.module.device.type == "cpu" and parameter_count(model.config.parameters()) >= LARGE
    return accelerate(model.module, _say_once if matters else log.info)


@cache
def _say_once(reason: str) -> None:
    log.warning("%s", reason)
