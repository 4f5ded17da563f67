"""Taps show every named value of their own context, edit what matches and nothing else, and cost nothing
unwatched."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor

from pellucid.base.errors import ResourceError, UsageError
from pellucid.engine import taps
from pellucid.engine.taps import edit, look, record
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import Model
from tests.agreement.engines import CHOICES, IDS, TARGETS, fast, run
from tests.formats.gguf import random_models

CONFIG = CHOICES["positions/rope"]
SHALLOW = dataclasses.replace(CONFIG, n_layer=1)
"""For the compiler, which takes its time for each layer."""
IDS_ = torch.tensor(IDS)


def generate(model: Transformer, count: int) -> list[int]:
    request = Request((1, 2, 3), Sampling(max_new_tokens=count))
    return list(Engine(model, slots=1).add(request).result()[0].ids)


def without_head(z: Tensor) -> Tensor:
    """Head 2 silenced."""
    return z * torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=z.dtype)[:, None, None]


def test_a_pattern_chooses_the_names_that_are_kept() -> None:
    model = fast(CONFIG)
    with record("blocks.*.attn.pattern", "logits") as seen:
        model(IDS_)
    assert list(seen) == ["blocks.0.attn.pattern", "blocks.1.attn.pattern", "logits"]
    assert len(seen) == 3 and "probs" not in seen
    assert seen.arrays()["logits"].dtype == float
    assert torch.allclose(seen["blocks.1.attn.pattern"].sum(-1), torch.ones(()).double())


def test_a_recording_is_short_at_a_prompt_and_a_table_in_a_notebook() -> None:
    model = fast(CONFIG)
    with record("*") as seen:
        model(IDS_)
        model(IDS_)
    assert repr(seen).startswith(f"<Recording: {len(seen)} values, of the last of 2 calls: ")
    assert len(repr(seen)) < 300 and "\n" not in repr(seen)
    shape = str(list(seen["blocks.1.attn.pattern"].shape))
    assert "blocks.1.attn.pattern</td>" in seen._repr_html_() and f">{shape}</td>" in seen._repr_html_()


@pytest.mark.parametrize("patterns", [(5,), (None,), (["logits"],), ("logits", b"probs")])
def test_a_pattern_that_is_not_a_text_is_refused_before_anything_runs(patterns: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match="pattern"), record(*patterns):
        pytest.fail("it was entered")
    with pytest.raises(UsageError, match="pattern"), edit(patterns[-1], lambda value: value):
        pytest.fail("it was entered")
    assert taps.current_watcher() is None


def test_switches_and_changes_of_a_wrong_type_are_refused_by_name() -> None:
    for name in ("gradients", "fused"):
        with pytest.raises(UsageError, match=name), record("logits", **{name: "yes"}):
            pytest.fail("it was entered")
    change: Any = 5
    with pytest.raises(UsageError, match="change"), edit("logits", change):
        pytest.fail("it was entered")


def test_a_recording_that_saw_nothing_is_empty() -> None:
    with record() as seen:
        pass
    assert not seen and seen.calls == [] and seen.arrays() == {}
    assert repr(seen) == "<Recording: 0 values>"


def test_every_forward_call_is_kept_by_itself_also_while_generating() -> None:
    model = fast(CONFIG)
    with record("embedded", "logits") as seen:
        written = generate(model, 4)
    assert [call["embedded"].shape[1] for call in seen.calls] == [3, 1, 1, 1]
    assert [int(call["logits"][0, -1].argmax()) for call in seen.calls] == written
    assert seen["logits"] is seen.calls[-1]["logits"]


def test_gradients_join_when_the_backward_pass_has_reached_them() -> None:
    model = fast(CONFIG)
    with record("blocks.0.resid_*", "loss", gradients=True) as seen:
        value = run(model, IDS, TARGETS)
        before = set(seen)
        value.backward()
    assert set(seen) - before == {f"d.{name}" for name in before}


def test_a_recording_keeps_no_graph_and_gradients_are_kept_only_if_asked() -> None:
    with record() as seen:
        run(fast(CONFIG), IDS, TARGETS).backward()
    assert not any(value.requires_grad for value in seen.values())
    assert not [name for name in seen if name.startswith("d.")]


def test_an_edit_changes_what_comes_after_it_and_nothing_before() -> None:
    model = fast(CONFIG)
    with record() as before:
        model(IDS_)
    with edit("blocks.1.attn.z", without_head), record() as after:
        model(IDS_)
    assert list(before) == list(after)
    first = list(before).index("blocks.1.attn.z")
    for i, name in enumerate(before):
        same = torch.equal(before[name], after[name])
        assert same is (i < first), name


def test_a_silenced_head_is_what_its_columns_of_the_output_matrix_wrote() -> None:
    model, name = fast(CONFIG), "blocks.1.attn_out"
    with record() as before:
        model(IDS_)
    with edit("blocks.1.attn.z", without_head), record() as after:
        model(IDS_)
    columns = model.blocks[1].attn.o_proj.weight[:, 2 * CONFIG.d_head : 3 * CONFIG.d_head]
    wrote = before["blocks.1.attn.z"][:, 2] @ columns.detach().mT
    torch.testing.assert_close(before[name] - after[name], wrote, rtol=0, atol=1e-14)
    assert torch.equal(after["blocks.1.attn.z"][:, 2], torch.zeros_like(wrote)[..., : CONFIG.d_head])


def test_gradients_follow_an_edit() -> None:
    """A head that is silenced by a product with 0 gets no gradient: nothing it does matters."""
    model = fast(CONFIG)
    with edit("blocks.*.attn.z", without_head), record(gradients=True) as seen:
        run(model, IDS, TARGETS).backward()
    queries = seen["d.blocks.0.attn.q"]
    assert not queries[:, 2].any() and queries[:, 1].any()
    weight = model.blocks[0].attn.q_proj.weight.grad
    assert weight is not None
    by_head = weight.unflatten(0, (CONFIG.n_head, -1)).abs().sum((1, 2))
    assert (by_head == 0).tolist() == [False, False, True, False]


def test_edits_of_one_name_happen_in_the_order_given() -> None:
    model = fast(CONFIG)
    with record("logits") as plain:
        model(IDS_)
    with edit("logits", lambda x: x + 1), edit("log*", lambda x: x * 2), record("logits") as seen:
        got = model(IDS_)
    assert torch.equal(seen["logits"], (plain["logits"] + 1) * 2) and torch.equal(got, seen["logits"])


def test_recordings_nest_and_the_inner_one_ends_first() -> None:
    model = fast(CONFIG)
    with record("embedded") as outer:
        with record("logits") as inner:
            model(IDS_)
        model(IDS_)
    assert (len(outer.calls), len(inner.calls)) == (2, 1)
    assert list(outer) == ["embedded"] and list(inner) == ["logits"]


def test_ending_a_block_ends_that_block_and_not_an_equal_one() -> None:
    model = fast(CONFIG)
    plain = model(IDS_)
    with record() as outer:
        with record() as inner:
            model(IDS_)
        model(IDS_)
    assert (len(outer.calls), len(inner.calls)) == (2, 1)

    def twice(x: Tensor) -> Tensor:
        return x * 2

    with edit("logits", twice), edit("logits", lambda x: x + 1):
        with edit("logits", twice):
            torch.testing.assert_close(model(IDS_), (plain * 2 + 1) * 2)
        torch.testing.assert_close(model(IDS_), plain * 2 + 1)


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("blocks.0.attn.patern", "blocks.0.attn.pattern"),
        ("blocks.9.*", r"blocks\.9"),
        ("logit", "logits"),
    ],
)
def test_a_pattern_that_matched_no_value_is_an_error_when_the_block_ends(pattern: str, hint: str) -> None:
    model = fast(CONFIG)
    for watch in (record("logits", pattern), edit(pattern, lambda x: x)):
        with pytest.raises(UsageError, match=hint), watch:
            model(IDS_)
        assert taps.current_watcher() is None
    with edit(pattern, lambda x: x), record(pattern):
        pass  # no forward ran: nothing can be said about it
    with pytest.raises(TypeError), edit(pattern, lambda x: x):
        len(model(IDS_), 1)  # type: ignore[call-arg]  # the first exception is the one that is raised


def test_an_edit_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="logits"):
        edit("probs", lambda x: x * 0).__enter__()
    assert taps.current_watcher() is None


def test_a_pattern_may_name_gradients() -> None:
    model = fast(CONFIG)
    with record("d.blocks.*.attn.q", "logits") as seen:
        run(model, IDS, TARGETS).backward()
    assert set(seen) == {"logits", "d.blocks.0.attn.q", "d.blocks.1.attn.q"}
    with record("d.*") as grads, record(gradients=True) as both:
        run(model, IDS, TARGETS).backward()
    assert set(grads) == {name for name in both if name.startswith("d.")}
    assert all(torch.equal(grads[name], both[name]) for name in grads)
    with pytest.raises(UsageError, match=r"d\.logits"), record("d.logit"):
        model(IDS_)


def test_what_was_recorded_while_generating_can_be_trained_on() -> None:
    model = fast(CONFIG)
    with record("embedded") as seen:
        generate(model, 2)
    assert not any(value.is_inference() for call in seen.calls for value in call.values())
    (seen["embedded"] * torch.ones((), dtype=torch.float64, requires_grad=True)).sum().backward()


def test_compiled_code_is_not_watched_inside_another_block() -> None:
    model = fast(CONFIG)
    with edit("logits", lambda x: x * 0):
        with pytest.raises(UsageError):
            taps.compiled_values(lambda: model(IDS_))
        assert not model(IDS_).any()  # the edit goes on


def test_values_of_compiled_code_are_refused_where_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with TORCHDYNAMO_DISABLE=1: no values would else be equal to all that they are compared with."""
    model = fast(SHALLOW)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with pytest.raises(ResourceError, match="switched off"):
        taps.compiled_values(lambda: model(IDS_))


