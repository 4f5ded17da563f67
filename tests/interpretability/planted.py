"""A two-layer model of attention alone whose weights are set by hand, so that what each head does is known.

The residual stream has four parts: the token (one-hot), its position (one-hot), the token before it, and the
next token. Head 0.0 attends to the position before and copies its token into the third part (a previous-token
head). Head 1.0 compares the token with the third part of each key, so that it attends to what followed the
last occurrence of the token, and copies that into the fourth part (an induction head), which the unembedding
reads. Heads 0.1 and 1.1 have weights of 0: they attend uniformly and add nothing.

    head 0.0   q_t = position t,   k_s = position s + 1,         v_s = token s
    head 1.0   q_t = token t,      k_s = the token before s,     v_s = token s
    logits     LOGIT · the next token

The signal goes from head 0.0 into the keys of head 1.0 alone: its queries and values read the token.
"""

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.config import ModelConfig
from pellucid.interpretability.runner import EngineRunner, Runner, SpecificationRunner

V, P = 12, 32
"""Tokens and positions; a head has P channels."""
SCORE, LOGIT = 30.0, 4.0
"""The attention score of a match, and the logit of a token that gets the whole pattern."""
TOKEN, POSITION, BEFORE, NEXT = 0, V, V + P, 2 * V + P
"""Where the four parts of the residual stream begin."""
CONFIG = ModelConfig(
    vocab_size=V,
    context_length=P,
    n_layer=2,
    n_head=2,
    d_model=3 * V + P,
    d_head=P,
    positions="learned",  # type: ignore[arg-type]
    norm="none",  # type: ignore[arg-type]
    mlp="none",  # type: ignore[arg-type]
    unembedding="linear",  # type: ignore[arg-type]
)


def make_weights() -> dict[str, Array]:
    """Returns the weights, all 0 but those of the table above."""
    weights = {name: np.zeros(shape) for name, shape in CONFIG.parameters().items()}
    tokens, positions = np.arange(V), np.arange(P)
    weights["embed.weight"][tokens, TOKEN + tokens] = 1
    weights["positions.weight"][positions, POSITION + positions] = 1
    gain = SCORE * np.sqrt(P)  # scores are divided by √D
    q, k, v, o = (f"blocks.0.attn.{x}_proj.weight" for x in "qkvo")
    weights[q][positions, POSITION + positions] = gain
    weights[k][positions[1:], POSITION + positions[:-1]] = 1
    weights[v][tokens, TOKEN + tokens] = 1
    weights[o][BEFORE + tokens, tokens] = 1
    q, k, v, o = (f"blocks.1.attn.{x}_proj.weight" for x in "qkvo")
    weights[q][tokens, TOKEN + tokens] = gain
    weights[k][tokens, BEFORE + tokens] = 1
    weights[k][tokens, POSITION] = -1  # position 0 has none before it, so that head 0.0 copies its own token
    weights[v][tokens, TOKEN + tokens] = 1
    weights[o][NEXT + tokens, tokens] = 1
    weights["unembed.weight"][tokens, NEXT + tokens] = LOGIT
    return weights


def make_runners(config: ModelConfig, weights: dict[str, Array]) -> tuple[Runner, Runner]:
    """Returns a runner of each engine, both in float64."""
    import torch

    from pellucid.engine.transformer import Transformer

    module = Transformer.from_weights(config, weights, dtype=torch.float64)
    return SpecificationRunner(config, weights), EngineRunner(module)


PLANTED = make_runners(CONFIG, make_weights())
REPEATED = [3, 7, 1, 9, 4, 3, 7, 1, 9, 4]
CLEAN, CORRUPTED, ANSWER, WRONG = [3, 7, 1, 9, 4, 3], [5, 7, 1, 9, 4, 3], 7, 1
"""3 is followed by 7 in the clean prompt; in the corrupted one it has not occurred before."""
