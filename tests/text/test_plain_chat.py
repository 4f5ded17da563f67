"""A conversation as plain text, for a model without a template."""

import pytest

from pellucid.base.errors import UsageError
from pellucid.text.plain_chat import PlainChat, write_plain


def test_a_conversation_is_a_line_for_each_message() -> None:
    talk = [
        {"role": "system", "content": "Be."},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": " Me.\n"},
        {"role": "user", "content": "Why?"},
    ]
    assert write_plain(talk) == "Be.\n\nUser: Who?\nAssistant: Me.\nUser: Why?\nAssistant:"


def test_the_ids_are_those_of_the_text_and_no_token_ends_an_answer() -> None:
    with PlainChat(lambda text: [len(text)]) as chat:
        assert chat.prompt([{"role": "user", "content": "?"}]) == [len("User: ?\nAssistant:")]
        chat.end_of_turn()
        assert chat.stop_texts == ("\nUser:",)


def test_a_role_that_plain_text_has_no_name_for_is_refused() -> None:
    with pytest.raises(UsageError, match="tool"):
        write_plain([{"role": "tool", "content": "x"}])
