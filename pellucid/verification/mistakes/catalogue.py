"""The catalogue: every wrong program by its name."""

from pellucid.verification.mistakes.attention import (
    apply_softmax_over_queries,
    change_scale,
    interleave_key_heads,
    mask_with_finite_scores,
    miscount_window,
    omit_mask,
    shift_mask,
    use_causal_mask,
)
from pellucid.verification.mistakes.norms import (
    add_eps_outside_root,
    add_one_to_gain,
    change_norm_eps,
    divide_by_n_minus_one,
    omit_cap,
    omit_norm,
    swap_norm,
    take_residual_after_norm,
)
from pellucid.verification.mistakes.positions import (
    change_rope_base,
    count_positions_from_one,
    omit_position_bias,
    omit_rope_scaling,
    reverse_rotation,
    round_angles,
    shift_rotation,
    swap_rope_layout,
)
from pellucid.verification.mistakes.products import (
    drop_branch,
    omit_biases,
    scale_embedding,
    swap_activation,
    swap_gate_and_up,
    swap_tying,
    transpose,
)
from pellucid.verification.mistakes.updates import flip_update_sign
from pellucid.verification.mistakes.variant import Mistake

CONVENTIONS: dict[str, Mistake] = {
    "RoPE layout": swap_rope_layout,
    "RoPE base smaller": change_rope_base(0.1),
    "RoPE base larger": change_rope_base(10.0),
    "RoPE rotated the other way": reverse_rotation,
    "learned positions counted from 1": count_positions_from_one,
    "mask one token ahead": shift_mask,
    "no mask": omit_mask,
    "plain causal mask": use_causal_mask,
    "RoPE scaling omitted": omit_rope_scaling,
    "position bias omitted": omit_position_bias,
    "embedding norm omitted": omit_norm("embed_norm"),
    "QK-norm omitted": omit_norm("q_norm", "k_norm"),
    "score soft-cap omitted": omit_cap("capped"),
    "logit soft-cap omitted": omit_cap("logits"),
    "norm": swap_norm,
    "norm eps": change_norm_eps,
    "norm gain read as 1 + γ": add_one_to_gain,
    "activation": swap_activation,
    "gate and up swapped": swap_gate_and_up,
    "scores without 1/√D": change_scale(lambda head, stream: head**0.5),
    "scores with 1/D": change_scale(lambda head, stream: head**-0.5),
    "scores with 1/√C": change_scale(lambda head, stream: (head / stream) ** 0.5),
    "query head h on key/value head h % K": interleave_key_heads,
    "output projection transposed": transpose("attn_out"),
    "biases omitted": omit_biases,
    "unembedding": swap_tying,
    "embedding multiplied by √C": scale_embedding,
}
"""Other readings of the same weights: each loads without complaint."""

SLIPS: dict[str, Mistake] = {
    "matrix transposed": transpose(""),
    "variance divided by N − 1": divide_by_n_minus_one,
    "eps outside the root": add_eps_outside_root,
    "softmax over the queries": apply_softmax_over_queries,
    "first term of the sum missing": drop_branch(0),
    "last term of the sum missing": drop_branch(-1),
    "residual taken after the norm": take_residual_after_norm,
    "gradient ascent instead of descent": flip_update_sign,
}
"""Wrong arithmetic in a step, under every convention."""

SUBTLE: dict[str, Mistake] = {
    "RoPE positions counted from 1": shift_rotation("_rot"),
    "RoPE of the queries one position ahead": shift_rotation("q_rot"),
    "low-precision RoPE": round_angles,
    "window": miscount_window,
    "finite mask": mask_with_finite_scores,
    "scores 5 % too large": change_scale(lambda head, stream: 1.05),
}
"""Mistakes that change little in a short text, or nothing: positions counted from 1 keep every score, and a
cache that was filled with positions counted from 0 does not fit."""

MISTAKES = CONVENTIONS | SLIPS | SUBTLE
