"""The bill as text: its numbers are those of the record, and no line is wider than the terminal."""

import dataclasses
import re

import pytest

from pellucid.base.columns import display_width
from pellucid.evaluation.quantization.bill import measure_bill
from pellucid.evaluation.quantization.sample import read_sample
from pellucid.evaluation.quantization.text import format_bill
from tests.evaluation.quantization.small_bills import COSTLY, make_bill, make_exact, make_subject, small_bill
from tests.evaluation.small_models import make_model


def test_the_table_has_the_numbers_of_the_record() -> None:
    bill, text = small_bill(), "\n".join(format_bill(small_bill()))
    total = bill.total
    for number in (
        f"{bill.bits_per_weight:.2f}",
        f"{total.kl.value:.3g}",
        f"{total.flips.value:.1%}",
        f"{total.n_flips} of {total.n_targets}",
        f"{total.difference.value:+.4f}".replace("-", "−"),
        *(f"{one.kl.value:.3g}" for one in bill.texts),
        *(f"{1e3 * one.kl.value:.3g}" for one in bill.costs.of("kind")),
    ):
        assert number in text, number


def test_the_costliest_comes_first_with_what_keeping_it_gives() -> None:
    lines = format_bill(small_bill())
    heads = [i for i, line in enumerate(lines) if re.match(r"(kind|layer|matrix) .*KL$", line)]
    assert [lines[i + 1].split()[0] for i in heads] == ["blocks.*.mlp.up_proj.weight", "blocks.1.*", COSTLY]
    begin = next(i for i, line in enumerate(lines) if line.startswith("--keep"))
    assert lines[begin + 1].startswith("(nothing)") and lines[begin + 2].startswith("blocks.")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(display_width, format_bill(small_bill(), width))) <= max(width, 72)


def test_an_exact_model_says_so() -> None:
    bill = make_bill(make_exact(make_model()))
    text = "\n".join(format_bill(bill))
    count = len(bill.matrices)
    assert f"{count} of {count} matrices are quantized exactly" in text
    assert "equal" in text and "departs at" in text and "what matrices cost" not in text


def test_a_short_text_says_that_it_has_no_intervals() -> None:
    model = make_model()
    sample = read_sample(model.pretrained, "A cat sat on the mat.", 100)
    text = " ".join(format_bill(measure_bill(make_subject(model), sample, samples=10)))
    assert "too short for intervals" in text and "±" not in text


def test_a_name_cannot_send_codes_to_the_terminal() -> None:
    bill = dataclasses.replace(small_bill(), model="a\x1b[2Jb", notes=("note\x07",))
    assert not any("\x1b" in line or "\x07" in line for line in format_bill(bill))
