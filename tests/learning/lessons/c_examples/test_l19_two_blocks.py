"""What lesson 19 says of the training and of the parts of its model."""

from pellucid.learning.lessons.c_examples import l19_two_blocks

RUNS = l19_two_blocks.run()


def cosine(run: str, one: str, other: str) -> float:
    prompts = list(l19_two_blocks.TARGETS)
    return float(RUNS[run].tape["cosine"][prompts.index(one), prompts.index(other)])


def test_training_sorts_the_prompts_by_what_comes_next() -> None:
    """Before it, the two prompts that end with A are the most alike."""
    assert cosine("before", "A A", "B A") > 0.6 > cosine("before", "A B", "B A")
    assert cosine("after", "A B", "B A") > 0.9
    assert max(cosine("after", "A A", "B A"), cosine("after", "A A", "A B")) < 0


def test_after_one_update_every_answer_is_c_and_after_ten_all_are_right() -> None:
    trained = RUNS["trained"].tape
    assert list(trained["probs@1"][:, 1].argmax(axis=-1)) == [2, 2, 2]
    assert (int(trained["right@1"]), int(trained["updates"])) == (2, 10)


def test_without_any_part_a_probability_moves_by_more_than_a_tenth() -> None:
    """By the least without head 1 of block 1."""
    whole = RUNS["step"].value("probs")[0, 1]
    moved = {
        name: abs(RUNS[name].value("probs")[0, 1] - whole).max() for name in RUNS if name.startswith("no_")
    }
    assert len(moved) == 7
    assert min(moved.values()) > 0.1
    assert min(moved, key=moved.__getitem__) == "no_head_1_1"


def test_the_gradient_has_not_faded_where_the_stream_begins() -> None:
    first, last = (
        abs(RUNS["step"].value(f"d.{name}")[0, 1]).max() for name in ("positioned", "blocks.1.resid_post")
    )
    assert first > last
    assert RUNS["step"].value("blocks.0.mlp.up")[0, 1, 0] < 0  # the first gate is closed, as the page says
