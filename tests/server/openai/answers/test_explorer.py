"""A kept answer is run once, when it is opened, by the model that is served, in a process of its own."""

import asyncio
import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.base.errors import ResourceError
from pellucid.formats.resolve import open_model
from pellucid.generation.ledger.file import read_ledger
from pellucid.server.explorer.client import ExplorerWorker
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.answers import explorer as answer_explorer
from pellucid.server.openai.answers.explorer import AnswerExplorer, KeptAnswers, stamp_files
from tests.browser.models import LLAMA, write_model
from tests.cli.commands import Shell
from tests.server.served import Served

PROMPT, NEW = [0, 1, 2], [3, 4, 5, 4]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "small.toml", LLAMA)


class Explored:
    """An explorer with an event loop of its own, which runs while something is asked."""

    def __init__(self, path: Path, source: str = "", weights: str | None = None) -> None:
        self.loop, self.answers = asyncio.Runner(), KeptAnswers()
        self.explorer = AnswerExplorer(path, self.answers, source, weights)

    def __enter__(self) -> "Explored":
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run(self.explorer.close())
        self.loop.close()

    def ask(self, question: str, **given: object) -> Any:
        """Returns an answer; of an error the status and the message."""
        return self.ask_often(question, 1, **given)[0]

    def ask_often(self, question: str, count: int, **given: object) -> list[Any]:
        """Asks the same at once several times."""

        async def ask() -> Any:
            await self.explorer.start()
            status, body = await self.explorer.ask(question, given)
            found = json.loads(body)
            return found if status == 200 else (status, found["error"]["message"])

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*(ask() for _ in range(count)))

        return self.loop.run(ask_all())

    def refuse(self, question: str = "session", **given: object) -> RequestError:
        """Returns why a question is refused."""
        with pytest.raises(RequestError) as refused:
            self.ask(question, **given)
        return refused.value


@pytest.fixture(scope="module")
def explored(model: Path) -> Iterator[Explored]:
    with Explored(model, "given", "int8") as explored:
        yield explored


def test_an_opened_answer_has_the_probabilities_of_its_tokens(explored: Explored, model: Path) -> None:
    opened = explored.ask("open", answer=explored.answers.keep(PROMPT, NEW))
    targets = explored.ask("targets", **opened)["targets"]
    assert [target["id"] for target in targets] == NEW
    wanted = pellucid.load(model, weights="int8").score(PROMPT + NEW).logprobs[-len(NEW) :]
    found = [math.log(target["probs"][0]["value"]) for target in targets]
    assert found == pytest.approx(wanted, abs=1e-5)


def test_all_who_open_an_answer_wait_for_one_run(explored: Explored) -> None:
    id, other = (explored.answers.keep(PROMPT, NEW) for _ in range(2))
    before = len(explored.ask("session")["traces"])
    opened = [*explored.ask_often("open", 5, answer=id), explored.ask("open", answer=id)]
    assert len({found["trace"] for found in opened}) == 1
    assert explored.ask("open", answer=other) != opened[0]
    assert len(explored.ask("session")["traces"]) == before + 2


