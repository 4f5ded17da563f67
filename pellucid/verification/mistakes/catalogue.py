"""The catalogue: every wrong program by its name."""

from pellucid.verification.mistakes import attention, norms, positions, products, updates
from pellucid.verification.mistakes.variant import Mistake

CONVENTIONS: dict[str, Mistake] = {
    "RoPE layout": positions.swap_rope_layout,
    "RoPE base smaller": positions.change_rope_base(0.1),
    "RoPE base larger": positions.change_rope_base(10.0),
    "RoPE rotated the other way": positions.reverse_rotation,
    "learned positions counted from 1": positions.count_positions_from_one,
    "mask one token ahead": attention.shift_mask,
    "no mask": attention.omit_mask,
    "plain causal mask": attention.use_causal_mask,
    "RoPE scaling omitted": positions.omit_rope_scaling,
    "position bias omitted": positions.omit_position_bias,
    "embedding norm omitted": norms.omit_norm("embed_norm"),
    "QK-norm omitted": norms.omit_norm("q_norm", "k_norm"),
    "score soft-cap omitted": norms.omit_cap("capped"),
    "logit soft-cap omitted": norms.omit_cap("logits"),
    "norm": norms.swap_norm,
    "norm eps": norms.change_norm_eps,
    "norm gain read as 1 + γ": norms.add_one_to_gain,
    "activation": products.swap_activation,
    "gate and up swapped": products.swap_gate_and_up,
    "scores without 1/√D": attention.change_scale(lambda head, stream: head**0.5),
    "scores with 1/D": attention.change_scale(lambda head, stream: head**-0.5),
    "scores with 1/√C": attention.change_scale(lambda head, stream: (head / stream) ** 0.5),
    "query head h on key/value head h % K": attention.interleave_key_heads,
    "output projection transposed": products.transpose("attn_out"),
    "biases omitted": products.omit_biases,
    "unembedding": products.swap_tying,
    "embedding multiplied by √C": products.scale_embedding,
}
"""Other readings of the same weights: each loads without complaint."""

SLIPS: dict[str, Mistake] = {
    "matrix transposed": products.transpose(""),
    "variance divided by N − 1": norms.divide_by_n_minus_one,
    "eps outside the root": norms.add_eps_outside_root,
    "softmax over the queries": attention.apply_softmax_over_queries,
    "first term of the sum missing": products.drop_branch(0),
    "last term of the sum missing": products.drop_branch(-1),
    "residual taken after the norm": norms.take_residual_after_norm,
    "gradient ascent instead of descent": updates.flip_update_sign,
}
"""Wrong arithmetic in a step, under every convention."""

SUBTLE: dict[str, Mistake] = {
    "RoPE positions counted from 1": positions.shift_rotation("_rot"),
    "RoPE of the queries one position ahead": positions.shift_rotation("q_rot"),
    "low-precision RoPE": positions.round_angles,
    "window": attention.miscount_window,
    "finite mask": attention.mask_with_finite_scores,
    "scores 5 % too large": attention.change_scale(lambda head, stream: 1.05),
}
"""Mistakes that change little in a short text, or nothing: positions counted from 1 keep every score, and a
cache that was filled with positions counted from 0 does not fit."""

MISTAKES = CONVENTIONS | SLIPS | SUBTLE
