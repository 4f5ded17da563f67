"""One step of a model as a list of kernel launches over fixed buffers: a token of each text, or prompts.

Of one token the launches of a layer are norm + Q, K, V; attention; output + residual; norm + MLP inputs; MLP
output + residual. Of several tokens the two norms are launches of their own, and in a step that reads prompts
so is storing the keys.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pellucid.engine.attentions.softmax import SoftmaxAttention
from pellucid.engine.gpu import attention, products, selection, tokens
from pellucid.engine.gpu.buffers import PLANES, RING, Buffers
from pellucid.engine.gpu.drawing import DrawBuffers
from pellucid.engine.gpu.matrices import Matrix, describe_norm, or_absent
from pellucid.engine.gpu.tiles import (
    choose_key_tiles,
    choose_row_tiles,
    choose_vector_tiles,
    round_up,
)
from pellucid.engine.transformer import Transformer
from pellucid.parts.masks.window import Window

MOST_MATRICES = 3
"""Matrices that one launch multiplies: those of Q, K and V."""
Tap = Callable[[str], None]


class Launch(NamedTuple):
    """A kernel with its grid and arguments, and the name of what is complete after it."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    warps: int
    stages: int = 3
    computed: str = ""

    def run(self, is_dependent: bool) -> None:
        options: dict[str, Any] = {"num_warps": self.warps, "num_stages": self.stages}
        if is_dependent:
            options["launch_pdl"] = True
        if "is_dependent" in self.kernel.arg_names:
            options["is_dependent"] = is_dependent
        self.kernel[self.grid](**self.arguments, **options)


