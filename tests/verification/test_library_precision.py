"""Two healthy conventions of rounding, and what neither of them explains."""

import numpy as np
import pytest

from pellucid.base.dtypes import BY_NAME
from pellucid.explanation.trace import Trace
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Tape
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.judge_run import judge_run
from pellucid.verification.library_precision import judge_precision
from pellucid.verification.rounding import round_to
from pellucid.verification.verdict import Verdict
from tests.verification.stranger_llama import BUGS, PER_OPERATION, Sizes, compare_run, with_bug

NARROW = ("bfloat16", "float16")
WIDER = Sizes(width=96, hidden=192)


@pytest.mark.parametrize("type", NARROW)
def test_a_rounding_after_every_operation_everywhere_is_noise_with_a_remark(type: str) -> None:
    done = compare_run(type, PER_OPERATION, sizes=WIDER)
    assert done.verdict is Verdict.NOISE and "rounded after every operation" in str(done), str(done)
    assert compare_run(type, sizes=WIDER).remark == ""


@pytest.mark.parametrize("type", NARROW)
@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("norm in type", "blocks.0.attn_norm.out"),
        ("norm accumulated in type", "blocks.0.attn_norm.out"),
        ("softmax in type", "blocks.0.attn.pattern"),
        ("softmax accumulated in type", "blocks.0.attn.pattern"),
        ("products accumulated in type", "blocks.0.attn.q"),
    ],
)
def test_one_kind_of_step_in_a_lower_precision_contradicts_both_conventions(
    bug: str, name: str, type: str
) -> None:
    done = compare_run(type, BUGS[bug], sizes=WIDER)
    assert done.verdict is Verdict.LOW_PRECISION and not done, str(done)
    assert done.low_precision[0].name == name, str(done)


@pytest.mark.parametrize("type", NARROW)
def test_a_sum_that_is_rounded_while_it_is_added_up_is_low_in_either_convention(type: str) -> None:
    done = compare_run(type, with_bug(PER_OPERATION, "products accumulated in type"), sizes=WIDER)
    assert done.low_precision[0].name == "blocks.0.attn.q", str(done)


def test_inputs_of_a_wider_type_are_not_judged() -> None:
    """Autocast rounds float32 inputs before a product, which is not an error of the product."""
    random, tape, bfloat16 = np.random.default_rng(0), Tape(), BY_NAME["bfloat16"]
    x = tape.constant("x", random.standard_normal((8, 32)))
    w = tape.parameter("w", round_to(random.standard_normal((16, 32)), bfloat16))
    tape("y", find_op("einsum"), tape("h", find_op("relu"), x), w, spec="tc,oc->to")
    h = round_to(tape["h"], BY_NAME["float32"])
    y = RecordedValue(round_to(round_to(h, bfloat16) @ tape["w"].T, bfloat16), "bfloat16")
    for held, verdict in (("float32", Verdict.NOISE), ("bfloat16", Verdict.LOW_PRECISION)):
        recorded = {"h": RecordedValue(h, held), "y": y}
        assert judge_precision(judge_run(tape, recorded), Trace(tape), recorded).verdict is verdict
