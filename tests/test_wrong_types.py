"""A wrong type of any argument of any public function ends with an error of ours, never with a library's."""

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid import Engine, Model, Request, Sampling, Tape, ops
from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.generation.settings.keywords import GenerationOptions
from pellucid.text.kinds import train
from pellucid.verification.checks import catalogue

WRONG: tuple[Any, ...] = (
    None, 5, -1, 10**30, 1.5, float("nan"), "x", "\ud800", b"x", [1], ["a"], [[1], [2, 3]], {"a": 1}, {1: 2},
    object(), np.array([1.5, 2.0]), np.array(["a"]), torch.tensor([1.0, 2.0]), torch.tensor(2), lambda *_: 0,
)  # fmt: skip
GIVES_A_TAPE = "make_tape"
"""The parameter whose function must return something: what it returns is the caller's."""
ALSO_FUNCTIONS = ("calibrate", "evaluate", "trace")
"""Methods of a model that are public functions too."""
IN_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


def make_tape() -> Tape:
    tape = Tape()
    x = tape.parameter("x", [1.0, 2.0])
    tape("loss", ops.einsum, x, x, spec="i,i->")
    return tape


@pytest.fixture(scope="module")
def objects() -> dict[str, Callable[[], Any]]:
    """What gives an object of each public class."""
    model, sampling = pellucid.load("abcd"), Sampling(max_new_tokens=1)
    made = [model, model.config, sampling, Request((1, 2), sampling), Engine(model.module, model.tokenizer)]
    return {type(one).__name__: lambda one=one: one for one in made} | {"Tape": make_tape}


@pytest.fixture(scope="module")
def arguments(objects: dict[str, Callable[[], Any]], tmp_path_factory: Any) -> dict[str, dict[str, Any]]:
    """Arguments of each public function and method: those without a default, and those that keep it short."""
    text = tmp_path_factory.mktemp("wrong") / "a.txt"
    text.write_text("A B A")
    model, trace, tape = objects["Model"](), pellucid.trace("abcd", "A B"), make_tape()
    request, short = objects["Request"](), {"prompt": "A", "max_new_tokens": 1}
    address = {"prompt": "A B", "at": "logits[t=1,v=2]"}
    own = {"model": model}
    return {
        "Engine": {"model": model.module},
        "Engine.add": {"request": request},
        "Engine.cancel": {"handle": objects["Engine"]().add(request)},
        "Engine.wait": {"handle": objects["Engine"]().add(request)},
        "Model": {"pretrained": model.pretrained},
        "Model.astream": short,
        "Model.chat": {"messages": "A"},
        "Model.chat_prompt": {"messages": "A"},
        "Model.decode_stream": {"prompt": "A", "tokens": [1]},
        "Model.encode": {"prompt": "A"},
        "Model.explain": address,
        "Model.from_config": {"config": "abcd"},
        "Model.from_pretrained": {"name": "abcd"},
        "Model.generate": short | dict.fromkeys(GenerationOptions.__annotations__),
        "Model.generate_ids": short,
        "Model.in_layout": {"layout": "halves"},
        "Model.label": {"id": 1},
        "Model.logits": {"prompt": [1]},
        "Model.loglikelihood": {"context": "A", "continuation": " B"},
        "Model.modified_weight": {"name": "embed.weight"},
        "Model.replace": {"config": model.config, "weights": model.weights, "tokenizer": None},
        "Model.save": {"folder": text.parent},
        "Model.save_pretrained": {"folder": text.parent},
        "Model.score": {"prompt": "A B"},
        "Model.stream": short,
        "Model.token": {"id": 1},
        "ModelConfig": {key: model.config.to_dict()[key] for key in ("n_layer", "n_head", "d_model")}
        | {"vocab_size": 4, "context_length": 8},
        "ModelConfig.from_dict": {"given": model.config.to_dict()},
        "ModelConfig.from_json": {"text": model.config.to_json()},
        "ModelConfig.from_toml": {"text": ""},
        "ModelConfig.sizes": {"batch": 1, "length": 1},
        "Request": {"prompt": (1, 2)},
        "Sampling.check_vocabulary": {"vocab_size": 4},
        "Sampling.from_generation": {"settings": {}},
        "Sampling.merge": {"other": {}},
        "Sampling.read": {"table": {}},
        "Tape.alias": {"name": "z", "ref": tape.ref("x")},
        "Tape.backward": {"loss": tape.ref("loss")},
        "Tape.constant": {"name": "c", "value": 1.0},
        "Tape.describe": {"ref": tape.ref("x")},
        "Tape.integer_parameter": {"name": "c", "value": np.array([1])},
        "Tape.joined_name": {"name": "x"},
        "Tape.parameter": {"name": "p", "value": [1.0]},
        "Tape.ref": {"name": "x"},
        "Tape.rerun": {"given": {}},
        "Tape.resolve": {"name": "x"},
        "Tape.scope": {"prefix": "x"},
        "calibrate": {**own, "data": text},
        "compare": {"a": model, "b": {"logits": trace.tape["logits"]}, "prompt": "A B"},
        "compare_tokenizers": {"on": [text]},
        "edit": {"pattern": "logits", "change": lambda value: value},
        "evaluate": {**own, "data": text, "samples": 2},
        "explain": own | address,
        "load": {"name": "abcd"},
        "look": own | {"prompt": "A B", "show": "lens"},
        "Model.compare": {"b": {"logits": trace.tape["logits"]}, "prompt": "A B"},
        "Model.loss": {"prompt": "A B"},
        "chat": {"model": model, "messages": "A"},
        "explore": {"model": trace, "size": 1000},
        "generate": own | {"prompt": "A B"},
        "get": {"name": "nothing"},
        "save": own | {"folder": "saved"},
        "score": own | {"prompt": "A B"},
        "quantize": own,
        "trace": own | {"prompt": "A B", "target": "C"},
        "train": {"recipe": {}},
        "verify": own | {"quick": True},
    }  # fmt: skip