def bad_shape(x: Tensor) -> Tensor:
    return x[:1]


def bad_type(x: Tensor) -> Tensor:
    return x.float()


def bad_thing(x: Tensor) -> Tensor:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("change", "gave"),
    [
        (bad_shape, r"\(1, 5, 7\) torch.float64"),
        (bad_type, r"\(2, 5, 7\) torch.float32"),
        (bad_thing, "NoneType"),
    ],
)
def test_a_wrong_edit_is_refused_with_both_shapes(change: Callable[[Tensor], Tensor], gave: str) -> None:
    with (
        pytest.raises(UsageError, match=r"logits.*\(2, 5, 7\) torch.float64.*" + gave),
        edit("logits", change),
    ):
        fast(CONFIG)(IDS_)
    assert taps.current_watcher() is None


def test_nothing_remains_after_an_exception() -> None:
    model = fast(CONFIG)

    def fail() -> None:
        model(IDS_)
        raise ZeroDivisionError

    for watch in (record(), edit("blocks.*", lambda x: x * 0), record(fused=True)):
        with pytest.raises(ZeroDivisionError), watch:
            fail()
        assert taps.current_watcher() is None and not taps.is_explicit()
    plain = model(IDS_)
    with record("logits") as outer:
        with pytest.raises(ZeroDivisionError), edit("blocks.*", lambda x: x * 0):
            fail()
        model(IDS_)
    torch.testing.assert_close(outer["logits"], plain, rtol=0, atol=1e-12)


