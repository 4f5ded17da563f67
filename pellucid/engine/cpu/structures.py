"""The structures of model.h, field for field."""

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p

FLOAT32, BFLOAT16, INT8, INT4 = range(4)
NORMS = {"none": 0, "layer_norm": 1, "rms_norm": 2}
ACTIVATIONS = {"relu": 0, "relu_squared": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4}
CACHES = {"float32": 0, "float16": 1, "bfloat16": 2, "int8": 3}
RECORDED = (
    *("embedded", "positioned", "embed_norm.out", "resid_pre", "attn_norm.out"),
    *("attn.q", "attn.k", "attn.v", "attn.q_normed", "attn.k_normed", "attn.q_rot", "attn.k_rot", "attn.z"),
    *("attn_out", "resid_mid", "mlp_norm.out", "mlp.gate", "mlp.up", "mlp.act", "mlp.hidden"),
    *("mlp_out", "resid_post", "final_norm.out"),
)
"""The values that a call can write, in the order of `recorded_name`; those after the third and before the
last are of each block."""


class CMatrix(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("kind", "out", "in_", "groups", "offset", "has_minimums")),
        ("stride", c_int64),
        ("data", c_void_p),
        ("bias", c_void_p),
    ]


class CNorm(ctypes.Structure):
    _fields_ = [("kind", c_int32), ("eps", c_float), ("weight", c_void_p), ("bias", c_void_p)]


class CLayer(ctypes.Structure):
    _fields_ = [
        *((name, CNorm) for name in ("attn_norm", "q_norm", "k_norm", "mlp_norm")),
        *((name, CMatrix) for name in ("q", "k", "v", "o", "gate", "up", "down")),
    ]


class CModel(ctypes.Structure):
    _fields_ = [
        *(
            (name, c_int32)
            for name in (
                *("n_layer", "d_model", "n_head", "n_kv_head", "d_head", "d_ff", "vocab_size"),
                *("n_positions", "activation", "is_gated", "n_pairs", "rotates_neighbors", "window"),
            )
        ),
        ("scale", c_float),
        *((name, c_void_p) for name in ("cos_sin", "slopes", "position_rows")),
        ("embed_norm", CNorm),
        ("final_norm", CNorm),
        ("embed", CMatrix),
        ("unembed", CMatrix),
        ("layers", POINTER(CLayer)),
    ]


class CCacheRow(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("k", "v", "k_scale", "v_scale")),
        ("head_stride", c_int64),
        ("capacity", c_int32),
        ("ring", c_int32),
    ]


class CCall(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("n_tokens", "n_wanted", "n_rows", "cache", "threads")),
        *(
            (name, c_void_p)
            for name in ("ids", "positions", "rows", "wanted", "caches", "logits", "recorded")
        ),
    ]
