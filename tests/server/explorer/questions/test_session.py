"""`session` lists the traces with a command that computes the same, within the size of an answer."""

import json
import shlex
from pathlib import Path

import pytest

import pellucid
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.process import MOST_ANSWER
from pellucid.server.explorer.questions.session import format_command
from pellucid.server.explorer.session import Session
from tests.cli.commands import Shell


def test_a_model_is_described_in_one_line() -> None:
    found = Session.open("abcd").ask("session")
    assert found["config"] == "1 layer, 2 channels, 1 head, 4 tokens, context 16"
    assert (found["model"], found["source"], found["parameters"], found["most_tokens"]) == (
        "abcd",
        "model",
        28,
        16,
    )
    assert (found["layers"], found["heads"], found["vocab"]) == (1, 1, 4)
    assert not found["traces"] and found["busy"] is found["failed"] is found["gradients"] is None


def test_a_trace_says_what_it_holds() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B", "C", update="sgd", lr=0.5, steps=2))
    (found,) = session.ask("session")["traces"]
    assert found["tokens"] == [{"label": "A", "id": 0}, {"label": "B", "id": 1}]
    assert (found["target"], found["has_gradients"], found["updates"]) == ("C", True, 2)
    tape = session.traces["t1"].trace.tape
    assert (found["values"], found["steps"]) == (len(tape.values), len(tape.steps))
    assert found["is_editable"] and found["path"] == "reference" and found["parent"] is None


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (RunRequest("A B"), "pellucid explain abcd 'A B' --at ADDRESS"),
        (RunRequest([0, 1]), "pellucid explain abcd 'A B' --at ADDRESS"),
        (RunRequest("A B", "C"), "pellucid explain abcd 'A B' --target=C --at ADDRESS"),
        (
            RunRequest("A", "C", update="sgd", lr=0.5, steps=2),
            "pellucid explain abcd A --target=C --update=sgd --lr=0.5 --steps=2 --at ADDRESS",
        ),
        (RunRequest("-A"), "pellucid explain abcd --at ADDRESS -- -A"),
        (RunRequest("$(x) 'a' \n;"), """pellucid explain abcd '$(x) '"'"'a'"'"' \n;' --at ADDRESS"""),
    ],
)
def test_the_command_is_one_that_a_shell_reads(request_: RunRequest, command: str) -> None:
    assert format_command(Session.open("abcd"), request_) == command
    assert request_.prompt in ([0, 1], *shlex.split(command))


def test_the_command_explains_the_same_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell = Shell(capsys, monkeypatch, tmp_path)
    session = Session.open("abcd")
    session.run(RunRequest("A B", "C", update="sgd", lr=0.5))
    command = session.ask("session")["traces"][0]["command"].replace("ADDRESS", "'probs@1[t=1,v=2]' --json")
    done = shell(*shlex.split(command)[1:])
    assert json.loads(done.out)["value"] == session.ask("value", at="probs@1[t=1,v=2]")["numbers"][0][0]


def test_the_command_of_quantized_weights_names_them_and_cannot_update_them() -> None:
    session = Session.open("abcd", weights="int8")
    assert format_command(session, RunRequest("A B")) == (
        "pellucid explain abcd 'A B' --weights=int8 --at ADDRESS"
    )
    assert format_command(session, RunRequest("A B", "C", update="sgd")) is None


def test_ids_without_a_text_have_no_command() -> None:
    model = pellucid.load("abcd")
    assert format_command(Session(model, source="abcd"), RunRequest([0], target=[9])) is None
    bare = Session(model.replace(tokenizer=None), source="abcd")
    assert format_command(bare, RunRequest([0, 1])) == "pellucid explain abcd '[0, 1]' --at ADDRESS"


def test_of_a_path_the_last_part_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "my model.toml"
    path.write_text((Path(pellucid.__file__).parent / "config/presets/abcd.toml").read_text())
    session = Session.open(str(path))
    session.run(RunRequest("A"))
    assert session.ask("session")["traces"][0]["command"] == "pellucid explain 'my model.toml' A --at ADDRESS"
    assert str(tmp_path) not in json.dumps(session.ask("session"))


def test_of_very_many_traces_the_newest_are_listed() -> None:
    session = Session.open("abcd")
    for _ in range(20):
        held = session.run(RunRequest("A B"))
    for number in range(21, 2000):  # made without computing: only what is listed matters here
        session.summaries[f"t{number}"] = held.summary
    found = session.ask("session")
    assert len(json.dumps(found)) < MOST_ANSWER and 0 < found["omitted"] == 1999 - len(found["traces"])
