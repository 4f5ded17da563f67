"""lm-eval on a model of ours says what our own multiple choice says, and what it says of `transformers`.

One group: importing lm-eval and its datasets library takes seconds, once in each process.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid import UsageError
from pellucid.evaluation.multiple_choice import RULES, ScoredQuestion, read_questions, score_questions
from pellucid.model import Model
from tests.formats.tokenizers import TEMPLATE, bpe_file
from tests.model import folders

pytest.importorskip("lm_eval", reason="lm-eval, the extra `eval`, is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # its own imports
]

WORDS = ["the", "thin", "thing", "in", "inner", "heat", "bathes", "a", "tin", "père", "木", "that", "hinted"]
YAML = """
task: made_up
dataset_path: json
dataset_kwargs: {{data_files: {data}, cache_dir: {cache}}}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{{metric: acc}}, {{metric: acc_norm}}, {{metric: acc_bytes}}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ids = {"bos_token_id": 259, "eos_token_id": 260}
    return folders.huggingface(tmp_path_factory.mktemp("theirs"), "llama", num_hidden_layers=3, **ids)


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return pellucid.load(folder)


def write_questions(path: Path, count: int) -> Path:
    """Contexts and choices of random words; some are longer than the model's context, one is empty."""
    draw, lines = random.Random(0), list[str]()

    def say(most: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))

    for number in range(count):
        choices = sorted({say(4) for _ in range(draw.randint(2, 5))} | {"the", "père"})
        draw.shuffle(choices)
        context = say(20) if number else ""
        line = {"context": context, "choices": choices, "answer": draw.randrange(len(choices))}
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines))
    return path


def evaluate(model: Model, data: Path, place: Path) -> Any:
    """Runs lm-eval on the same file, as a task of its own."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from pellucid.evaluation.lm_eval_model import LmEvalModel

    (place / "made_up.yaml").write_text(YAML.format(data=data, cache=place / "cache"))
    manager = TaskManager(include_path=place, include_defaults=False)
    return simple_evaluate(model=LmEvalModel(model), tasks=["made_up"], task_manager=manager)


def test_lm_eval_and_multiple_choice_agree_on_the_same_data(model: Model, tmp_path: Path) -> None:
    data = write_questions(tmp_path / "made_up.jsonl", 40)
    scored = list(score_questions(model.module, model.pretrained, read_questions(data)))
    found = evaluate(model, data, tmp_path)
    for ours, theirs in zip(scored, found["samples"]["made_up"], strict=True):
        assert ours.question.context == theirs["doc"]["context"]
        likelihoods = [total for total, _ in theirs["filtered_resps"]]
        assert ours.log_likelihoods == pytest.approx(likelihoods, abs=1e-6)
        assert [score.is_greedy for score in ours.scores] == [best for _, best in theirs["filtered_resps"]]
    for name, rule in RULES.items():
        if name != "per_token":  # which lm-eval does not have
            assert accuracy(scored, name) == found["results"]["made_up"][f"{rule.metric},none"]
    assert len({accuracy(scored, name) for name in RULES}) > 1  # the rules do not all say the same
    assert sum(score.n_dropped > 0 for one in scored for score in one.scores) > 10


def accuracy(scored: list[ScoredQuestion], rule: str) -> float:
    return sum(one.is_right(rule) for one in scored) / len(scored)


# ---- the three kinds of requests, against lm-eval's own model for `transformers`

PAIRS = [("the thing in", " the tin"), ("the thing ", "a bath"), ("", "in the heat"), ("père 木", "\n木")]


def ask(kind: str, *arguments: Any) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, given, number) for number, given in enumerate(arguments)]


@pytest.fixture(scope="module")
def both(folder: Path) -> tuple[Any, Any]:
    """Our model and lm-eval's own, on the same folder."""
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from pellucid.evaluation.lm_eval_model import LmEvalModel

    theirs = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return LmEvalModel(pellucid.load(folder)), HFLM(theirs, tokenizer=tokenizer, batch_size=3, device="cpu")


def test_log_likelihoods_are_those_of_lm_evals_own_model(both: tuple[Any, Any]) -> None:
    ours, theirs = (one.loglikelihood(ask("loglikelihood", *PAIRS), disable_tqdm=True) for one in both)
    assert [total for total, _ in ours] == pytest.approx([total for total, _ in theirs], abs=1e-4)
    assert [is_greedy for _, is_greedy in ours] == [is_greedy for _, is_greedy in theirs]


