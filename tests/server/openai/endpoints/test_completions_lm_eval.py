"""lm-eval works unchanged: what its `local-completions` finds over HTTP is what `Model` finds by itself."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.evaluation.multiple_choice import RULES, read_questions, score_questions
from pellucid.model import Model
from tests.server.served import Served, run_served
from tests.server.serving import KEY

pytest.importorskip("lm_eval", reason="lm-eval, the extra `eval`, is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # its own imports
]

SMOLLM2 = os.environ.get("PELLUCID_SMOLLM2", "")
DOCS = Path(__file__).parents[4] / "docs"
PAIRS = [
    ("Once upon a time", " there was a cat"),
    ("Once upon a time ", "there"),
    ("", "the cat sat"),
    ("½ père", "\n木"),
    ("the cat " * 60, "sat"),
    ("a", "b" * 20),
]
"""Contexts with their continuations; one context is empty, and one is longer than the model's."""


def make_client(served: Served, model: Model, **more: Any) -> Any:
    """Returns lm-eval's own client, which asks the server for the tokenizer too."""
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    if find_spec("tenacity") is None:
        do_without_retries()
    return LocalCompletionsAPI(**list_arguments(served, model, **more))


def list_arguments(served: Served, model: Model, **more: Any) -> dict[str, Any]:
    """Returns what a user says in --model_args."""
    return {
        "base_url": f"{served.base_url}/completions",
        "model": served.app.served.name,
        "auth_token": served.key,
        "max_length": model.config.context_length,
        "max_retries": 1,
        **more,
    }


def do_without_retries() -> None:
    """Gives lm-eval what it does not import where tenacity is not installed; nothing is tried again then."""
    from lm_eval.models import api_models
    from tqdm import tqdm
    from tqdm.asyncio import tqdm_asyncio

    def ignore(*arguments: Any, **settings: Any) -> None:
        """Makes what `retry` would read."""

    def retry(**settings: Any) -> Callable[[Any], Any]:
        return lambda call: call

    names = {"RetryError": TimeoutError, "retry": retry, "tqdm": tqdm, "tqdm_asyncio": tqdm_asyncio}
    names |= {"stop_after_attempt": ignore, "wait_exponential": ignore, "find_spec": lambda name: True}
    vars(api_models).update(names)


def make_instances(kind: str, *arguments: Any) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, given, number) for number, given in enumerate(arguments)]


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """lm-eval sends the key of this variable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        yield


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return pellucid.load(tiny_model)


def encode_pair(client: Any, context: str, continuation: str) -> tuple[list[int], list[int]]:
    if not context:
        return [client.prefix_token_id], client.tok_encode(continuation)
    found: tuple[list[int], list[int]] = client._encode_pair(context, continuation)
    return found


def check_pairs(client: Any, model: Model) -> None:
    """Fails unless every log-likelihood and every `is_greedy` is that of the model's own scores."""
    found = client.loglikelihood(make_instances("loglikelihood", *PAIRS), disable_tqdm=True)
    for pair, (total, is_greedy) in zip(PAIRS, found, strict=True):
        context, continuation = encode_pair(client, *pair)
        whole, count = [*context, *continuation][-client.max_length :], len(continuation)
        scores = model.score(whole).logprobs[-count:]
        assert total == pytest.approx(sum(score or 0.0 for score in scores), abs=1e-5)
        best = model.logits(whole[:-1])[-count:].argmax(-1).tolist()
        assert is_greedy == (best == continuation)


@pytest.mark.parametrize(("batch_size", "num_concurrent"), [(1, 1), (4, 1), (2, 3)])
def test_log_likelihoods_are_those_of_the_model(
    served: Served, model: Model, batch_size: int, num_concurrent: int
) -> None:
    client = make_client(served, model, batch_size=batch_size, num_concurrent=num_concurrent)
    assert client.tokenizer_backend == "remote"
    check_pairs(client, model)


def test_what_the_model_would_say_is_greedy(served: Served, model: Model) -> None:
    client = make_client(served, model)
    ids = [5, 6, 7]
    greedy = list(model.generate_ids(ids, 3, stop_ids=[]))
    other = [*greedy[:2], (greedy[2] + 1) % 290]
    asked = [(("", ""), ids, greedy), (("", ""), ids, other)]
    assert [is_greedy for _, is_greedy in client._loglikelihood_tokens(asked)] == [True, False]