def test_the_fused_and_the_explicit_path_are_not_watched_at_once() -> None:
    with record(fused=True), pytest.raises(UsageError), edit("z", lambda x: x):
        pass
    with record(), pytest.raises(UsageError), record(fused=True):
        pass
    assert taps.current_watcher() is None


def test_watching_changes_no_logits() -> None:
    model = fast(CONFIG)
    plain = model(IDS_)
    for fused in (False, True):
        with record("embedded", fused=fused):
            torch.testing.assert_close(model(IDS_), plain, rtol=0, atol=1e-12)


@pytest.mark.timed
def test_an_unwatched_tap_costs_less_than_a_hundredth_of_the_forward() -> None:
    config = CONFIG.from_dict(CONFIG.to_dict() | {"d_model": 256, "d_head": 64, "d_ff": 1024, "n_kv_head": 4})
    model, calls, value = fast(config, dtype=torch.float32), 100_000, torch.zeros(())
    with record(fused=True) as seen:
        model(IDS_)
    scope = taps.TapScope("blocks.0.attn")

    def seconds(times: int, act: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(times):
                act()
            best = min(best, (time.perf_counter() - start) / times)
        return best

    with torch.inference_mode():
        one, forward = seconds(calls, lambda: scope("q", value)), seconds(20, lambda: model(IDS_))
    print(
        f"a tap takes {one * 1e9:.0f} ns; {len(seen)} of them, {one * len(seen) / forward:.2%} of a forward"
    )
    assert one < 0.5e-6
    assert one * len(seen) < 0.01 * forward


def test_look_is_called_with_every_value_in_order() -> None:
    model, ids = fast(CONFIG), IDS_
    seen: list[str] = []
    with record() as kept:
        model(ids)
    with look(lambda name, value: seen.append(name)):
        model(ids)
    assert seen == list(kept)
    with look(lambda name, value: seen.append(name), fused=True):
        model(ids)
    assert len(seen) < 2 * len(kept)


@pytest.fixture
def recording_elsewhere() -> Iterator[Callable[[], int]]:
    """Another thread holds a recording and an edit open and runs a model again and again; the function ends
    it and returns how many calls it made, which are all that it recorded."""
    opened, end = threading.Event(), threading.Event()

    def work() -> int:
        other, calls = fast(CONFIG), 0
        with record() as seen, edit("blocks.*.attn.z", torch.zeros_like):
            while not end.is_set() or not calls:
                other(IDS_)
                calls += 1
                opened.set()
        assert len(seen.calls) == calls
        assert all("blocks.0.attn.pattern" in call for call in seen.calls)
        return calls

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        assert opened.wait(30)

        def finish() -> int:
            end.set()
            return running.result(30)

        yield finish
        end.set()


def test_a_recording_and_an_edit_in_one_thread_leave_another_thread_alone(
    recording_elsewhere: Callable[[], int],
) -> None:
    model = fast(CONFIG)
    assert taps.current_watcher() is None and not taps.is_explicit()
    while_watched = model(IDS_), generate(model, 4)
    assert recording_elsewhere() > 0
    assert torch.equal(while_watched[0], model(IDS_))
    assert while_watched[1] == generate(model, 4)


def test_a_compiled_model_stays_compiled_while_another_thread_records(
    recording_elsewhere: Callable[[], int],
) -> None:
    model, compiles, runs = fast(SHALLOW), [], []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        def run(*given: Tensor) -> Any:
            runs.append(1)
            return graph.forward(*given)

        compiles.append(1)
        return run

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    found = [compiled(IDS_) for _ in range(3)]
    with record("logits") as seen:
        compiled(IDS_)
    assert recording_elsewhere() > 0
    found.append(compiled(IDS_))
    assert (len(compiles), len(runs), len(seen.calls)) == (1, 4, 1)
    assert all(torch.equal(logits, model(IDS_)) for logits in found)


def test_collecting_compiled_values_in_one_thread_recompiles_nothing_in_another() -> None:
    compiled = torch.compile(fast(SHALLOW), backend="eager", fullgraph=True)
    plain = compiled(IDS_)

    def elsewhere() -> Tensor:
        with torch._dynamo.config.patch(error_on_recompile=True):
            return compiled(IDS_)

    taps._tracing.watcher = taps._Collector()
    try:
        with ThreadPoolExecutor(1) as pool:
            assert torch.equal(pool.submit(elsewhere).result(), plain)
    finally:
        taps._tracing.watcher = None


def test_ten_threads_record_at_once_and_each_gets_its_own_calls() -> None:
    model, together = fast(CONFIG), threading.Barrier(10)

    def work(row: int) -> bool:
        ids = torch.full((1, 3), row % CONFIG.vocab_size)
        with record("embedded", "blocks.*.attn.pattern", "logits") as seen:
            together.wait(30)
            got = [model(ids) for _ in range(row + 1)]
            together.wait(30)
        expected = model.embed.weight[row % CONFIG.vocab_size].expand(1, 3, -1)
        return (
            len(seen.calls) == row + 1
            and all(torch.equal(call["embedded"], expected) for call in seen.calls)
            and torch.equal(seen["logits"], got[-1])
        )

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(work, range(10)))


