"""Logits that were asked for of some positions alone are judged there, and nowhere else."""

import numpy as np
import torch

from pellucid.model import Model
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.engine.observed import RecordedTexts, join_texts
from pellucid.verification.checks.engine.paths import judge_texts
from pellucid.verification.checks.engine.schedule import run_schedule
from pellucid.verification.foreign_values import RecordedValue
from tests.formats.gguf import random_models


def test_a_logit_that_was_asked_for_is_judged_and_one_that_was_not_is_filled_in() -> None:
    subject = Subject(Model(random_models.model(random_models.LLAMA)))
    module = subject.module(torch.float32)
    with torch.no_grad():
        run = run_schedule(subject, module, True)
    texts = next(texts for texts in run.texts if "logits" in texts.absent)
    absent = texts.absent["logits"]
    assert absent.any() and not absent.all() and run.last_only
    assert judge_texts(subject, module, texts)
    for place, is_bug in (((absent.nonzero()), False), ((~absent).nonzero(), True)):
        b, t = (int(axis[0]) for axis in place)
        logits = texts.values["logits"].value.copy()
        logits[b, t, 3] += 1.0
        values = {**texts.values, "logits": RecordedValue(logits, texts.values["logits"].type)}
        assert bool(judge_texts(subject, module, texts._replace(values=values))) is not is_bug


def test_a_value_of_a_block_that_one_position_lacks_is_left_out() -> None:
    full = {"blocks.0.attn_out": torch.ones(4), "logits": torch.ones(5)}
    lacking = {"embedded": torch.ones(4)}
    texts: RecordedTexts = next(join_texts([([1, 2], [full | lacking, dict(lacking)])]))
    assert {*texts.values} == {"embedded", "logits"}
    assert np.array_equal(texts.absent["logits"], [[False, True]])
