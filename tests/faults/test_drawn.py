"""Drawn faults: the generator, the kept list, and one process that runs a mutation."""

import ast
import importlib.machinery
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.drawn import battery, c_operators, kept, own_checks, python_operators, table, tiny
from tests.faults.drawn.areas import AREAS, ROOT, list_files
from tests.faults.drawn.draw import COUNT, SEED, draw, list_places
from tests.faults.drawn.figures import find_changes, flatten
from tests.faults.drawn.judge import judge, read_error
from tests.faults.drawn.mutation import Gone, Mutation, read_source
from tests.faults.drawn.planted import MutatedModule

KEPT = kept.read()
PYTHON = '''
import os

def f(x: "Tensor[1]", n=3, scale=0.5, *, causal=True):
    """Returns 7 + 1."""
    if n < 0:
        raise ValueError(n + 1)
    y = x * scale - n
    y += g(x, n)
    y = y[n + 2 : -n]
    if causal and not n:
        log.info("%d", n + 2)
    return y.sum(-1) if n == 4 else min(y, -x)
'''
PYTHON_CHANGES = {
    "n=3 -> n=4",
    "n=3 -> n=2",
    "scale=0.5 -> scale=0.55",
    "causal=True -> causal=False",
    "x * scale -> x / scale",
    "scale - n -> scale + n",
    "y += g(x, n) -> y -= g(x, n)",
    "y += g(x, n) -> pass",
    "g(x, n) -> g(n, x)",
    "y = y[n + 2 : -n] -> pass",
    "y[n + 2 : -n] -> y[(n + 2) + 1 : -n]",
    "y[n + 2 : -n] -> y[n + 2 : n]",
    "causal and not n -> causal or not n",
    "not n -> bool(n)",
    "if causal and not n -> if (not (causal and not n))",
    "y.sum(-1) -> y.sum(-2)",
    "y.sum(-1) -> y.sum(1)",
    "n == 4 -> n != 4",
    "min(y, -x) -> max(y, -x)",
    "min(y, -x) -> min(y, x)",
    "min(y, -x) -> min(-x, y)",
}
C = """
#define N 3
/* 1 + 2 */
static float f(const float *x, int n) {
  float sum = 0.5f, kept[4];
  for (int i = 0; i < n; i += 2) sum += x[i] * 2.0f; // 3 - 1
  return n == 1 || n >= 0x10 ? sum - x[0] : -sum / 4;
}
"""
C_CHANGES = {
    "sum = 0.5f -> sum = 0.25f",
    "i < n -> i <= n",
    "int i = 0 -> int i = 1",
    "i += 2 -> i += 3",
    "sum += x -> sum = x",
    "x[i] -> x[i + 1]",
    "x[i] * 2 -> x[i] / 2",
    "2.0f -> 2.02f",
    "n == 1 -> n != 1",
    "n == 1 || n -> n == 1 && n",
    "n >= 0x10 -> n > 0x10",
    "0x10 -> 17",
    "sum - x -> sum + x",
    "x[0] -> x[-1]",
    "-sum / 4 -> -sum * 4",
}


def list_changed(source: str, operators: object) -> set[tuple[str, str]]:
    """Every line with its change."""
    lines, found = source.splitlines(), set()
    for place in operators.find_places("file", source):  # type: ignore[attr-defined]
        line = lines[place.line - 1]
        assert line.startswith(place.before, place.column)
        for option in place.options:
            found.add((line, line[: place.column] + option + line[place.column + len(place.before) :]))
    return found


def is_among(change: str, changed: set[tuple[str, str]]) -> bool:
    before, after = change.split(" -> ")
    return any(line.replace(before, after, 1) == other for line, other in changed if before in line)


def test_the_operators_make_these_changes() -> None:
    for source, operators, changes in (
        (PYTHON, python_operators, PYTHON_CHANGES),
        (C, c_operators, C_CHANGES),
    ):
        changed = list_changed(source, operators)
        assert not [change for change in changes if not is_among(change, changed)]


