"""`pellucid compare`: traces, models and anybody's arrays; noise or bug, by its exit code."""

import contextlib
import io
import json
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pellucid.base.errors import FileError, UsageError
from pellucid.config import preset_text
from pellucid.explanation.trace import Trace
from pellucid.explanation.trace_file import write
from pellucid.formats import gguf, huggingface
from pellucid.model import load
from pellucid.reference.training import forward
from pellucid.verification import foreign_values, name_table
from pellucid.verification.compare import _check_same_sizes
from pellucid.verification.foreign_values import RecordedValue
from tests.cli.commands import Shell
from tests.formats.gguf import random_models
from tests.reference.models import CONFIGS, IDS, weights


def traced(path: Path, prompt: str = "A B C D", target: str | None = None) -> Path:
    write(load("abcd").trace(prompt, target=target, backward=target is not None), path, force=True)
    return path


def arrays(prompt: str = "A B C D") -> dict[str, Any]:
    return {name: load("abcd").trace(prompt).tape[name] for name in load("abcd").trace(prompt).tape.steps}


def test_two_traces_of_one_run_are_equal(shell: Shell, tmp_path: Path) -> None:
    a, b = traced(tmp_path / "a.json", target="A"), traced(tmp_path / "b.json", target="A")
    done = shell("compare", a, b)
    assert (done.code, done.out[:7]) == (0, "equal: ")


def test_a_changed_number_in_a_trace_is_a_bug_at_its_name_and_nothing_after_it(
    shell: Shell, tmp_path: Path
) -> None:
    a, b = traced(tmp_path / "a.json"), traced(tmp_path / "b.json")
    data = json.loads(b.read_text("utf-8"))
    data["tensors"]["blocks.0.attn.scores"]["values"][0][0][2][1] += 0.5
    b.write_text(json.dumps(data), "utf-8")
    done = shell("compare", a, b)
    assert done.code == 1
    assert done.out.startswith("BUG at blocks.0.attn.scores\n  blocks.0.attn.scores[t=2,s=1]: ")
    assert "S[t,s] = Σ_d Q[t,d] K[s,d] / √2" in done.out
    assert "1 more: blocks.0.attn.masked" in done.out  # the changed score is not what was masked
    assert "pattern" not in done.out


