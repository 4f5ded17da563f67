"""The answers that the original worksheets of Examples 1 to 6 print, and the verdict that each must get.

The model: E A (1, 0) B (0, 1) C (1, 1) D (0, 0), W_Q = W_K = W_V = 0.1 · I, no mask, rate 0.1, and
W_U = [[.1, 0, 0, 0], [0, 0, .1, 0]]. What a worksheet does not print is left open.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.explanation.trace import Trace
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.mark import Grade, Marking, mark_sheet
from pellucid.parts.mlps import Relu
from pellucid.parts.residuals import PlainResidual
from pellucid.reference.mlps import apply_mlp
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, train
from pellucid.reference.transformer import add_residual
from tests.golden.test_texts import MIXING, TOYAI, TOYAI_BLOCK, TOYAI_BLOCK_WEIGHTS, TOYAI_WEIGHTS

A, B, C, D = range(4)
LETTERS = ["A", "B", "C", "D"]

Wanted = tuple[Grade, str]
"""A verdict, and words that its note or its mistakes have."""
RIGHT: Wanted = (Grade.RIGHT, "")
YOURS: Wanted = (Grade.FROM_YOURS, "")
CUT_OFF: Wanted = (Grade.ROUNDING, "cut off")
TOO_FEW: Wanted = (Grade.ROUNDING, "give")
ROUNDING: Wanted = (Grade.ROUNDING, "")
WRONG: Wanted = (Grade.WRONG, "")
EQUAL_ROWS: Wanted = (Grade.WRONG, "last query's row for every query")
COPIED: Wanted = (Grade.WRONG, "factor of a product missing")
N_MINUS_ONE: Wanted = (Grade.WRONG, "variance divided by N − 1")


@dataclass(frozen=True)
class Published:
    """A worksheet: how its sheet is made, and its printed answers with their verdicts.

    A row is an address with `*` in the place of one index; its answers are those of 0, 1, 2 …, and so are its
    verdicts. One verdict is that of the whole row.
    """

    name: str
    trace: Callable[[], Trace]
    focus: Sequence[str]
    digits: int
    rows: Mapping[str, tuple[str, Sequence[Wanted] | Wanted]]

    @cached_property
    def cells(self) -> dict[str, tuple[str, Wanted]]:
        """The answer and the verdict of each printed cell."""
        return dict(self._list_cells())

    def _list_cells(self) -> Iterator[tuple[str, tuple[str, Wanted]]]:
        for address, (texts, wanted) in self.rows.items():
            answers = texts.split()
            verdicts = [wanted] * len(answers) if isinstance(wanted, tuple) else wanted
            for i, (answer, verdict) in enumerate(zip(answers, verdicts, strict=True)):
                yield address.replace("*", str(i)), (answer, verdict)  # type: ignore[misc]

    @cached_property
    def marking(self) -> Marking:
        """The verdicts on the sheet with the published answers."""
        sheet = make_sheet(self.trace(), self.focus, boxes=200, digits=self.digits)
        return mark_sheet(replace(sheet, answers={key: answer for key, (answer, _) in self.cells.items()}))


def _name(tape: Tape, prompt: Sequence[int]) -> Trace:
    words = [LETTERS[i] for i in prompt]
    return Trace(tape, {"model": "toyai"}, {"t": words, "s": words, "v": LETTERS})


def _learn(*prompt: int, target: int) -> Trace:
    targets = [[IGNORE_INDEX, target]]
    tape, _ = train(TOYAI, TOYAI_WEIGHTS, [list(prompt)], targets, "sgd", 1, lr=0.1)
    return _name(tape, prompt)


def _feed_forward() -> Trace:
    """Example 5: a feed-forward with a residual round it, after attention without one."""
    tape = forward(TOYAI, TOYAI_WEIGHTS, [[A, B]])
    for name in ("up_proj", "down_proj"):
        tape.parameter(f"blocks.0.mlp.{name}.weight", MIXING)
    x, block = tape.ref("blocks.0.attn_out"), tape.scope("blocks.0")
    add_residual(block, "mlp_sum", x, apply_mlp(block, x, Relu(), None), PlainResidual())
    return _name(tape, [A, B])


def _block() -> Trace:
    """Example 6: post-norm, and each column of W_U twice."""
    twice = np.array([[0.1, 0, 0.1, 0], [0, 0.1, 0, 0.1]]).T
    return _name(forward(TOYAI_BLOCK, {**TOYAI_BLOCK_WEIGHTS, "unembed.weight": twice}, [[A, B]]), [A, B])


ATTN = "blocks.0.attn"
EXAMPLE_1 = {
    f"{ATTN}.scores[t=1,s=*]": "0.0 .00707",
    f"{ATTN}.pattern[t=1,s=*]": ".498 .502",
    f"{ATTN}.z[t=1,d=*]": ".0498 .0502",
    "logits[t=1,v=*]": ".00498 0.0 .00502 0.0",
    "probs[t=1,v=*]": ".250 .249 .251 .249",
}

PUBLISHED = (
    Published(
        "Example 1",
        lambda: _learn(A, B, target=C),
        ["probs[t=1]"],
        3,
        {
            address: (texts, RIGHT if address != "probs[t=1,v=*]" else [CUT_OFF, RIGHT, RIGHT, RIGHT])
            for address, texts in EXAMPLE_1.items()
        },
    ),
    Published(
        "Example 2",
        lambda: _learn(A, B, target=C),
        ["unembed.weight@1", "nll[t=1]"],
        4,
        {
            f"{ATTN}.scores[t=1,s=*]": ("0.0 .00707", [RIGHT, TOO_FEW]),
            f"{ATTN}.pattern[t=1,s=*]": (".498 .502", TOO_FEW),
            f"{ATTN}.z[t=1,d=*]": (".0498 .0502", TOO_FEW),
            "logits[t=1,v=*]": (".00498 0.0 .00502 0.0", [TOO_FEW, RIGHT, TOO_FEW, RIGHT]),
            "probs[t=1,v=*]": (".250 .249 .251 .249", [CUT_OFF, TOO_FEW, TOO_FEW, TOO_FEW]),
            "nll[t=1]": ("1.383", CUT_OFF),
            "d.logits[t=1,v=*]": (".250 .249 -.749 .249", TOO_FEW),
            "d.unembed.weight[v=*,c=0]": (".01245 .01240 -.03730 .01240", YOURS),
            "d.unembed.weight[v=*,c=1]": (".01255 .01250 -.03760 .01250", [YOURS, YOURS, RIGHT, YOURS]),
            "unembed.weight@1[v=2,c=1]": (".10376", RIGHT),
        },
    ),
    Published(
        "Example 3",
        lambda: _learn(A, B, target=C),
        [f"d.{ATTN}.q[t=1]", f"d.{ATTN}.k[s=0]", f"d.{ATTN}.v[s=0]"],
        3,
        {
            "d.blocks.0.attn_out[t=1,c=*]": (".025 -.0749", [ROUNDING, RIGHT]),
            f"d.{ATTN}.pattern[t=1,s=*]": (".0025 -.00749", [ROUNDING, RIGHT]),
            f"d.{ATTN}.scores[t=1,s=*]": (".002497 -.002497", RIGHT),
            f"d.{ATTN}.q[t=1,d=*]": (".0001765 -.0001765", RIGHT),
            f"d.{ATTN}.k[s=0,d=*]": ("0.0 .0001765", RIGHT),
            f"d.{ATTN}.v[s=0,d=*]": (".01245 -.0376", [RIGHT, EQUAL_ROWS]),
        },
    ),
    Published(
        "Example 4, A B → C",
        lambda: _learn(A, B, target=C),
        ["d.unembed.weight"],
        3,
        {
            "d.unembed.weight[v=*,c=0]": (".0498 .0498 -.0373 .0498", [COPIED, COPIED, RIGHT, COPIED]),
            "d.unembed.weight[v=*,c=1]": (".0502 .0502 -.0376 .0502", [COPIED, COPIED, RIGHT, COPIED]),
        },
    ),
    Published(
        "Example 4, A A → D",
        lambda: _learn(A, A, target=D),
        ["d.unembed.weight", "nll[t=1]", "d.blocks.0.attn_out[t=1]"],
        3,
        {
            f"{ATTN}.pattern[t=1,s=*]": (".5 .5", RIGHT),
            f"{ATTN}.z[t=1,d=*]": (".1 0.0", RIGHT),
            "logits[t=1,v=*]": (".01 0 0 0", RIGHT),
            "probs[t=1,v=*]": (".9975 .0008 .0008 .0008", WRONG),
            "nll[t=1]": ("7.13", YOURS),
            "d.logits[t=1,v=*]": (".9975 .0008 .0008 -.9992", YOURS),
            "d.blocks.0.attn_out[t=1,c=*]": (".09975 0.0", [YOURS, WRONG]),
            "d.unembed.weight[v=*,c=0]": (".09975 .00008 .00008 -.09992", YOURS),
        },
    ),
    Published(
        "Example 5",
        _feed_forward,
        ["blocks.0.mlp_sum"],
        4,
        {
            f"{ATTN}.z[t=0,d=*]": (".0498 .0502", WRONG),
            "blocks.0.mlp.up[t=0,f=*]": (".01498 .01502", YOURS),
            "blocks.0.mlp_out[t=0,c=*]": (".004498 .004502", YOURS),
            "blocks.0.mlp_sum[t=0,c=*]": (".054298 .054702", YOURS),
            f"{ATTN}.z[t=1,d=*]": (".0498 .0502", TOO_FEW),
            "blocks.0.mlp.up[t=1,f=*]": (".01498 .01502", RIGHT),
            "blocks.0.mlp_out[t=1,c=*]": (".004498 .004502", RIGHT),
            "blocks.0.mlp_sum[t=1,c=*]": (".054298 .054702", YOURS),
        },
    ),
    Published(
        "Example 6",
        _block,
        ["probs[t=1]", "blocks.0.resid_post"],
        3,
        {
            "blocks.0.attn_sum[t=0,c=*]": ("1.0498 .0502", RIGHT),
            "blocks.0.attn_sum[t=1,c=*]": (".0498 1.0502", RIGHT),
            "blocks.0.attn_post_norm.out[t=0,c=*]": (".707 -.707", N_MINUS_ONE),
            "blocks.0.attn_post_norm.out[t=1,c=*]": ("-.707 .707", N_MINUS_ONE),
            "blocks.0.mlp.up[t=0,f=*]": (".0707 -.0707", YOURS),
            "blocks.0.mlp.up[t=1,f=*]": ("-.0707 .0707", YOURS),
            "blocks.0.mlp.act[t=0,f=*]": (".0707 0", [YOURS, RIGHT]),
            "blocks.0.mlp.act[t=1,f=*]": ("0 .0707", [RIGHT, YOURS]),
            "blocks.0.mlp_out[t=0,c=*]": (".01414 .00707", YOURS),
            "blocks.0.mlp_out[t=1,c=*]": (".00707 .01414", YOURS),
            "blocks.0.mlp_sum[t=0,c=*]": (".72114 -.69993", YOURS),
            "blocks.0.mlp_sum[t=1,c=*]": ("-.69993 .72114", YOURS),
            "blocks.0.mlp_post_norm.out[t=0,c=*]": (".707 -.707", N_MINUS_ONE),
            "blocks.0.mlp_post_norm.out[t=1,c=*]": ("-.707 .707", N_MINUS_ONE),
            "logits[t=1,v=*]": ("-.0707 .0707 -.0707 .0707", YOURS),
            "probs[t=1,v=*]": (".232 .268 .232 .268", YOURS),
        },
    ),
)