def test_what_computes_nothing_is_not_changed() -> None:
    silent = ("import", "raise", "log", '"""', "#define", "/*")
    for source, operators in ((PYTHON, python_operators), (C, c_operators)):
        changed = list_changed(source, operators)
        assert not [line for line, _ in changed if any(word in line for word in silent)]
    assert not any("Tensor[2]" in other for _, other in list_changed(PYTHON, python_operators))
    assert not any("3 + 1" in other for _, other in list_changed(C, c_operators))


def test_every_python_place_gives_a_program() -> None:
    lines = PYTHON.splitlines()
    for place in python_operators.find_places("file", PYTHON):
        for option in place.options:
            line = lines[place.line - 1]
            changed = line[: place.column] + option + line[place.column + len(place.before) :]
            ast.parse("\n".join([*lines[: place.line - 1], changed, *lines[place.line :]]))


def test_a_draw_follows_from_its_seed_and_number() -> None:
    assert [draw(5, n) for n in range(1, 9)] == [draw(5, n) for n in range(1, 9)]
    assert draw(5, 1) != draw(6, 1)


def test_every_file_of_an_area_is_there_and_has_checks_of_its_own() -> None:
    for area, (_, globs) in AREAS.items():
        assert list_places(area)
        assert all(any(ROOT.glob(glob)) for glob in globs)
        for file in list_files(area):
            assert own_checks.list_own(file), file


def test_the_checks_of_a_file_are_known() -> None:
    assert not {name for own in own_checks.OWN for name in own.checks} - own_checks.list_known()


def test_the_kept_list_has_200_changes_each_once() -> None:
    assert len(KEPT) == COUNT
    assert {one.seed for one in KEPT} == {SEED}
    assert len({(one.file, one.text, one.occurrence, one.column, one.after) for one in KEPT}) == COUNT


def test_a_kept_mutation_applies_or_its_line_is_gone() -> None:
    for mutation in KEPT:
        source = read_source(mutation.file)
        try:
            changed = mutation.apply(source)
        except Gone:
            is_gone = mutation.text not in map(str.strip, source.splitlines()) or mutation.occurrence
            assert is_gone, mutation
            continue
        assert changed != source, mutation
        if mutation.file.endswith(".py"):
            compile(changed, mutation.file, "exec")


def test_a_line_that_moved_is_found_and_one_that_is_gone_is_replaced_by_the_next_number() -> None:
    known = KEPT[0]
    moved = known.apply("\n\n\n" + read_source(known.file))
    assert moved.removeprefix("\n\n\n") == known.apply(read_source(known.file))
    found, gone = kept.locate_all([known, replace(KEPT[1], text="no such line")])
    assert [one.number for one in found] == [1, KEPT[1].number + 1]
    assert [one.number for one in gone] == [KEPT[1].number]


def test_the_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept.write(KEPT[:5], tmp_path / "list.tsv")
    assert kept.read(tmp_path / "list.tsv") == KEPT[:5]


def test_a_figure_differs_where_it_is_printed_otherwise() -> None:
    right = flatten({"loss": [1.0, 2.0], "tokens": [3, "a"], "bfloat16": {"loss": 2.0}})
    assert not find_changes(right, right)
    assert not find_changes(
        right, flatten({"loss": [1.00001, 2.0], "tokens": [3, "a"], "bfloat16": {"loss": 2.005}})
    )
    for name, other in {
        ".loss": {"loss": [1.0, 2.001], "tokens": [3, "a"], "bfloat16": {"loss": 2.0}},
        ".tokens": {"loss": [1.0, 2.0], "tokens": [4, "a"], "bfloat16": {"loss": 2.0}},
        ".bfloat16.loss": {"loss": [1.0, 2.0], "tokens": [3, "a"], "bfloat16": {"loss": 2.02}},
    }.items():
        assert list(find_changes(right, flatten(other))) == [name]


def test_an_error_names_the_mutation_by_the_files_of_its_traceback() -> None:
    assert read_error(
        "pellucid/engine/norms.py", "raised TypeError in engine/block.py, engine/norms.py: x"
    ).is_own
    assert not read_error("pellucid/engine/norms.py", "raised TypeError in engine/block.py: x").is_own


def test_an_import_finds_the_mutated_text_and_writes_nothing(tmp_path: Path) -> None:
    finder = MutatedModule("pellucid/base/columns.py", "ANSWER = 42\n")
    spec = finder.find_spec("pellucid.base.columns", None)
    assert spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader)
    namespace: dict[str, object] = {}
    exec(spec.loader.get_code("pellucid.base.columns"), namespace)
    assert namespace["ANSWER"] == 42
    assert finder.find_spec("pellucid.base.names", None) is None