def test_an_answer_whose_trace_is_no_longer_listed_is_run_again(
    explored: Explored, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = explored.answers.keep(PROMPT, NEW)
    first = explored.ask("open", answer=id)
    worker = explored.explorer._worker
    assert worker is not None
    ask = worker.ask

    async def ask_without_traces(question: str, *given: Any) -> tuple[int, bytes]:
        status, body = await ask(question, *given)
        return status, json.dumps(json.loads(body) | {"traces": []}).encode()

    assert explored.ask("open", answer=id) == first
    monkeypatch.setattr(worker, "ask", ask_without_traces)
    assert explored.ask("open", answer=id)["trace"] != first["trace"]


def test_an_answer_without_new_tokens_can_be_opened(explored: Explored) -> None:
    opened = explored.ask("open", answer=explored.answers.keep(PROMPT, []))
    trace = explored.ask("session")["traces"][-1]
    assert opened["trace"] == trace["id"] and [token["id"] for token in trace["tokens"]] == PROMPT


@pytest.mark.parametrize(("prompt", "shown"), [(2, 33), (32, 33), (33, 32), (40, 32)])
def test_of_a_long_answer_the_first_tokens_are_opened_and_a_note_says_so(
    explored: Explored, prompt: int, shown: int
) -> None:
    """The context is 32: what follows its last token has a probability, too."""
    opened = explored.ask("open", answer=explored.answers.keep([1] * prompt, [2] * (50 - prompt)))
    assert len(explored.ask("session")["traces"][-1]["tokens"]) == 32
    assert explored.ask("targets", trace=opened["trace"])["count"] == max(shown - prompt, 0)
    assert f"{50 - shown} tokens" in opened["note"]


@pytest.mark.parametrize(
    ("given", "status"),
    [({}, 400), ({"answer": 3}, 400), ({"answer": "tr_x", "more": 1}, 400), ({"answer": "tr_x"}, 404)],
)
def test_what_is_not_a_kept_answer_is_refused(explored: Explored, given: dict[str, Any], status: int) -> None:
    refused = explored.refuse("open", **given)
    assert (refused.status, refused.param) == (status, "answer")


def test_a_run_that_fails_is_tried_again(explored: Explored) -> None:
    id, before = explored.answers.keep([10**6], NEW), explored.ask("session")["traces"]
    first, second = (explored.ask("open", answer=id) for _ in range(2))
    assert first == second and first[0] == 400
    assert explored.ask("session")["traces"] == before


def test_a_process_that_ended_is_replaced_and_the_answer_is_run_again(explored: Explored) -> None:
    id = explored.answers.keep(PROMPT, NEW)
    explored.ask("open", answer=id)
    worker = explored.explorer._worker
    assert worker is not None and worker.pid is not None and worker._reader is not None
    os.kill(worker.pid, signal.SIGKILL)
    explored.loop.run(asyncio.wait_for(worker._reader, 10))
    assert explored.ask("open", answer=id)["trace"] == "t1"


def test_no_process_runs_until_a_question_is_asked(model: Path) -> None:
    with Explored(model) as explored:
        explored.answers.keep(PROMPT, NEW)
        assert explored.explorer.methods == {}


def test_a_start_that_fails_is_a_message_and_not_tried_at_every_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = list[str]()

    async def start(source: str, path: str | None = None, weights: str | None = None) -> ExplorerWorker:
        starts.append(source)
        raise ResourceError(f"{source} does not fit.")

    monkeypatch.setattr(ExplorerWorker, "start", start)
    with Explored(tmp_path / "nothing.gguf") as explored:
        found = [explored.refuse() for _ in range(3)]
        monkeypatch.setattr(answer_explorer, "RETRY_SECONDS", 0.0)
        found.append(explored.refuse())
    assert len(starts) == 2
    assert all(refused.status == 503 and "nothing.gguf" in str(refused) for refused in found)


def test_files_that_changed_are_not_shown_as_the_model_that_answers(tmp_path: Path) -> None:
    source = write_model(tmp_path / "small.toml", LLAMA)
    with Explored(source) as explored:
        write_model(source, LLAMA, seed=1)
        assert explored.refuse().status == 503
        assert explored.explorer.methods == {}


def test_a_closed_explorer_starts_no_process(model: Path) -> None:
    explored = Explored(model)

    async def close() -> None:
        starting = asyncio.create_task(explored.explorer.start())
        await asyncio.sleep(0.05)
        await explored.explorer.close()
        await asyncio.wait([starting])

    with explored:
        explored.loop.run(close())
        assert explored.refuse().status == 503


def test_the_source_of_a_model_opens_the_same_model(tmp_path: Path, model: Path) -> None:
    """`serve` hands on where the weights were read: it must be a MODEL argument itself."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text("")
    pellucid.load(model).save(run / "model")
    for source in ("abcd", model, run / "model", run):
        opened = open_model(source)
        again = open_model(str(opened.provenance.path))
        assert again.config == opened.config and again.provenance == opened.provenance
        assert all((again.weights[name] == weight).all() for name, weight in opened.weights.items())


def test_the_model_is_shown_under_the_name_that_was_given(explored: Explored) -> None:
    explored.ask("open", answer=explored.answers.keep(PROMPT, NEW))
    session = explored.ask("session")
    assert session["model"] == "given"
    assert session["traces"][-1]["command"].startswith("pellucid explain given ")


def test_a_folder_has_the_stamps_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = stamp_files(tmp_path)
    (tmp_path / "b").write_text("1")
    assert len(before) == 1 and len(stamp_files(tmp_path)) == 2
    assert stamp_files(Path("abcd")) == ()


# ---- with the endpoints


def open_answer(served: Served, choice: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what the explorer shows of each new token of an answer."""
    opened = served.post("/api/open", answer=choice["explain"]["trace"])
    targets = json.loads(served.ask("GET", f"/api/targets?trace={opened['trace']}").body)["targets"]
    for target in targets:
        place = f"trace={opened['trace']}&t={target['t']}&count=64"
        target["next"] = json.loads(served.ask("GET", f"/api/next?{place}").body)
    return targets


def check_explanation(served: Served, choice: dict[str, Any], logprobs: list[float]) -> None:
    """Asserts that an answer and its trace have the same numbers."""
    tokens, shown = choice["explain"]["tokens"], open_answer(served, choice)
    assert [token["id"] for token in tokens] == [target["id"] for target in shown]
    found = [math.log(target["probs"][0]["value"]) for target in shown]
    assert found == pytest.approx(logprobs, abs=1e-5)
    assert [-token["surprisal"] for token in tokens] == pytest.approx(found, abs=1e-5)
    entropies = [target["next"]["entropy"] for target in shown]
    assert [token["entropy"] for token in tokens] == pytest.approx(entropies, abs=1e-5)
    for token, target in zip(tokens, shown, strict=True):
        ranks = {one["id"]: one["rank"] for one in target["next"]["tokens"]}
        assert ranks.get(token["id"], 64) == min(token["rank"], 64)


def test_an_explained_completion_has_the_numbers_of_its_trace(served: Served) -> None:
    asked = {"prompt": ["the cat", "a dog sat"], "n": 2, "max_tokens": 12, "seed": 3, "stop": "e"}
    choices = served.post("/v1/completions", **asked, logprobs=2, explain=True)["choices"]
    assert len(choices) == len({choice["explain"]["trace"] for choice in choices}) == 4
    for choice in choices:
        check_explanation(served, choice, choice["logprobs"]["token_logprobs"])


@pytest.mark.parametrize("question", ["runs", "log", "ledger"])
def test_files_beside_the_model_are_not_served(served: Served, question: str) -> None:
    assert served.ask("GET", "/api/session").status == 200  # the process runs
    assert served.ask("GET", f"/api/{question}").status == 404


def test_a_streamed_conversation_has_the_numbers_of_its_trace(served: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 4}
    events = served.stream("/v1/chat/completions", **asked, logprobs=True, explain=True)
    parts = [choice for event in events if event != "[DONE]" for choice in event["choices"]]
    given = [part["explain"] for part in parts if part.get("explain")]
    logprobs = [row["logprob"] for part in parts if part["logprobs"] for row in part["logprobs"]["content"]]
    assert len([one for one in given if "trace" in one]) == 1
    tokens = [token for one in given for token in one["tokens"]]
    whole = {"explain": {"trace": given[-1]["trace"], "tokens": tokens}}
    check_explanation(served, whole, logprobs)


def test_a_ledger_that_was_saved_can_be_replayed_and_explained(
    served: Served,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = Shell(capsys, monkeypatch, tmp_path)
    asked = {"prompt": "the cat", "max_tokens": 5, "seed": 5, "temperature": 0.8, "top_p": 0.9, "n": 2}
    [choice, _] = served.post("/v1/completions", **asked, ledger=True)["choices"]
    file = tmp_path / "ledger.json"
    file.write_text(json.dumps(choice["ledger"]))
    for words in (["replay"], ["replay", "--model", str(tiny_model)], ["explain"]):
        done = shell(*words, str(file))
        assert done.code == 0, done.err
    ledger = read_ledger(file)
    assert ledger.seed == 5 and len(ledger.completions) == 2
    assert ledger.completions[0].text == choice["text"]
    events = [event for event in served.stream("/v1/completions", **asked, ledger=True) if event != "[DONE]"]
    streamed = [one["ledger"] for event in events for one in event["choices"] if "ledger" in one]
    assert streamed == [choice["ledger"]]
