"""What holds for every command at once."""

from pathlib import Path
from typing import Any

import pellucid
from pellucid.base.errors import PellucidError, ResourceError
from pellucid.cli.app import COMMANDS, EXIT_CODES, FIRST, command_tree
from pellucid.generation.settings.table import SETTINGS
from tests.cli.commands import Shell


def commands(group: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Every command with its full name, those of groups too."""
    return [
        found
        for name, command in group.commands.items()
        for found in (
            commands(command, f"{prefix}{name} ")
            if hasattr(command, "commands")
            else [(f"{prefix}{name}", command)]
        )
    ]


NUMBERS = [
    (name, parameter)
    for name, command in commands(command_tree())
    for parameter in command.params
    if parameter.param_type_name == "option"
    and parameter.type.name in ("int", "float", "int range", "float range")
]


def test_every_number_has_a_lowest_and_a_highest_value() -> None:
    """A number without bounds can overflow, fill the memory or start processes without end. Those of sampling
    settings are in the settings' table, for every way in which they are given."""
    for name, parameter in NUMBERS:
        kind = parameter.type
        low, high = (kind.min, kind.max) if hasattr(kind, "min") else SETTINGS[parameter.name].bounds
        is_bounded = low is not None and high is not None and abs(low) <= 2**63 and high < 2**63
        assert is_bounded, f"{name} {parameter.opts[0]}"


def describe(group: Any) -> list[Any]:
    return [
        (name, command.help, command.epilog, [(one.opts, one.help) for one in command.params])
        for name, command in commands(group)
    ]


def test_a_command_alone_is_the_same_as_among_all() -> None:
    alone = [command_tree(name) for name in COMMANDS]
    assert [list(tree.commands) for tree in alone] == [[name] for name in COMMANDS]
    assert [entry for tree in alone for entry in describe(tree)] == describe(command_tree())


def test_a_word_that_is_not_a_command_has_the_whole_command_line() -> None:
    assert all(list(command_tree(word).commands) == list(COMMANDS) for word in ("", "explian", "--help"))


def test_commands_with_numbers_are_found() -> None:
    assert {"explain", "generate", "plot", "train", "tokenizer explain"} <= {name for name, _ in NUMBERS}


def test_ids_that_are_not_numbers_are_refused(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b")
    shell("tokenizer", "train", tmp_path / "text.txt", "--kind", "characters", "-o", tmp_path / "letters")
    for ids in ("--5", "²", "9" * 5000, "1 x"):
        done = shell("tokenizer", "decode", tmp_path / "letters", stdin=ids.encode())
        assert (done.code, done.out) == (2, ""), ids


def test_the_help_has_seven_panels_and_a_short_line_for_each_command(shell: Shell) -> None:
    shown = shell("--help").out
    panels = list(dict.fromkeys(command.panel for command in COMMANDS.values()))
    assert panels == ["Models", "Use", "See", "Check", "Measure", "Train", "Learn"]
    places = [shown.index(f"╭─ {panel} ─") for panel in panels]
    assert places == sorted(places)
    for name, command in COMMANDS.items():
        assert len(command.line) <= 60 and command.line in shown, name
    assert shown.count("pellucid ") >= len(FIRST) == 3 and all(line in shown for line in FIRST)


def test_the_help_and_the_page_name_every_exit_code(shell: Shell) -> None:
    shown = " ".join(shell("--help").out.split())
    page = (Path(pellucid.__file__).parents[1] / "docs" / "commands.md").read_text("utf-8")
    for code, meaning in EXIT_CODES.items():
        assert str(code) in shown and f"| {code} | {meaning} |" in page
    assert {0, 1, PellucidError.exit_code, ResourceError.exit_code, 129, 130, 143} == EXIT_CODES.keys()