# ---- results


def test_results_are_kept_as_they_end_and_the_last_of_a_number_counts(tmp_path: Path) -> None:
    one = table.Result(3, 1, "engine", "missed", 2, "a\tb", "", "", 1.5, 2.0, "x.py:1: y")
    for outcome in ("missed", "elsewhere"):
        table.append(replace(one, outcome=outcome), tmp_path / "results.tsv")
    [read] = table.read(tmp_path / "results.tsv")
    assert read == replace(one, outcome="elsewhere", effect="a b")


def test_the_table_states_the_shares_and_each_missed_one(capsys: pytest.CaptureFixture[str]) -> None:
    one = table.Result(3, 1, "engine", "missed", 2, "loss: 2 for 1", "", "", 1.5, 2.0, "x.py:1: a -> b")
    caught = [replace(one, number=n, outcome="at its name") for n in range(4, 7)]
    silent = replace(one, number=9, outcome="no effect")
    assert not table.print_table([one, *caught, silent])
    out = capsys.readouterr().out
    assert "missed: 3 x.py:1: a -> b" in out
    assert "of 4 that change a printed figure: caught 75.0 %, at their own name 75.0 %" in out
    assert table.print_table(caught)


# ---- whole processes


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("subjects") / "all"
    tiny.prepare(folder)
    return folder


@pytest.mark.torture
@pytest.mark.parametrize("name", [*tiny.TinyModel.ALL, *tiny.RUNS])
def test_nothing_is_found_of_a_subject_without_a_mutation(name: str, subjects: Path) -> None:
    if name in tiny.RUNS:
        battery.train(subjects, name)
    assert judge("pellucid/engine/norms.py", [name], {}, subjects) == (False, "")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("prepared")
    return folder, table.prepare_subjects(folder)


NORMS = "pellucid/engine/norms.py"
DOCUMENTED = read_source(NORMS).splitlines()[0]
NO_CHANGE = Mutation(1, 0, "engine", NORMS, 1, "none", 0, 0, '"""', 'r"""', DOCUMENTED)
EPS = "rstd = 1.0f / sqrtf(sum_lanes(sum) / (float)n + nm->eps);"
IN_C = Mutation(2, 0, "native", "pellucid/engine/cpu/step.c", 1, "constant", 0, 7, "1.0f", "2.0f", EPS)


@pytest.mark.torture
def test_a_mutation_without_effect_is_told_apart_and_one_in_c_is_compiled_and_found(
    prepared: tuple[Path, str], tmp_path: Path
) -> None:
    kept.write([NO_CHANGE, IN_C], tmp_path / "list.tsv")
    silent, native = (table.run_one(one, tmp_path / "list.tsv", *prepared) for one in (NO_CHANGE, IN_C))
    assert (silent.outcome, silent.changed) == ("no effect", 0)
    assert native.outcome == "at its name"
    assert native.effect.startswith("llama/compiled")
    assert native.found.startswith("native")


@pytest.mark.torture
def test_the_process_of_a_mutation_in_c_decodes_with_the_library_of_that_mutation(tmp_path: Path) -> None:
    code = (
        "import json, os, sys\n"
        "from pathlib import Path\n"
        "from tests.faults.drawn import kept, planted\n"
        "planted.plant(kept.read(Path(sys.argv[1]))[0], Path(sys.argv[2]))\n"
        "from pellucid.engine.cpu import library\n"
        "print(json.dumps(library.load_library()._name))\n"
    )
    kept.write([IN_C], tmp_path / "list.tsv")
    before = sorted(path.name for path in (ROOT / "pellucid" / "engine/cpu").iterdir())
    command = [sys.executable, "-c", code, str(tmp_path / "list.tsv"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True)
    assert Path(json.loads(done.stdout)).is_relative_to(tmp_path)
    assert "2.0f / sqrtf" in (tmp_path / "native" / "step.c").read_text("utf-8")
    assert sorted(path.name for path in (ROOT / "pellucid" / "engine/cpu").iterdir()) == before
