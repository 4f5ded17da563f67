"""The catalogue of worksheets: every mistake has a sentence."""

from pellucid.verification.mistakes import SHEET_MISTAKES, explain_mistake


def test_every_mistake_has_one_sentence() -> None:
    for name in SHEET_MISTAKES:
        sentence = explain_mistake(name)
        assert sentence.endswith("."), name
        assert sentence[0].isupper() or sentence[0].isdigit() or sentence.split()[0].islower(), name


def test_there_are_at_least_thirty_five() -> None:
    assert len(SHEET_MISTAKES) >= 35


def test_a_wrong_program_belongs_to_every_mistake_but_a_rewritten_rule() -> None:
    without = {name for name, entry in SHEET_MISTAKES.items() if entry.wrong is None}
    rewritten = {name for name, entry in SHEET_MISTAKES.items() if entry.kind == "R"}
    assert without - rewritten == {"neighboring cell", "step skipped"}
    assert rewritten <= without


def test_the_note_of_a_variant_is_not_part_of_its_name() -> None:
    assert explain_mistake("activation: gelu for relu") == explain_mistake("activation")


def test_an_unknown_name_has_no_sentence() -> None:
    assert explain_mistake("bad luck") == ""