def test_tasks_of_one_thread_record_their_own_calls() -> None:
    model = fast(CONFIG)

    async def work(count: int) -> int:
        with record("logits") as seen:
            for _ in range(count):
                model(IDS_)
                await asyncio.sleep(0)
        return len(seen.calls)

    async def both() -> list[int]:
        return await asyncio.gather(work(2), work(5))

    assert asyncio.run(both()) == [2, 5]


def test_with_a_model_the_others_are_neither_recorded_nor_edited_nor_explicit() -> None:
    watched, other = fast(CONFIG), fast(CONFIG)
    plain = other(IDS_)
    with record(model=watched) as seen, edit("logits", torch.zeros_like, model=watched):
        assert torch.equal(other(IDS_), plain) and not taps.is_explicit() and not seen.calls
        assert not watched(IDS_).any() and taps.is_explicit()
        assert taps.is_explicit(watched) and not taps.is_explicit(other)
        assert torch.equal(other(IDS_), plain)
        with record("logits") as every:
            other(IDS_)
            watched(IDS_)
    assert len(seen.calls) == 2 and "blocks.0.attn.pattern" in seen and len(every.calls) == 2


def test_a_loss_belongs_to_the_model_that_ran_last() -> None:
    watched, other = fast(CONFIG), fast(CONFIG)
    with record("loss", "logits", model=watched) as seen:
        run(other, IDS, TARGETS)
        assert not seen.calls
        value = run(watched, IDS, TARGETS)
        run(other, IDS, TARGETS)
    assert len(seen.calls) == 1 and torch.equal(seen["loss"], value.detach())


def test_the_model_of_a_block_may_be_wrapped() -> None:
    module, model = fast(CONFIG), Model(random_models.model(random_models.LLAMA))
    with record("logits", model=model) as seen:
        module(IDS_)
        model.module(IDS_)
    assert len(seen.calls) == 1
    with record("logits", model=torch.compile(module, backend="eager")) as seen:
        module(IDS_)
    assert len(seen.calls) == 1
    with pytest.raises(UsageError, match="model"):
        record(model=5).__enter__()


def test_blocks_may_end_in_any_order() -> None:
    model, first, second = fast(CONFIG), ExitStack(), ExitStack()
    outer = first.enter_context(record("logits"))
    inner = second.enter_context(record("logits"))
    model(IDS_)
    first.close()
    model(IDS_)
    second.close()
    model(IDS_)
    assert (len(outer.calls), len(inner.calls)) == (1, 2) and taps.current_watcher() is None
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph

    torch.compile(fast(SHALLOW), backend=backend, fullgraph=True)(IDS_)
    assert graphs, "compiled functions run eagerly though every block has ended"
