"""The views that `pellucid.look` finds by name, and how their settings are read."""

import inspect

import pytest

from pellucid.base.errors import UsageError
from pellucid.interpretability.look_kinds import LOOKS, read_settings


def test_every_view_is_found_and_has_a_default_for_each_setting() -> None:
    for kind, look in LOOKS.items():
        first, *settings = inspect.signature(look.find()).parameters.values()
        assert first.default is inspect.Parameter.empty, kind
        assert all(setting.default is not inspect.Parameter.empty for setting in settings), kind


def test_settings_are_read_in_the_type_of_the_view() -> None:
    assert read_settings(["attribution"], ["top=3"]) == {"top": 3}
    assert read_settings(["geometry"], ["analogy=A,B,C"]) == {"analogy": ["A", "B", "C"]}
    assert read_settings(["geometry"], ["tokens=A,B", "tokens=C"]) == {"tokens": ["A", "B", "C"]}
    assert read_settings(["heads"], ["texts=A, B", "texts=C"]) == {"texts": ["A, B", "C"]}
    for texts in (["top"], ["top=x"], ["tip=3"], ["top=3", "top=4"]):
        with pytest.raises(UsageError):
            read_settings(["attribution"], texts)