def test_rolling_log_likelihoods_are_those_of_the_model(served: Served, model: Model) -> None:
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    client, text = make_client(served, model, batch_size=3), "the cat sat on the mat. " * 30
    (found,) = client.loglikelihood_rolling(
        make_instances("loglikelihood_rolling", (text,)), disable_tqdm=True
    )
    windows = get_rolling_token_windows(
        model.tokenizer.encode(text), client.prefix_token_id, client.max_length - 1, context_len=1
    )
    expected = 0.0
    for context, ids in map(make_disjoint_window, windows):
        expected += sum(score or 0.0 for score in model.score([*context, *ids]).logprobs[-len(ids) :])
    assert found == pytest.approx(expected, abs=1e-4)


def test_texts_are_those_of_the_model(served: Served, model: Model) -> None:
    """Several prompts of ids at once; one setting has a stop text across tokens."""
    client, words = make_client(served, model, batch_size=3), ["the cat", "a", "Once", "½"]
    plain = {word: model.generate(word, 12, temperature=0) for word in words}
    stop = plain["the cat"][2:5]
    settings: list[dict[str, Any]] = [{"max_gen_toks": 12}, {"max_gen_toks": 12, "until": [stop, "§"]}]
    asked = [(word, one) for one in settings for word in words]
    found = client.generate_until(make_instances("generate_until", *asked), disable_tqdm=True)
    assert found[:4] == [plain[word] for word in words]
    assert found[4:] == [model.generate(word, 12, temperature=0, stop=[stop, "§"]) for word in words]


def test_the_remote_tokenizer_is_the_model_s(served: Served, model: Model) -> None:
    from lm_eval.utils import RemoteTokenizer, check_remote_tokenizer_support

    address = f"{served.base_url}/completions"
    assert check_remote_tokenizer_support(address, auth_token=KEY)
    assert not check_remote_tokenizer_support(address, auth_token="wrong", max_retries=1)
    tokenizer = RemoteTokenizer(address, auth_token=KEY)
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id) == (model.eos_ids[0], model.pretrained.start_id)
    ids = tokenizer.encode("Once upon <end> a time")
    assert ids == model.tokenizer.encode("Once upon <end> a time")
    assert tokenizer.decode(ids) == "Once upon <end> a time"
    said = [{"role": "user", "content": "Who?"}]
    text = tokenizer.apply_chat_template(said)
    assert model.tokenizer.encode(text, parse_special=True) == model.chat_prompt(said)[0]


# ---- the whole harness


def evaluate(task: Path, arguments: dict[str, Any]) -> Any:
    """Returns what lm-eval finds for the one task of a file."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    if find_spec("tenacity") is None:
        do_without_retries()
    return simple_evaluate(
        model="local-completions",
        model_args=arguments,
        tasks=[str(task)],
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
    )


def check_task(source: str | Path, tmp_path: Path) -> None:
    """Fails unless lm-eval over HTTP has the numbers of the model's own multiple choice."""
    model, questions = pellucid.load(source), DOCS / "common-knowledge.jsonl"
    task, cache = tmp_path / "common-knowledge.yaml", tmp_path / "cache"
    yaml = (DOCS / "common-knowledge.yaml").read_text("utf-8")
    task.write_text(yaml.replace("docs/common-knowledge.jsonl", f"{questions}\n  cache_dir: {cache}"))
    with run_served(source, name="model", slots=16) as running:
        found = evaluate(task, list_arguments(running, model, batch_size=16))
    scored = list(score_questions(model.module, model.pretrained, read_questions(questions)))
    for ours, theirs in zip(scored, found["samples"]["common-knowledge"], strict=True):
        totals, are_greedy = zip(*theirs["filtered_resps"], strict=True)
        assert ours.log_likelihoods == pytest.approx(totals, abs=1e-4)
        assert tuple(score.is_greedy for score in ours.scores) == are_greedy
    for name, rule in RULES.items():
        if name != "per_token":  # which lm-eval does not have
            accuracy = sum(one.is_right(name) for one in scored) / len(scored)
            assert found["results"]["common-knowledge"][f"{rule.metric},none"] == accuracy


@pytest.mark.torture
def test_a_task_of_lm_eval_has_the_numbers_of_our_own_evaluation(small_model: Path, tmp_path: Path) -> None:
    """It imports lm-eval's datasets library, which takes most of 20 s."""
    check_task(small_model, tmp_path)


@pytest.mark.torture
@pytest.mark.skipif(not SMOLLM2, reason="PELLUCID_SMOLLM2 names no file")
def test_smollm2_over_http_has_the_numbers_of_our_own_evaluation(tmp_path: Path) -> None:
    """The real model reads about a hundred continuations twice, which takes a minute."""
    check_task(SMOLLM2, tmp_path)
