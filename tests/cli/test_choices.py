"""`choices` as a person meets it: the list, one choice in detail, plain data, and wrong names."""

import json

import pytest

from pellucid.explanation.choices import families
from tests.cli.commands import Shell


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_the_list_names_every_kind_of_every_family_in_a_hundred_columns(shell: Shell) -> None:
    done = shell("choices")
    assert done.code == 0
    lines = done.out.splitlines()
    assert all(len(line) <= 100 and line == line.rstrip() for line in lines)
    assert "\x1b" not in done.out
    for family in families():
        assert any(line.startswith(f"{family.name}  {family.idea[:40]}") for line in lines)
        for choice in family.choices:
            assert any(line.startswith(f"  {choice.kind} ") for line in lines), choice.kind
    assert "in a config: norm (default rms_norm), embed_norm (default none), qk_norm (default none)" in lines
    assert "Su et al. 2021, arXiv:2104.09864" in " ".join(done.out.split())


def test_a_narrow_terminal_wraps_earlier(shell: Shell) -> None:
    shell.patch.setenv("COLUMNS", "60")
    assert max(map(len, shell("choices").out.splitlines())) <= 60


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_and_a_picture_are_not_wrapped_but_put_below_their_name(shell: Shell, columns: int) -> None:
    wide = [line.strip() for line in shell("choices", "gelu").out.splitlines()]
    shell.patch.setenv("COLUMNS", str(columns))
    lines = shell("choices", "gelu").out.splitlines()
    assert max(map(len, lines)) <= columns
    assert ("  cost" in lines) == (columns == 60)
    table = [line.strip() for line in lines if line.strip().startswith(("parameters", "feed-forw", "total"))]
    assert len(table) == 3 and set(table) <= set(wide)
    assert sum("│" in line for line in lines) == sum("│" in line for line in wide) == 10


def test_one_kind_tells_its_formula_settings_line_cost_and_picture(shell: Shell) -> None:
    done = shell("choices", "sinks")
    assert done.code == 0
    assert done.out.startswith("masks/sinks  Attention sinks:")
    for words in (
        "  formula         j ≤ i and (",
        "  source          Xiao et al. 2023, arXiv:2309.17453",
        "  settings        tokens: int, required",
        '  in a config     mask = { kind = "sinks", tokens = ',
        "  cost            mask = sinks instead of causal in smollm2-135m, 8,192 tokens forward:",
        "  picture         visible keys of each query: query ↓, key →\n                  █ · · ·",
    ):
        assert words in done.out, words


def test_the_cost_is_a_difference_part_by_part_and_then_the_whole(shell: Shell) -> None:
    """8,192 rows of 576 channels: 4,718,592 parameters beside SmolLM2-135M's 134,515,008."""
    lines = {
        line.split()[0]: line.split()[1:] for line in shell("choices", "learned").out.splitlines() if line
    }
    assert lines["positions"][0] == "+4,718,592"
    assert lines["positions"][1] == lines["positions"][3] == "="
    assert lines["total"][0] == "139,233,600"


def test_a_setting_shows_its_default_or_that_it_is_required(shell: Shell) -> None:
    assert "  settings        size: int, required\n" in shell("choices", "window").out
    assert "base: float = 10000" in shell("choices", "rope").out


def test_a_kind_without_formula_and_source_prints_what_there_is(shell: Shell) -> None:
    done = shell("choices", "gguf/llama")
    assert done.code == 0
    assert "formula" not in done.out and "source" not in done.out and "in a config" not in done.out


def test_a_choice_of_a_recipe_says_so(shell: Shell) -> None:
    assert "in a recipe: optimizer (default adamw)" in shell("choices").out.splitlines()
    done = shell("choices", "optimizers/adamw")
    assert '  in a recipe     optimizer = { kind = "adamw", lr = 0.0006, ' in done.out
    assert "in a config" not in done.out and "cost" not in done.out
    (cosine,) = json.loads(shell("choices", "cosine", "--json").out)
    assert cosine["default_of"] == ["schedule"] and cosine["config"] == []


def test_a_family_or_a_key_tells_all_its_kinds(shell: Shell) -> None:
    done = shell("choices", "caps")
    assert not [line for line in done.out.splitlines() if line != line.rstrip()]
    assert done.out == shell("choices", "score_cap").out
    assert "caps/none  " in done.out and "caps/tanh  " in done.out
    assert '  in a config     score_cap = { kind = "tanh", limit = 50.0 }' in done.out


def test_everything_as_data_is_json(shell: Shell) -> None:
    found = json.loads(shell("choices", "--json").out)
    assert {(entry["family"], entry["kind"]) for entry in found} == {
        (family.name, choice.kind) for family in families() for choice in family.choices
    }
    (rope,) = json.loads(shell("choices", "rope", "--json").out)
    assert rope["default_of"] == ["positions"] and rope["settings"]["base"] == 10000
    (linear,) = json.loads(shell("choices", "unembeddings/linear", "--json").out)
    assert linear["cost"][0]["parameters"] == 134_515_008 + 49152 * 576