def test_two_models_differ_where_their_weights_do(shell: Shell, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(preset_text("abcd").replace("[[2, 0], [0, 2]]", "[[2, 0], [0, 3]]"), "utf-8")
    done = shell("compare", "abcd", mine, "A B")
    assert done.code == 1
    assert done.out.startswith("different: ")
    assert "given differently: blocks.0.attn.q_proj.weight[out=1,in=1]: theirs 3, ours 2" in done.out
    assert "the first value that departs from ours: blocks.0.attn.q[t=1,d=1]: theirs 3, ours 2" in done.out
    assert "Q[t,d] = Σ_c" in done.out and "BUG" not in done.out
    data = json.loads(shell("compare", "abcd", mine, "A B", "--json").out)
    assert (data["verdict"], data["given_differently"]) == ("different", ["blocks.0.attn.q_proj.weight"])
    assert shell("compare", "abcd", "abcd", "A B", "--target", "C").code == 0


def test_weights_are_held_as_asked(shell: Shell, tmp_path: Path) -> None:
    theirs = load("abcd", weights="int8").trace("A B").tape
    np.savez(tmp_path / "theirs.npz", **{name: theirs[name] for name in ("logits", "probs")})
    sides = ("abcd", tmp_path / "theirs.npz", "A B")
    assert shell("compare", *sides, "--weights", "int8").out.startswith("equal: ")
    assert not shell("compare", *sides).out.startswith("equal: ")
    refused = shell("compare", traced(tmp_path / "a.json"), tmp_path / "a.json", "--weights", "int8")
    assert refused.code == 2 and "omit it" in refused.err


def test_arrays_in_half_precision_are_noise(shell: Shell, tmp_path: Path) -> None:
    halves = {name: value.astype(np.float16) for name, value in arrays().items()}
    np.savez(tmp_path / "theirs.npz", **halves)
    done = shell("compare", "abcd", tmp_path / "theirs.npz", "A B C D")
    assert done.code == 0
    assert done.out.startswith("noise: ")
    assert shell("compare", tmp_path / "theirs.npz", "abcd", "A B C D").out == done.out
    strict = shell("compare", "abcd", tmp_path / "theirs.npz", "A B C D", "--dtype", "float32")
    assert strict.code == 1


def test_their_names_and_axes_become_ours(shell: Shell, tmp_path: Path) -> None:
    ours = arrays()
    theirs = {
        "h.0.attn.q": ours["blocks.0.attn.q"].transpose(0, 2, 1, 3).reshape(4, 2).astype(np.float32),
        "h.0.attn.w": ours["blocks.0.attn.pattern"][0].astype(np.float32),
        "probs": np.asfortranarray(ours["probs"].astype(np.float32)),
        "extra": np.zeros(3),
    }
    names = tmp_path / "names.toml"
    names.write_text(
        '"h.{l}.attn.q" = {name = "blocks.{l}.attn.q", axes = "t (h d)"}\n'
        '"h.{l}.attn.w" = "blocks.{l}.attn.pattern"',
        "utf-8",
    )
    save_file({name: np.ascontiguousarray(x) for name, x in theirs.items()}, tmp_path / "theirs.safetensors")
    np.savez_compressed(tmp_path / "theirs.npz", **theirs)
    for file in ("theirs.safetensors", "theirs.npz"):
        done = shell("compare", traced(tmp_path / "a.json"), tmp_path / file, "--names", names)
        assert done.code == 0, done.out
        assert "not compared, 1 name of theirs: extra" in done.out
    theirs["h.0.attn.q"][2, 0] *= -1
    np.savez(tmp_path / "theirs.npz", **theirs)
    done = shell("compare", tmp_path / "a.json", tmp_path / "theirs.npz", "--names", names)
    assert done.code == 1
    assert "blocks.0.attn.q[t=2,d=0]" in done.out


def test_bfloat16_is_read_from_both_kinds_of_file(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_tensors

    wide = np.linspace(0.1, 3, 24, dtype=np.float32).reshape(2, 12)
    bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
    kept = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    save_tensors({"x": torch.tensor(kept).to(torch.bfloat16)}, tmp_path / "x.safetensors")
    np.savez(tmp_path / "x.npz", x=bits.view("V2"), y=kept, z=kept.astype(np.float32))
    for file in ("x.safetensors", "x.npz"):
        for name, found in foreign_values.read_arrays(tmp_path / file).items():
            assert found.type == "bfloat16", name
            assert (found.value == kept).all()


def test_json_is_json(shell: Shell, tmp_path: Path) -> None:
    wrong = arrays()
    wrong["blocks.0.attn.masked"] = np.zeros_like(wrong["blocks.0.attn.masked"])
    np.savez(tmp_path / "x.npz", **wrong)
    done = shell("compare", "abcd", tmp_path / "x.npz", "A B C D", "--json")
    data = json.loads(done.out)
    assert (done.code, data["verdict"], data["at"]) == (1, "BUG", "blocks.0.attn.masked")
    assert [value["name"] for value in data["values"] if value["bug"]] == [
        "blocks.0.attn.masked",
        "blocks.0.attn.pattern",
    ]


def test_json_says_which_usual_mistake_fits(shell: Shell, tmp_path: Path) -> None:
    wrong = arrays()
    name = "blocks.0.attn.scores"
    np.savez(tmp_path / "x.npz", **{name: wrong[name] * 2**0.5})  # two channels: 1/√2 left out
    data = json.loads(shell("compare", "abcd", tmp_path / "x.npz", "A B C D", "--json").out)
    assert (data["at"], data["explained_by"]) == ("ids … blocks.0.attn.scores", ["scores without 1/√D"])


def test_only_and_tolerance(shell: Shell, tmp_path: Path) -> None:
    wrong = arrays()
    wrong["logits"] = wrong["logits"] * 1.001
    np.savez(tmp_path / "x.npz", **wrong)
    assert shell("compare", "abcd", tmp_path / "x.npz", "A B C D").code == 1
    assert shell("compare", "abcd", tmp_path / "x.npz", "A B C D", "--only", "blocks.*").code == 0
    assert shell("compare", "abcd", tmp_path / "x.npz", "A B C D", "--tolerance", "0.01").code == 0


def test_channels_in_the_other_order_are_reported_and_a_layout_mends_it(shell: Shell, tmp_path: Path) -> None:
    halves, pairs = tmp_path / "halves", tmp_path / "pairs.gguf"
    made = random_models.model(random_models.LLAMA)
    gguf.write(pairs, made, "F32")
    huggingface.write(halves, made, "float32")
    theirs = load(halves).trace("ab").tape
    given = {name: theirs[name].astype(np.float32) for name in theirs.steps}
    np.savez(tmp_path / "theirs.npz", **given)
    done = shell("compare", pairs, tmp_path / "theirs.npz", "ab")
    assert done.code == 1 and done.out.startswith("BUG at blocks.0.attn.q\n"), done.out
    assert "these are the numbers in the order of halves: give --layout halves" in done.out
    done = shell("compare", pairs, tmp_path / "theirs.npz", "ab", "--layout", "halves", "--json")
    assert json.loads(done.out)["verdict"] == "noise", done.out
    assert "reordered to halves" in done.err


def test_two_models_of_different_sizes_are_refused_with_what_differs() -> None:
    sides = [random_models.model(random_models.LLAMA | change) for change in ({}, {"n_layer": 3, "d_ff": 48})]
    ours, theirs = (Trace(forward(side.config, side.weights, [[1, 2]])) for side in sides)
    with pytest.raises(UsageError, match=r"n_layer is \d+ and 3, d_ff is \d+ and 48") as raised:
        _check_same_sizes(ours, theirs)
    assert "--names" not in str(raised.value)
    _check_same_sizes(ours, ours)


def test_a_value_that_only_one_of_two_models_computes_is_a_bug_at_its_name(
    shell: Shell, tmp_path: Path
) -> None:
    for name, change in (("plain", {}), ("normed", {"qk_norm": random_models.LLAMA["norm"]})):
        gguf.write(tmp_path / f"{name}.gguf", random_models.model(random_models.LLAMA | change), "F32")
    done = shell("compare", tmp_path / "plain.gguf", tmp_path / "normed.gguf", "ab", "--json")
    wrong = [value["name"] for value in json.loads(done.out)["values"] if value["bug"]]
    assert done.code == 1 and "blocks.0.attn.q_norm.normed" in wrong
    assert "blocks.0.attn.q_norm.weight" not in wrong


def test_an_entry_of_names_that_meets_nothing_is_refused(shell: Shell, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **{"h.0.q": arrays()["blocks.0.attn.q"]})
    (tmp_path / "n.toml").write_text(
        '"h.{l}.q" = "blocks.{l}.attn.q"\n"h.{l}.k" = "blocks.{l}.attn.k"', "utf-8"
    )
    refused = shell("compare", "abcd", tmp_path / "x.npz", "A B C D", "--names", tmp_path / "n.toml")
    assert refused.code == 2 and re.search(r"line 2: .*matches no array", refused.err)


def test_two_files_of_arrays_are_compared_plainly(shell: Shell, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([1.0, 2.0]))
    np.savez(tmp_path / "b.npz", x=np.array([1.0, 2.5]))
    done = shell("compare", tmp_path / "a.npz", tmp_path / "b.npz")
    assert done.code == 1
    assert "x[1]: got 2.5, wanted 2.0" in done.out
    assert shell("compare", tmp_path / "a.npz", tmp_path / "a.npz").out == "equal: 1 value\n"


@pytest.mark.parametrize(
    "text",
    ["x", "x = 1", "x.y = 'z'", "x = {axes = 't'}", "'{l}.{l}' = 'x'", "'{1}' = 'x'", "x = '{l}'", "\0"],
)
def test_a_broken_map_of_names_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "names.toml").write_text(text, "utf-8")
    with pytest.raises(FileError):
        name_table.read_table(str(tmp_path / "names.toml"))


class Bomb:
    """Would leave a file behind if it were ever unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return (Path.touch, (self.canary,))


def test_python_objects_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([Bomb(tmp_path / "canary")], dtype=object))
    with pytest.raises(FileError, match="Python objects"):
        foreign_values.read_arrays(tmp_path / "x.npz")
    (tmp_path / "y.npz").write_bytes(pickle.dumps(Bomb(tmp_path / "canary")))
    with pytest.raises(FileError, match=r"cannot be read as \.npz"):
        foreign_values.read_arrays(tmp_path / "y.npz")
    assert not (tmp_path / "canary").exists()


def test_a_file_that_claims_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**18)}
    )
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue() + bytes(16))
    with pytest.raises(FileError, match="has 144 bytes"):
        foreign_values.read_arrays(tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "y.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(2**20))
    data = bytearray((tmp_path / "y.npz").read_bytes())
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    (tmp_path / "y.npz").write_bytes(bytes(data))
    with pytest.raises(FileError):
        foreign_values.read_arrays(tmp_path / "y.npz")


@pytest.mark.parametrize("suffix", foreign_values.SUFFIXES)
def test_damaged_bytes_raise_nothing_but_our_errors(tmp_path: Path, suffix: str) -> None:
    good = tmp_path / f"good{suffix}"
    values = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "y": np.arange(3)}
    if suffix == ".npz":
        np.savez(good, **values)
    else:
        save_file(values, good)
    data, random = good.read_bytes(), np.random.default_rng(0)
    bad = tmp_path / f"bad{suffix}"
    for _ in range(300):
        broken = bytearray(data[: random.integers(len(data)) if random.random() < 0.3 else None])
        for place in random.integers(len(broken) or 1, size=random.integers(1, 4)) if broken else ():
            broken[place] = random.integers(256)
        bad.write_bytes(bytes(broken))
        with contextlib.suppress(FileError):
            foreign_values.read_arrays(bad)


@pytest.mark.parametrize(
    ("axes", "move"),
    [
        ("b t h d", lambda q: q.transpose(0, 2, 1, 3)),
        ("t b (h d)", lambda q: q.transpose(2, 0, 1, 3).reshape(3, 2, 16)),
        ("(b t) d h", lambda q: q.transpose(0, 2, 3, 1).reshape(6, 4, 4)),
        (None, lambda q: q),
    ],
)
def test_axes_in_any_order_and_grouping_come_back_to_ours(axes: str | None, move: Any) -> None:
    trace = Trace(forward(CONFIGS["llama"], weights(CONFIGS["llama"]), IDS))
    q = trace.tape["blocks.1.attn.q"]
    assert q.shape == (2, 4, 3, 4)
    rule = name_table.NameRule("layer{l}/q", (name_table.Target("blocks.{l}.attn.q", axes),))
    theirs = {"layer1/q": RecordedValue(move(q)), "other": RecordedValue(q)}
    found, unmatched = name_table.map_names(theirs, trace, name_table.NameTable((rule,)))
    assert (found["blocks.1.attn.q"].value == q).all()
    assert unmatched == ["other"]
