"""What a model decodes with: its compiled decoder on a CPU, else the module itself."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch is imported when the fast engine is first asked for
    from pellucid.native.decoder import Decoder
    from pellucid.workbench.model import Model

log = logging.getLogger(__name__)


def make_decoder(model: "Model") -> "Decoder":
    """Returns the model's compiled decoder, or its module where the machine or a choice of the model leaves
    none; the log says which."""
    from pellucid.native.decoder import accelerate

    return accelerate(model.module, log.info)