def test_rolling_log_likelihoods_are_those_of_lm_evals_own_model(both: tuple[Any, Any]) -> None:
    """One window, exactly one, and three."""
    requests = ask("loglikelihood_rolling", ("the thing",), ("a" * 64,), ("the heat in a tin " * 12,))
    ours, theirs = (one.loglikelihood_rolling(requests, disable_tqdm=True) for one in both)
    assert ours == pytest.approx(theirs, abs=1e-3)


def test_texts_are_those_of_lm_evals_own_model(both: tuple[Any, Any]) -> None:
    texts = {word: both[0].model.generate(word, 20) for word in WORDS}
    word, first = next((word, text) for word, text in texts.items() if "<" not in text)  # no special token
    stops = [first[3:5], first[7]]
    settings = [
        {"until": [], "max_gen_toks": 20},
        {"until": stops, "max_gen_toks": 20},
        {"until": [], "max_gen_toks": 20, "do_sample": False, "temperature": 0.7},
    ]
    requests = ask("generate_until", *((word, one) for one in settings), (" in" * 60, settings[0]))
    ours, theirs = (one.generate_until(requests, disable_tqdm=True) for one in both)
    assert ours == theirs
    assert (ours[0], ours[1]) == (first, first[: min(map(first.find, stops))])


def make_lm(folder: Path, **settings: Any) -> Any:
    from pellucid.evaluation.lm_eval_model import LmEvalModel

    return LmEvalModel(pellucid.load(bpe_file(folder, **settings)))


def test_the_bos_token_is_context_and_is_not_counted(folder: Path, tmp_path: Path) -> None:
    import shutil

    place = shutil.copytree(folder, tmp_path / "bos")
    with_bos = make_lm(place, post_processor=TEMPLATE)
    assert with_bos.tok_encode("a") == [259, *with_bos.tok_encode("a", add_special_tokens=False)]
    (pair,) = with_bos.loglikelihood(ask("loglikelihood", ("a", "b")), disable_tqdm=True)
    score = with_bos.model.score("ab")
    assert pair[0] == pytest.approx(score.logprobs[2])
    (whole,) = with_bos.loglikelihood_rolling(ask("loglikelihood_rolling", ("ab",)), disable_tqdm=True)
    assert whole == pytest.approx(score.total)


def test_a_sampled_text_is_the_same_each_time(both: tuple[Any, Any]) -> None:
    ours, settings = both[0], {"do_sample": True, "temperature": 2.0, "max_gen_toks": 8, "top_k": 50}
    requests = ask("generate_until", *[("the thing", settings)] * 3)
    once, again = (ours.generate_until(requests, disable_tqdm=True) for _ in range(2))
    assert once == again and len(set(once)) > 1


def test_a_request_that_cannot_run_is_refused(both: tuple[Any, Any]) -> None:
    for settings in ({"max_gen_toks": 64}, {"max_gen_toks": 4, "num_beams": 3}):
        with pytest.raises(UsageError):
            both[0].generate_until(ask("generate_until", ("the", settings)), disable_tqdm=True)
    assert both[0].generate_until([]) == []


def test_special_tokens_are_parsed_where_a_template_wrote_them(folder: Path, tmp_path: Path) -> None:
    import shutil

    template = (
        "{{ bos_token }}{% for m in messages %}{{ m['role'] + ':' + m['content'] + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    )
    place = shutil.copytree(folder, tmp_path / "chat")
    talker = make_lm(place, post_processor=TEMPLATE, chat_template=template)
    assert 260 not in talker.tok_encode("a</s>")  # ordinary text
    asked = [{"role": "user", "content": "Who?"}]
    text = talker.apply_chat_template(asked)
    assert text == "<s>user:Who?</s>assistant:"
    answered = [*asked, {"role": "assistant", "content": "Me"}]
    assert talker.apply_chat_template(answered, add_generation_prompt=False) == f"{text}Me"
    ids = talker.tok_encode(text)
    assert ids.count(259) == 1 and ids.count(260) == 1
    assert talker.chat_template(True) == template and talker.tokenizer_name == "chat"
