"""A name table says all that it means: every entry of a user's is judged or refused, with its line."""

import re
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.base.names import describe
from pellucid.explanation.trace import Trace
from pellucid.reference.training import forward
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.name_table import NameTable, map_names, parse_rules, read_table, shipped_tables
from tests.reference.models import CONFIGS, IDS, weights

TRACE = Trace(forward(CONFIGS["llama"], weights(CONFIGS["llama"]), IDS))
THEIRS = {
    "layers.0.q": RecordedValue(TRACE.tape["blocks.0.attn.q"]),
    "layers.1.q": RecordedValue(TRACE.tape["blocks.1.attn.q"]),
}


def table(text: str) -> NameTable:
    return NameTable(parse_rules("names.toml", text), "names.toml")


def test_an_entry_that_matches_nothing_is_refused_with_its_line_and_the_name_that_was_meant() -> None:
    wrong = table('"layers.{l}.q" = "blocks.{l}.attn.q"\n\n"layers.{l}.qq" = "blocks.{l}.attn.k"')
    with pytest.raises(UsageError, match=re.escape('names.toml, line 3: "layers.{l}.qq"')):
        map_names(THEIRS, TRACE, wrong)
    with pytest.raises(UsageError, match=re.escape("'layers.{l}.q'?")):
        map_names(THEIRS, TRACE, wrong)


def test_an_entry_whose_target_is_not_ours_is_refused_even_under_its_own_name() -> None:
    with pytest.raises(UsageError, match=r"line 1: .*'blocks.0.attn.qq'.* Did you mean .blocks.0.attn.q"):
        map_names(THEIRS, TRACE, table('"layers.{l}.q" = "blocks.{l}.attn.qq"'))
    with pytest.raises(UsageError, match="is not a value of this run"):
        map_names({"logit": RecordedValue(TRACE.tape["logits"])}, TRACE, table('logit = "logit"'))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("x\ny = 1", ["not TOML", "line 1"]),
        ("\n\nx = 1", ["line 3", '"x" needs one of our names']),
        ("h.q = 'logits'", ["line 1", "stands in quotes"]),
        ("'{l}.{l}' = 'x'", ["line 1", "{l} twice"]),
        ("'{1}' = 'x'", ["{1}", "write {l}"]),
        ("ok = 'logits'\nx = 'blocks.{l}.q'", ["line 2", "{l}", '"x" has not']),
        ("x = {name = 'logits', axis = 'b t v'}", ["line 1", "axes", "'axis'"]),
    ],
)
def test_a_mistyped_entry_is_reported_by_its_line_and_not_called_damage(text: str, facts: list[str]) -> None:
    with pytest.raises(FileError) as raised:
        table(text)
    assert all(fact in str(raised.value) for fact in facts), raised.value
    assert "damaged" not in str(raised.value)


def test_arrays_side_by_side_are_split_in_our_widths() -> None:
    """Llama's queries are twice as wide as its keys here."""
    axes = {"q": "b t (h d)", "k": "b s (k d)", "v": "b s (k d)"}
    flat = [TRACE.tape[f"blocks.0.attn.{n}"].transpose(0, 2, 1, 3).reshape(2, 3, -1) for n in axes]
    entries = ", ".join(f"{{name = 'blocks.{{l}}.attn.{n}', axes = '{a}'}}" for n, a in axes.items())
    joined = {"h.0.qkv": RecordedValue(np.concatenate(flat, -1), "float32")}
    found, _ = map_names(joined, TRACE, table(f"'h.{{l}}.qkv' = [{entries}]"))
    for name in axes:
        assert np.array_equal(found[f"blocks.0.attn.{name}"].value, TRACE.tape[f"blocks.0.attn.{name}"])
        assert found[f"blocks.0.attn.{name}"].type == "float32"
    with pytest.raises(UsageError, match=re.escape("16 + 8 + 8 = 32 channels")):
        map_names({"h.0.qkv": RecordedValue(flat[0])}, TRACE, table(f"'h.{{l}}.qkv' = [{entries}]"))