RESULTS = ("Conversation", "Report", "Run", "Tokenizer", "Trace")
"""Classes that users are given by functions, and name in annotations."""


def find_functions() -> Iterator[str]:
    """Yields the names of the public functions, classes and methods that take arguments."""
    for name in pellucid.__all__:
        thing = getattr(pellucid, name)
        if name not in ("ops", *RESULTS) and not name.endswith("Error"):
            yield name
            if inspect.isclass(thing):
                methods = [one for one in dir(thing) if one[0] != "_" and has_parameters(thing, one)]
                yield from (f"{name}.{one}" for one in methods if one not in ALSO_FUNCTIONS)


def has_parameters(kind: type, name: str) -> bool:
    function = getattr(kind, name)
    return (
        callable(function)
        and not inspect.isclass(function)
        and len(inspect.signature(function).parameters)
        > (not isinstance(inspect.getattr_static(kind, name), classmethod))
    )


def call(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Calls it, and takes what it gives lazily."""
    kinds = {name: one.kind for name, one in inspect.signature(function).parameters.items()}
    places = [name for name in given if kinds.get(name) in IN_PLACE]
    found = function(*map(given.get, places), **{name: given[name] for name in given if name not in places})
    if isinstance(found, contextlib.AbstractContextManager) and not isinstance(found, Engine):
        with found:
            pass
    elif isinstance(found, AsyncIterator):
        asyncio.run(exhaust(found))
    elif isinstance(found, Iterator):
        list(found)


async def exhaust(found: AsyncIterator[Any]) -> None:
    async for _ in found:
        pass


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", list(find_functions()))
def test_a_wrong_type_of_any_argument_is_an_error_of_ours(
    name: str, objects: Any, arguments: dict[str, dict[str, Any]], monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "CHECKS", catalogue.CHECKS[:1])
    owner, _, method = name.rpartition(".")
    usual = arguments.get(name, {})
    function = getattr(objects[owner](), method) if owner else getattr(pellucid, name)
    parameters = inspect.signature(function).parameters
    own = (one for one, about in parameters.items() if about.kind != about.VAR_KEYWORD)
    names = dict.fromkeys((*usual, *own))
    lengths = [0]
    for parameter in names:
        usually = parameters[parameter].default if parameter in parameters else None
        for wrong in (one for one in WRONG if one is not usually):
            if callable(wrong) and parameter == GIVES_A_TAPE:
                continue
            if owner:
                function = getattr(objects[owner](), method)
            try:
                call(function, {**usual, parameter: wrong})
            except PellucidError as error:
                lengths.append(len(str(error)))
            except Exception as error:
                raise AssertionError(f"{name}({parameter}={wrong!r}) raises {error!r}") from error
    assert max(lengths) < 2000


@pytest.mark.parametrize(
    ("parameter", "call"),
    [
        ("pretrained", lambda model: Model("abcd")),
        ("pretrained", lambda model: Model(model)),
        ("weights", lambda model: Model.from_pretrained("abcd", weights=np.ones(2))),
        ("id", lambda model: model.label("A")),
        ("name", lambda model: model.modified_weight("embed")),
        ("config", lambda model: model.replace(config="abcd")),
        ("weights", lambda model: model.replace(weights=5)),
        ("weights", lambda model: model.replace(weights={**model.weights, "embed.weight": np.ones(3)})),
        ("tokenizer", lambda model: model.replace(tokenizer="gpt2")),
        ("an argument of replace", lambda model: model.replace(wieghts={})),
        ("tokens", lambda model: model.decode_stream("A", 5)),
        ("eos_ids", lambda model: model.decode_stream("A", [1], eos_ids="A")),
        ("model", lambda model: Engine(model)),
        ("stop_ids", lambda model: Engine(model.module, stop_ids=5)),
        ("prompt", lambda model: Request("A")),
        ("sampling", lambda model: Request((1,), {"temperature": 1})),
        ("size", lambda model: pellucid.explore(model.trace("A"), size="5MB")),
        ("model", lambda model: pellucid.explain(["abcd"], "A")),
        ("edits", lambda model: Tape(edits=[("x", 1)])),
        ("a cell of edits['x']", lambda model: Tape(edits={"x": {"0": 1.0}})),
        ("dtype", lambda model: Tape(int)),
        ("value", lambda model: Tape().parameter("x", "1")),
        ("op", lambda model: Tape()("x", "add")),
    ],
)
def test_a_wrong_argument_is_named(parameter: str, call: Any) -> None:
    with pytest.raises(UsageError, match=rf"^{re.escape(parameter)} must be "):
        call(pellucid.load("abcd"))


@pytest.mark.parametrize("ids", [[-1], [0, 4], [10**15]])
def test_an_id_that_the_model_does_not_have_is_refused_with_those_that_it_has(ids: list[int]) -> None:
    model = pellucid.load("abcd")
    for call in (model.encode, model.score, lambda given: model.trace([0], target=given)):
        with pytest.raises(TokenError, match="from 0 to 3"):
            call(ids)


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "unigram"])
def test_a_tokenizer_refuses_a_wrong_type_of_its_first_argument(kind: str, tmp_path: Path) -> None:
    tokenizer = train(kind, ["A B A B", "A C"] * 9, 300)
    for method in ("encode", "encode_array", "encode_spans", "offsets", "id_of", "save"):
        for wrong in (one for one in WRONG if not isinstance(one, str)):
            with pytest.raises(UsageError, match=r"^(text|token|folder) must be "):
                getattr(tokenizer, method)(wrong)
    for method in ("token", "visible", "bytes_of", "decode"):
        for wrong in (None, 1.5, "x", b"x", ["a"], [[1]], {"a": 1}, object(), np.array([1.5, 2.0]), [-1]):
            with pytest.raises(TokenError, match=r"^(id|ids) must be |^no token has the id"):
                getattr(tokenizer, method)(wrong)
    assert tokenizer.decode(np.array([0, 1])) == tokenizer.decode([0, 1])