class DecodeStep:
    """The launches of a step of `count` tokens whose keys are cut into `splits` parts; with `draws`, the next
    tokens are drawn, else the ones with the largest logits are taken. Where it `reads_prompts`, several
    tokens may be of one text."""

    def __init__(
        self,
        module: Transformer,
        caches: Sequence[tuple[Tensor, Tensor]],
        buffers: Buffers,
        count: int,
        splits: int,
        ring: int,
        draws: DrawBuffers | None = None,
        reads_prompts: bool = False,
    ) -> None:
        self.module, self.config, self.buffers = module, module.config, buffers
        self.count, self.splits, self.ring, self.draws = count, splits, ring, draws
        self.reads_prompts = reads_prompts
        self.launches: list[Launch] = []
        for index, (block, cache) in enumerate(zip(module.blocks, caches, strict=True)):
            self._add_block(f"blocks.{index}", block, cache)
        self._add_head()

    def run(self, is_dependent: bool = False, tap: Tap | None = None) -> None:
        """Launches every kernel; `tap` gets the name of what is there after each."""
        for launch in self.launches:
            launch.run(is_dependent)
            if tap is not None and launch.computed:
                tap(launch.computed)

    # ---- the parts of a step

    @property
    def planes(self) -> int:
        return self.buffers.normed.shape[0]

    def _add_block(self, path: str, block: Any, cache: tuple[Tensor, Tensor]) -> None:
        b, mlp, attn = self.buffers, block.mlp, block.attn
        qkv = [Matrix.read(layer.weight, layer.bias) for layer in (attn.q_proj, attn.k_proj, attn.v_proj)]
        at = 0
        for _, alike in itertools.groupby(qkv, key=lambda matrix: matrix.kind):
            some = list(alike)
            self._add_product(b.x, b.qkv[:, at:], some, "store", norm=block.attn_norm)
            at += sum(len(matrix.data) for matrix in some)
        self.launches[-1] = self.launches[-1]._replace(computed=f"{path}.attn.qkv")
        self._add_attention(path, attn, cache)
        output = Matrix.read(attn.o_proj.weight, attn.o_proj.bias)
        self._add_product(self._pick(b.z, b.z_planes), b.x, [output], "add", computed=f"{path}.resid_mid")
        is_gated = self.config.mlp.form == "gated"
        layers = (mlp.gate_proj, mlp.up_proj) if is_gated else (mlp.up_proj,)
        inputs = [Matrix.read(layer.weight, layer.bias) for layer in layers]
        hidden = self._pick(b.hidden, b.hidden_planes)
        ending = "gate" if is_gated else "activate"
        self._add_product(b.x, hidden, inputs, ending, norm=block.mlp_norm, computed=f"{path}.mlp.hidden")
        down = Matrix.read(mlp.down_proj.weight, mlp.down_proj.bias)
        self._add_product(hidden, b.x, [down], "add", computed=f"{path}.resid_post")

    def _pick(self, vector: Tensor, planes: Tensor) -> Tensor:
        return vector if self.count == 1 else planes

    def _add_head(self) -> None:
        module, b = self.module, self.buffers
        matrix = Matrix.read(module.unembedding, module.unembed.bias)
        blocks = self._add_product(
            b.x, b.logits, [matrix], "logits", norm=module.final_norm, computed="logits"
        )
        if self.draws is not None:
            self.launches += list_draws(b, self.draws, self.count, blocks)
        arguments = self._embedding() | {
            "left": b.left, "steps": b.steps, "drawn": b.drawn, "most": b.most, "ring": RING,
            "best": b.best, "best_id": b.best_id, "n_blocks": blocks, "blocks": round_up(blocks),
            "chosen": b.chosen, "is_chosen": self.draws is not None,
        }  # fmt: skip
        self.launches.append(Launch(tokens.pick, (self.count,), arguments, 8))

    def embed(self) -> None:
        """Embeds the tokens of the buffers: the start of a step whose tokens the host has written."""
        Launch(tokens.embed, (self.count,), self._embedding(), 4).run(False)

    def _embedding(self) -> dict[str, Any]:
        """Returns the arguments by which a token is embedded."""
        module, b = self.module, self.buffers
        matrix = Matrix.read(module.embed.weight, None)
        rows = getattr(module.positions, "weight", module.positions.rows)
        return {
            "x": b.x, "tokens": b.tokens, "positions": b.positions, "slots": b.slots,
            "weight": matrix.data, "scales": or_absent(matrix.scales, b.x), "group": matrix.group,
            "minimums": or_absent(matrix.minimums, b.x), "has_minimums": matrix.minimums is not None,
            "position_rows": or_absent(rows, b.x), "has_rows": rows is not None,
            "width": self.config.d_model, "block": round_up(self.config.d_model),
            **describe_norm(module.embed_norm, b.x),
        }  # fmt: skip

    def _add_product(
        self,
        x: Tensor,
        y: Tensor,
        matrices: Sequence[Matrix],
        ending: str,
        *,
        norm: Any = None,
        computed: str = "",
    ) -> int:
        """Adds the launch of a product, and returns its number of blocks of outputs. Matrices that share an
        input are multiplied side by side, a gate and its up-projection by the same programs."""
        b, first = self.buffers, matrices[0]
        arguments = self._describe_products(matrices, ending) | {"x": x, "y": y}
        width, outs = first.data.shape[1], [len(matrix.data) for matrix in matrices]
        multiplied = outs[:1] if ending == "gate" else outs
        if self.count == 1:
            tiles = choose_vector_tiles(width, first.group > 0, ending)
            arguments |= describe_norm(norm, b.x) | {"rows": tiles.rows, "block": tiles.block}
            blocks = sum(-(-out // tiles.rows) for out in multiplied)
            launch = Launch(products.multiply_vector, (blocks,), arguments, tiles.warps, computed=computed)
            self.launches.append(launch)
            return blocks
        if norm is not None:
            self._add_norm(norm)
            arguments["x"] = b.normed
        t = choose_row_tiles(self.count, width, first.group, self.planes == 1, ending)
        blocks = sum(-(-out // t.block_n) for out in multiplied)
        is_input = y is b.hidden_planes
        arguments |= {
            "y_stride": y.stride(-2),
            "plane_in": arguments["x"].stride(0), "plane_out": b.hidden_planes.stride(0),
            "planes": self.planes, "planes_out": self.planes if is_input else 1, "count": self.count,
            "n_blocks": blocks, "block_m": t.block_m, "block_n": t.block_n, "block_k": t.block_k,
        }  # fmt: skip
        grid = (blocks, -(-self.count // t.block_m))
        self.launches.append(Launch(products.multiply_rows, grid, arguments, t.warps, t.stages, computed))
        return blocks

    def _describe_products(self, matrices: Sequence[Matrix], ending: str) -> dict[str, Any]:
        """Returns the arguments of a product that do not depend on the number of texts."""
        b, first = self.buffers, matrices[0]
        arguments: dict[str, Any] = {
            "best": b.best, "best_id": b.best_id, "ending": ending, "width": first.data.shape[1],
            "group": first.group, "has_minimums": first.minimums is not None,
            "has_bias": first.bias is not None, "activation": self.config.mlp.activation,
            "cap": find_limit(self.config.logit_cap) if ending == "logits" else 0.0,
        }  # fmt: skip
        for place in range(MOST_MATRICES):
            is_there = place < len(matrices)
            arguments |= matrices[place if is_there else 0].describe(place, b.x)
            arguments[f"out{place}"] = len(matrices[place].data) if is_there else 0
        return arguments

    def _add_norm(self, norm: Any) -> None:
        b, width = self.buffers, self.config.d_model
        arguments = describe_norm(norm, b.x) | {
            "x": b.x, "y": b.normed, "plane_out": b.normed.stride(0), "planes_out": self.planes,
            "width": width, "block": round_up(width),
        }  # fmt: skip
        self.launches.append(Launch(tokens.normalize_rows, (self.count,), arguments, 4))

    def _add_attention(self, path: str, attn: Any, cache: tuple[Tensor, Tensor]) -> None:
        b, c = self.buffers, self.config
        tiles = choose_key_tiles(self.count, self.splits, c.n_head, c.n_kv_head)
        z = self._pick(b.z, b.z_planes)
        common = {
            "z": z, "partial": b.partial, "highest": b.highest, "total": b.total, "slots": b.slots,
            "plane_out": b.z_planes.stride(0), "planes_out": 1 if self.count == 1 else self.planes,
            "n_head": c.n_head, "d_head": c.d_head, "splits": self.splits,
            "channels": max(round_up(c.d_head), 16),
        }  # fmt: skip
        arguments = common | self._describe_attention(attn, *cache) | {
            "shared": tiles.shared, "block": tiles.keys, "is_stored": self.reads_prompts,
            "heads": 1 if tiles.shared == 1 else max(round_up(tiles.shared), 16),
        }  # fmt: skip
        if self.reads_prompts:
            names = attention.store_keys.arg_names
            stored = {name: arguments[name] for name in names if name in arguments}
            self.launches.append(Launch(attention.store_keys, (self.count * c.n_kv_head,), stored, 1))
        grid = (self.count * c.n_head // tiles.shared, self.splits)
        name = f"{path}.attn.z"
        last = name if self.splits == 1 else ""
        self.launches.append(Launch(attention.attend, grid, arguments, tiles.warps, computed=last))
        if self.splits > 1:
            heads = self.count * c.n_head
            self.launches.append(Launch(attention.combine, (heads,), common, 4, computed=name))

    def _describe_attention(self, attn: Any, keys: Tensor, values: Tensor) -> dict[str, Any]:
        """Returns the arguments of a layer's attention that do not depend on the tiles."""
        b, c, module, attend = self.buffers, self.config, self.module, attn.attend
        assert isinstance(attend, SoftmaxAttention)
        cos_sin, slopes = module.positions.cos_sin, module.position_bias.factors
        q_norm = describe_norm(attn.q_norm if attn.has_qk_norm else None, b.x)
        k_norm = describe_norm(attn.k_norm if attn.has_qk_norm else None, b.x)
        return {
            "qkv": b.qkv, "keys": keys, "values": values, "positions": b.positions,
            "cos_sin": or_absent(cos_sin, b.x), "slopes": or_absent(slopes, b.x),
            "q_gain": q_norm["gain"], "q_shift": q_norm["shift"],
            "k_gain": k_norm["gain"], "k_shift": k_norm["shift"],
            **{name: q_norm[name] for name in ("norm", "has_shift", "eps")},
            "row_stride": keys.stride(0), "head_stride": keys.stride(1),
            "n_positions": 0 if cos_sin is None else cos_sin.shape[1],
            "n_kv_head": c.n_kv_head, "scale": float(attend.scale),
            "window": c.mask.size if isinstance(c.mask, Window) else 0, "ring": self.ring,
            "layout": module.positions.layout if cos_sin is not None else "none",
            "has_slopes": slopes is not None, "cap": find_limit(c.score_cap),
            "planes": 1 if keys.dtype == torch.float32 else PLANES,
        }  # fmt: skip


def list_draws(buffers: Buffers, draws: DrawBuffers, count: int, blocks: int) -> list[Launch]:
    """Returns the launches that draw a token of each row; `blocks` of a row have kept their largest logit."""
    b, size = buffers, buffers.logits.shape[1]
    given = {
        "logits": b.logits, "slots": b.slots, "steps": b.steps, "best": b.best, "chosen": b.chosen,
        "n_blocks": blocks, "blocks": round_up(blocks), "vocab_size": size, "most": b.most, "ring": RING,
        **vars(draws),
    }  # fmt: skip
    rows, parts = (count,), (-(-size // selection.CHUNK.value), count)
    kernels = (
        (selection.fill_bins, parts, 4),
        (selection.place_bins, rows, 8),
        (selection.order_bins, parts, 4),
        (selection.find_token, rows, 8),
    )
    return [
        Launch(kernel, grid, {name: given[name] for name in kernel.arg_names if name in given}, warps)
        for kernel, grid, warps in kernels
    ]


def find_limit(cap: Any) -> float:
    """Returns the limit of a soft cap, 0 without one."""
    return 0.0 if cap.is_none else float(cap.limit)
