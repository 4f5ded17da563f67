"""The text of a choice while it grows: whole characters, and nothing of a stop text."""

import pytest

from pellucid.generation.output import Output
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train("bytes", [])


def write(tokenizer: Tokenizer, text: str, *stop: str, most: int = 100) -> tuple[Output, list[str]]:
    """An output that is given the bytes of a text until it ends, and the pieces that it released."""
    output = Output(0, tokenizer, [], (), stop, most)
    return output, [output.append(id) for id in tokenizer.encode(text) if output.finish is None]


def test_pieces_are_whole_characters_and_join_to_the_text(tokenizer: Tokenizer) -> None:
    output, pieces = write(tokenizer, "a\u00e9\u2192b")
    assert pieces == ["a", "", "\u00e9", "", "", "\u2192", "b"]
    assert output.text == "a\u00e9\u2192b" and output.finish is None


def test_a_stop_text_is_cut_and_nothing_of_it_is_released(tokenizer: Tokenizer) -> None:
    output, pieces = write(tokenizer, "yes END more", "END")
    assert (output.text, output.finish, len(output.ids)) == ("yes ", "stop", 7)
    assert "".join(pieces) == "yes "


def test_what_only_begins_like_a_stop_text_is_released_late_and_whole(tokenizer: Tokenizer) -> None:
    output, pieces = write(tokenizer, "EN!", "END")
    assert pieces == ["", "", "EN!"] and output.text == "EN!"


def test_of_several_stop_texts_the_first_in_the_text_counts(tokenizer: Tokenizer) -> None:
    assert write(tokenizer, "abcd", "cd", "b")[0].text == "a"


def test_a_text_that_ends_releases_what_it_held_back(tokenizer: Tokenizer) -> None:
    output, _ = write(tokenizer, "EN", "END", most=2)
    assert (output.text, output.finish) == ("EN", "length")
    cancelled, pieces = write(tokenizer, "EN", "END")
    assert pieces == ["", ""] and cancelled.end("cancelled") == "EN" == cancelled.text


def test_half_a_character_at_the_end_is_shown_as_such(tokenizer: Tokenizer) -> None:
    output, _ = write(tokenizer, "\u2192", most=2)
    assert output.text == "\ufffd" and output.finish == "length"


def test_a_stop_token_ends_the_text_and_has_no_text(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.encode("ab")
    output = Output(0, tokenizer, [], (second,), (), 9)
    assert [output.append(first), output.append(second)] == ["a", ""]
    assert (output.text, output.finish, output.ids) == ("a", "stop", [first, second])