@pytest.mark.parametrize("name", shipped_tables())
def test_a_shipped_table_names_values_of_the_glossary(name: str) -> None:
    targets = [target for rule in read_table(name).rules for target in rule.targets]
    for target in targets:
        about = describe(target.name.replace("{l}", "0"))
        assert about, target.name
        assert target.axes is None or set(re.findall(r"\w", target.axes)) == set(about.axes)
    assert len({target.name for target in targets}) == len(targets)


def test_a_shipped_table_is_found_by_its_name_and_suggested() -> None:
    with pytest.raises(UsageError, match="nanogpt"):
        read_table("nanogtp")
    ids = RecordedValue(TRACE.tape["ids"], "int64")  # the same ids alone are no run that is equal
    with pytest.raises(UsageError, match="give --names hf"):
        map_names({"model.layers.0.self_attn.q_proj": RecordedValue(np.zeros(3)), "ids": ids}, TRACE)
    with pytest.raises(FileError, match="cannot read"):
        read_table("missing.toml")


def test_modules_that_a_model_does_not_have_are_not_a_mistake_of_a_shipped_table() -> None:
    theirs = {"lm_head": RecordedValue(TRACE.tape["logits"]), "model.norm.other": RecordedValue(np.zeros(2))}
    found, unmatched = map_names(theirs, TRACE, read_table("hf"))
    assert (list(found), unmatched) == (["logits"], ["model.norm.other"])


def test_other_shapes_are_reported_by_what_they_most_likely_are() -> None:
    logits = TRACE.tape["logits"]
    for value, fact in (
        (logits[:, :2], "2 tokens there, 3 here"),
        (logits[:, -1:], "only the last position"),
        (np.zeros((2, 3, 99)), "model of another size"),
        (logits.transpose(2, 0, 1), "say its axes in --names"),
    ):
        with pytest.raises(UsageError, match=fact):
            map_names({"logits": RecordedValue(value)}, TRACE)


@pytest.mark.parametrize(
    ("name", "theirs", "line"),
    [
        ("blocks.0.attn.q", "b t (h d)", '"h.{l}.q" = {name = "blocks.{l}.attn.q", axes = "b t (h d)"}'),
        ("logits", "v b t", '"lm_head" = {name = "logits", axes = "v b t"}'),
    ],
)
def test_where_a_shape_admits_one_reading_of_its_axes_they_are_printed(
    name: str, theirs: str, line: str
) -> None:
    """And the printed line gives the values in our order."""
    called = "h.0.q" if name.endswith("q") else "lm_head"
    wanted = TRACE.tape[name]
    value = (
        wanted.transpose(0, 2, 1, 3).reshape(2, 3, -1) if name.endswith("q") else wanted.transpose(2, 0, 1)
    )
    rule = f"'{called}' = '{name}'"
    with pytest.raises(UsageError, match="say its axes in --names: " + re.escape(line)):
        map_names({called: RecordedValue(value)}, TRACE, table(rule))
    found, _ = map_names({called: RecordedValue(value)}, TRACE, table(line))
    assert np.array_equal(found[name].value, wanted)


def test_where_a_shape_admits_several_readings_none_is_printed() -> None:
    """Four heads and four tokens: nothing in the shape says which is which."""
    tape = forward(CONFIGS["llama"], weights(CONFIGS["llama"]), [[1, 2, 0, 3]])
    q = tape["blocks.0.attn.q"]
    assert q.shape[1] == q.shape[2]
    with pytest.raises(UsageError, match='axes = "…"'):
        map_names({"blocks.0.attn.q": RecordedValue(q.reshape(4, -1))}, Trace(tape))


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "names.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(FileError, match="not UTF-8; byte 5 is 0xff"):
        read_table(str(tmp_path / "names.toml"))


def test_one_value_under_two_names_is_taken_once_and_two_values_are_refused() -> None:
    """A hook on every module records lm_head, and the run returns the same numbers as logits."""
    logits = TRACE.tape["logits"]
    both = {"lm_head": RecordedValue(logits), "logits": RecordedValue(logits.copy())}
    found, unmatched = map_names(both, TRACE, read_table("hf"))
    assert list(found) == ["logits"] and not unmatched
    with pytest.raises(UsageError, match=r"'lm_head' and 'logits' .*'logits'"):
        map_names(both | {"logits": RecordedValue(logits + 1)}, TRACE, read_table("hf"))
