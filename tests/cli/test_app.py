"""What holds for every command at once."""

from typing import Any

import pytest
import typer.main

from pellucid.cli.app import app


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
    for name, command in commands(typer.main.get_command(app))
    for parameter in command.params
    if parameter.type.name in ("integer", "float", "integer range", "float range")
]


@pytest.mark.parametrize(
    ("name", "parameter"), NUMBERS, ids=[f"{name} {parameter.opts[0]}" for name, parameter in NUMBERS]
)
def test_every_number_has_a_lowest_and_a_highest_value(name: str, parameter: Any) -> None:
    """A number without bounds can overflow, fill the memory or start processes without end."""
    low, high = getattr(parameter.type, "min", None), getattr(parameter.type, "max", None)
    assert low is not None and high is not None and abs(low) <= 2**63 and high < 2**63


def test_commands_with_numbers_are_found() -> None:
    assert {"explain", "generate", "plot", "train", "tokenizer explain"} <= {name for name, _ in NUMBERS}
