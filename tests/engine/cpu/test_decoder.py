"""The compiled decoder computes what the module does, the same bits however a text is read."""

import os
import threading

import numpy as np
import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.base.quantized import Scheme
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder, accelerate, find_obstacle
from pellucid.engine.cpu.library import SETS, NoLibrary, load_set
from pellucid.engine.taps import edit, record
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from tests.engine.cpu.models import (
    FAMILIES,
    make_config,
    make_ids,
    make_module,
    make_weights,
    quantize_in_groups,
    read_chunks,
)

INT8, INT4 = Scheme(8), Scheme(4, 32)
SCHEMES = {"float32": None, "int8": INT8, "int4": INT4, "int8 groups": Scheme(8, 32)}
LENGTH = 60


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_logits_are_those_of_the_module_in_float64(family: str) -> None:
    module, ids = make_module(family), make_ids(LENGTH)
    wide = read_chunks(make_module(family, dtype=torch.float64), ids, [LENGTH], torch.float64)
    own, torchs = (read_chunks(one, ids, [LENGTH]) for one in (NativeDecoder(module), module))
    error, usual = ((found - wide).abs().max() for found in (own, torchs))
    assert error <= max(4 * usual, 1e-6 * wide.abs().max())


@pytest.mark.parametrize("scheme", [INT8, INT4, Scheme(8, 32)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_quantized_logits_differ_by_the_rounding_of_activations_alone(family: str, scheme: Scheme) -> None:
    ids = make_ids(LENGTH)
    wide = read_chunks(make_module(family, scheme, torch.float64), ids, [LENGTH], torch.float64)
    own = read_chunks(NativeDecoder(make_module(family, scheme)), ids, [LENGTH])
    assert (own - wide).abs().max() <= 3e-3 * wide.abs().max()  # 16 bits for each group of 32
    assert (own.argmax(-1) == wide.argmax(-1)).float().mean() > 0.95


@pytest.mark.parametrize("weights", SCHEMES)
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_single_tokens_and_threads_have_the_same_bits(family: str, weights: str) -> None:
    decoder, ids = NativeDecoder(make_module(family, SCHEMES[weights]), threads=2), make_ids(LENGTH)
    whole = read_chunks(decoder, ids, [LENGTH])
    assert torch.equal(whole, read_chunks(decoder, ids, [3, 1, 17, 39]))
    decoder.threads = 1
    assert torch.equal(whole, read_chunks(decoder, ids, [1] * LENGTH))


@pytest.mark.parametrize("cache", [torch.float32, torch.float16, torch.bfloat16, torch.int8], ids=str)
def test_texts_read_together_have_the_bits_of_each_alone(cache: torch.dtype) -> None:
    decoder = NativeDecoder(make_module("llama", INT4), threads=2)
    texts = [make_ids(20 + 3 * seed, seed) for seed in range(5)]
    alone = [read_chunks(decoder, ids, [len(ids)], cache)[-1] for ids in texts]
    caches = [Cache(decoder.config, 1, 80, dtype=cache) for _ in texts]
    with torch.no_grad():
        decoder.forward_packed([(one, ids[:-1]) for one, ids in zip(caches, texts, strict=True)], [])
        last = [(one, ids[-1:]) for one, ids in zip(caches, texts, strict=True)]
        together = decoder.forward_packed(last, range(5))
    assert torch.equal(together, torch.stack(alone))


@pytest.mark.parametrize("cache", [torch.float32, torch.float16, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_in_tiles_have_the_bits_of_single_ones(family: str, cache: torch.dtype) -> None:
    """Of a text longer than a block of a call, and than the window's ring."""
    decoder, ids = NativeDecoder(make_module(family), threads=1), make_ids(80)
    single = read_chunks(decoder, ids, [1] * 80, cache)
    decoder.threads = 2
    for chunks in ([80], [5, 70, 5], [17, 2, 61]):
        assert torch.equal(single, read_chunks(decoder, ids, chunks, cache))


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_logits_that_are_wanted_alone_have_the_bits_of_all(family: str) -> None:
    decoder, ids = NativeDecoder(make_module(family, INT4), threads=2), make_ids(75)
    every = read_chunks(decoder, ids, [75])
    for wanted in ([], [74], [0, 1, 40, 63, 64, 70], [66]):
        cache = Cache(decoder.config, 1, 80, dtype=torch.float32)
        with torch.no_grad():
            assert torch.equal(decoder.forward_packed([(cache, ids)], wanted), every[wanted])


@pytest.mark.parametrize("family", ["llama", "mistral", "sinusoidal", "bloom"])
def test_tables_grow_with_a_text_and_give_the_bits_of_whole_ones(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.engine.positions.FIRST_POSITIONS", 4)
    whole = make_module(family)
    whole.cover(whole.config.context_length)
    ids, chunks, sizes = make_ids(50), (3, 1, 1, 20, *[1] * 25), list[int]()
    grown = NativeDecoder(make_module(family))
    cache, found = Cache(grown.config, 1, 80), list[torch.Tensor]()
    for start, count in zip(np.cumsum((0, *chunks)), chunks, strict=False):
        found.append(grown.forward_packed([(cache, ids[start : start + count])], range(count)))
        sizes.append(grown.model.n_positions)
    assert torch.equal(torch.cat(found), read_chunks(NativeDecoder(whole), ids, chunks))
    assert set(sizes) == ({80} if family == "bloom" else {4, 8, 25, 50})


def test_segments_of_one_text_in_a_ring_are_read_in_turn() -> None:
    decoder, ids = NativeDecoder(make_module("mistral")), make_ids(60)
    every = read_chunks(decoder, ids, [60])
    cache = Cache(decoder.config, 1, 80, dtype=torch.float32)
    with torch.no_grad():
        found = decoder.forward_packed([(cache, ids[:25]), (cache, ids[25:])], [24, 25, 59])
    assert torch.equal(found, every[[24, 25, 59]])


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("weights", SCHEMES)
@pytest.mark.parametrize("cache", [torch.float16, torch.int8], ids=str)
def test_every_instruction_set_has_the_same_bits(
    name: str, weights: str, cache: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not load_set(name).pellucid_is_supported():
        pytest.skip(f"this machine does not have {name}")
    ids = make_ids(LENGTH)
    for family in ("llama", "gpt2", "qwen3"):
        module = make_module(family, SCHEMES[weights])
        monkeypatch.delenv("PELLUCID_NATIVE", raising=False)
        usual = read_chunks(NativeDecoder(module), ids, [LENGTH - 1, 1], cache)
        monkeypatch.setenv("PELLUCID_NATIVE", name)
        assert torch.equal(usual, read_chunks(NativeDecoder(module), ids, [LENGTH - 1, 1], cache))


def test_bfloat16_weights_are_read_in_place_and_widened() -> None:
    module = make_module("llama", dtype=torch.bfloat16)
    widened = {name: value.float().numpy() for name, value in module.state_dict().items()}
    wide = Transformer.from_weights(module.config, widened)
    ids = make_ids(LENGTH)
    narrow = read_chunks(NativeDecoder(module), ids, [LENGTH])
    assert torch.equal(narrow, read_chunks(NativeDecoder(wide), ids, [LENGTH]).bfloat16())


def test_a_module_that_is_trained_on_is_what_is_decoded() -> None:
    module, ids = make_module("gpt2"), make_ids(8)
    decoder = NativeDecoder(module)
    before = read_chunks(decoder, ids, [8])
    with torch.no_grad():
        module.get_parameter("blocks.1.mlp.up_proj.weight").mul_(1.5)
    after = read_chunks(decoder, ids, [8])
    assert not torch.equal(before, after)
    assert torch.equal(after, read_chunks(NativeDecoder(module), ids, [8]))


def test_cropped_copied_and_reused_caches_go_on_as_fresh_ones() -> None:
    decoder, ids = NativeDecoder(make_module("llama", INT8)), make_ids(30)
    fresh = read_chunks(decoder, ids, [30])
    cache = Cache(decoder.config, 2, 80, dtype=torch.float32)
    rows = [cache.row(0), cache.row(1)]
    with torch.no_grad():
        decoder.forward_packed([(rows[1], make_ids(50, seed=1))], [])
        decoder.forward_packed([(rows[0], ids[:20])], [])
        rows[0].crop(12)
        cache.copy_row(0, 1)
        logits = decoder.forward_packed([(rows[1], ids[12:])], range(18))
    assert torch.equal(logits, fresh[12:])


# ---- recording


@pytest.mark.parametrize("family", FAMILIES)
def test_it_records_the_names_of_the_fused_module(family: str) -> None:
    module, ids = make_module(family), make_ids(9)
    seen = []
    for one in (module, NativeDecoder(module)):
        cache = Cache(module.config, 1, 80, dtype=torch.float32)
        with torch.no_grad(), record(fused=True, model=module) as values:
            one.forward_packed([(cache, ids[:8])], [])
            logits = one.forward_packed([(cache, ids[8:])], [0])
        seen.append(dict(values))
        assert torch.equal(values["logits"][0], logits)
    expected = {
        name for name in seen[0] if not name.endswith(("position_rows", "position_bias", "probs", "mask"))
    }
    if module.config.mask.visible_past:
        expected = {name for name in expected if not name.endswith("_all")}
    assert {*seen[1]} == expected
    for name in expected - {"logits"}:
        mine, theirs = seen[1][name], seen[0][name]
        assert mine.shape == theirs.shape, name
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, msg=name)


def test_a_recording_changes_no_bit_and_needs_of_every_value_the_module() -> None:
    module, ids = make_module("llama", INT4), make_ids(20)
    decoder = NativeDecoder(module)
    plain = read_chunks(decoder, ids, [20])
    with record(fused=True, model=module):
        assert torch.equal(plain, read_chunks(decoder, ids, [20]))
    with record("blocks.*.attn.pattern", model=module) as seen:
        read_chunks(decoder, ids, [20])
    assert seen["blocks.0.attn.pattern"].shape == (1, 3, 20, 20)
    with edit("blocks.0.attn.z", lambda z: 0 * z, model=module):
        assert not torch.equal(plain, read_chunks(decoder, ids, [20]))


@pytest.mark.parametrize("family", ["llama", "qwen3", "bloom"])
def test_threads_with_tokens_of_their_own_record_the_same_bits(family: str) -> None:
    """A full block of a call: the second of its texts belongs to both threads."""
    module, seen = make_module(family, INT4), []
    for threads in (1, 2):
        decoder = NativeDecoder(module, threads)
        rows = [(Cache(module.config, 1, 80), make_ids(count, count)) for count in (23, 25, 16)]
        with torch.no_grad(), record(fused=True, model=module) as values:
            decoder.forward_packed(rows, range(64))
        seen.append(dict(values))
    assert {*seen[0]} == {*seen[1]}
    assert all(torch.equal(seen[0][name], seen[1][name]) for name in seen[0])


def round_activations(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the 16-bit integers [T groups 32] of inputs [T C], and the scale of each group, float32."""
    grouped = np.pad(x, ((0, 0), (0, -x.shape[1] % 32))).reshape(len(x), -1, 32).astype(np.float32)
    most = np.abs(grouped).max(-1)
    factor = np.where(most > 0, np.float32(32512) / np.where(most > 0, most, np.float32(1)), np.float32(0))
    integers = np.rint(grouped * factor[..., None].astype(np.float32)).astype(np.int64)
    return integers, (most / np.float32(32512)).astype(np.float32)


@pytest.mark.parametrize("scheme", [INT8, INT4, Scheme(8, 32), Scheme(4, 64)], ids=str)
def test_recorded_products_replay_bit_for_bit(scheme: Scheme) -> None:
    """NumPy recomputes each product from its recorded input: integers, then float32, group by group."""
    config = make_config("llama")
    weights = make_weights(config, scheme)
    module = Transformer.from_weights(config, weights)
    with record(fused=True, model=module) as seen:
        read_chunks(NativeDecoder(module), make_ids(11), [11])
    inputs = {
        "attn.q": "attn_norm.out",
        "mlp.up": "mlp_norm.out",
        "mlp_out": "mlp.hidden",
        "attn_out": "attn.z",
    }
    layers = {
        "attn.q": "attn.q_proj",
        "mlp.up": "mlp.up_proj",
        "mlp_out": "mlp.down_proj",
        "attn_out": "attn.o_proj",
    }
    for name, source in inputs.items():
        weight = weights[f"blocks.1.{layers[name]}.weight"]
        x, y = seen[f"blocks.1.{source}"][0], seen[f"blocks.1.{name}"][0]
        x, y = (value.transpose(0, 1).flatten(1) if value.ndim == 3 else value for value in (x, y))
        q, scales = round_activations(x.numpy())
        width = weight.shape[1]
        integers = np.pad(weight.integers, ((0, 0), (0, -width % 32))).reshape(len(weight.integers), -1, 32)
        sums = np.einsum("tgi,ogi->tog", q, integers.astype(np.int64)).astype(np.float32)
        found = np.zeros((len(q), len(integers)), np.float32)
        for group in range(q.shape[1]):
            column = group * 32 // weight.group
            scale = weight.scales[:, column].astype(np.float32)[None] * scales[:, group, None]
            found = found + sums[:, :, group] * scale
            if weight.minimums is not None:
                total = scales[:, group] * q[:, group].sum(-1).astype(np.float32)
                found = found + weight.minimums[:, column].astype(np.float32)[None] * total[:, None]
        assert np.array_equal(found, y.numpy()), name


# ---- what it refuses, and what it leaves to the module


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ({"placement": "post"}, "post"),
        ({"residual": {"kind": "scaled", "alpha": 0.5}}, "scaled"),
        ({"mask": {"kind": "prefix", "length": 4}}, "prefix"),
        ({"score_cap": {"kind": "tanh", "limit": 30.0}}, "soft cap"),
        ({"positions": "t5"}, "position bias"),
        ({"attention": "linear_elu"}, "linear_elu"),
        ({"mlp": "none"}, "MLP"),
    ],
)
def test_a_choice_that_it_does_not_have_is_named_and_runs_on_the_module(
    choice: dict[str, object], named: str
) -> None:
    from pellucid.config import ModelConfig
    from tests.engine.cpu.models import SIZES

    module = Transformer(ModelConfig.from_dict(SIZES | {"positions": "rope"} | choice))
    assert named in (find_obstacle(module) or "")
    said: list[str] = []
    assert accelerate(module, said.append) is module
    assert named in said[0]


def test_hooks_and_replaced_modules_are_not_passed_by() -> None:
    module, calls = make_module("llama"), list[int]()
    module.get_submodule("blocks.1.mlp").register_forward_hook(lambda *_: calls.append(1))
    assert "hooks" in (find_obstacle(module) or "")
    Engine(accelerate(module)).add(Request((1, 2), Sampling(max_new_tokens=2, temperature=0))).result()
    assert calls

    class Other(torch.nn.Linear):
        pass

    module = make_module("llama")
    module.get_submodule("blocks.0.mlp").up_proj = Other(48, 72, bias=False)
    assert "Other" in (find_obstacle(module) or "")


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [1, 16, 31, 33, 40, 48, 64, 72, 96])
def test_groups_of_any_size_decode_as_the_module(group: int, bits: int) -> None:
    """Rows of 48 and of 72 inputs: a group is a whole row, or it is whole packed blocks."""
    config = make_config("qwen3")
    weights = {
        name: quantize_in_groups(value, bits, min(group, value.shape[1])) if value.ndim == 2 else value
        for name, value in make_weights(config).items()
    }
    module, ids = Transformer.from_weights(config, weights), make_ids(6)
    assert bool(find_obstacle(module)) == (group < 72 and group % 32 > 0)
    decoded, expected = (read_chunks(one, ids, [6]) for one in (accelerate(module), module))
    assert (decoded - expected).abs().max() <= 3e-3 * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types_run_on_the_module(dtype: torch.dtype) -> None:
    assert str(dtype).removeprefix("torch.") in (find_obstacle(make_module("llama", dtype=dtype)) or "")


def test_ids_and_positions_are_checked_before_memory_is_touched() -> None:
    decoder = NativeDecoder(make_module("llama"))
    cache = Cache(decoder.config, 1, 8, dtype=torch.float32)
    for ids in ([101], [-1], [2**31 - 1], [2**40]):
        with pytest.raises(UsageError, match="vocabulary"):
            decoder.forward_packed([(cache, ids)], [0])
        cache.crop(0)
    with pytest.raises(UsageError, match="8"):
        decoder.forward_packed([(cache, [1] * 9)], [])
    with pytest.raises(UsageError, match="wanted"):
        decoder.forward_packed([(cache, [1, 2])], [2])


def test_a_weight_that_is_not_finite_gives_logits_that_are_not() -> None:
    for scheme in (None, INT8):
        config = make_config("llama")
        weights = make_weights(config, scheme)
        weights["blocks.0.attn_norm.weight"][5] = np.inf
        logits = read_chunks(NativeDecoder(Transformer.from_weights(config, weights)), make_ids(4), [4])
        assert logits.isnan().any(-1).all()


@pytest.mark.parametrize("cache", [torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("family", ["llama", "sinusoidal"])
def test_one_nan_in_any_matrix_reaches_the_logits(
    family: str, cache: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also through the maximum that is a cached key's scale, and through ReLU."""
    config, ids = make_config(family), make_ids(5)
    for name in (name for name in config.parameters() if name.startswith("blocks.1.") and "proj" in name):
        weights = make_weights(config)
        weights[name].flat[7] = np.nan
        module = Transformer.from_weights(config, weights)
        for instructions in (one for one in SETS if load_set(one).pellucid_is_supported()):
            monkeypatch.setenv("PELLUCID_NATIVE", instructions)
            for chunks in ([5], [3, 1, 1]):
                assert not read_chunks(NativeDecoder(module), ids, chunks, cache)[-1].isfinite().any(), name
        assert not read_chunks(module, ids, [3, 1, 1], cache)[-1].isfinite().any(), name


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_an_inf_in_an_int8_cache_stays_no_number(name: str) -> None:
    config = make_config("llama")
    weights = make_weights(config)
    weights[f"blocks.0.attn.{name}.weight"][3] = np.inf
    module, ids = Transformer.from_weights(config, weights), make_ids(5)
    assert not read_chunks(NativeDecoder(module), ids, [4, 1], torch.int8).isfinite().any()


def test_a_cache_of_another_type_is_read_by_the_module_and_two_types_are_refused() -> None:
    module, ids = make_module("llama"), make_ids(9)
    assert torch.equal(
        read_chunks(NativeDecoder(module), ids, [4, 5], torch.float64),
        read_chunks(module, ids, [4, 5], torch.float64),
    )
    caches = [Cache(module.config, 1, 8, dtype=dtype) for dtype in (torch.float32, torch.float16)]
    with pytest.raises(UsageError, match="one type"):
        NativeDecoder(module).forward_packed([(cache, [1]) for cache in caches], [0])


# ---- at once


def test_two_threads_decode_at_once_what_each_decodes_alone() -> None:
    decoders = [NativeDecoder(make_module("llama", scheme), threads=2) for scheme in (INT8, INT4)]
    ids = make_ids(40)
    alone = [read_chunks(one, ids, [1] * 40) for one in decoders]
    found: dict[int, list[torch.Tensor]] = {0: [], 1: []}

    def run(place: int) -> None:
        found[place] += [read_chunks(decoders[place], ids, [1] * 40) for _ in range(5)]

    threads = [threading.Thread(target=run, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(one, alone[place]) for place in (0, 1) for one in found[place])


def test_a_forked_child_decodes_as_its_parent() -> None:
    decoder, ids = NativeDecoder(make_module("llama"), threads=2), make_ids(20)
    expected = read_chunks(decoder, ids, [20])
    child = os.fork()
    if not child:  # pragma: no cover
        same = torch.equal(expected, read_chunks(decoder, ids, [20]))
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_engine_decodes_with_it() -> None:
    module = make_module("llama", INT4)
    engine = Engine(NativeDecoder(module), slots=3)
    assert engine.slots.cache.layers[0].buffers[0].dtype == torch.float16
    settings = Sampling(max_new_tokens=12, temperature=0.8, seed=3)
    handles = [engine.add(Request(tuple(make_ids(9 + seed, seed)), settings)) for seed in range(3)]
    together = [handle.result()[0].ids for handle in handles]
    for seed, ids in enumerate(together):
        alone = Engine(NativeDecoder(module), slots=1).add(Request(tuple(make_ids(9 + seed, seed)), settings))
        assert alone.result()[0].ids == ids


def test_without_a_library_the_module_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_NATIVE", "off")
    module, said = make_module("llama"), list[str]()
    assert accelerate(module, said.append) is module
    assert "PELLUCID_NATIVE" in said[0]
    with pytest.raises(NoLibrary):
        NativeDecoder(module)
