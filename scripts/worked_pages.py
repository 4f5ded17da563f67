"""Write the worked pages of docs/inside/ from runs of SmolLM2; with --check, only say whether they hold.

Every number on the pages is computed here, in float64, so that it has the same digits on every machine. What
a sentence claims of the numbers is asserted before it is written. Needs `pellucid get smollm2`, and takes a
few minutes.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from pellucid.interpretability.runner import EngineRunner
from pellucid.model import Model
from pellucid.report.diagram import Grid
from pellucid.report.figure import make_figure
from pellucid.report.svg import write_svg

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "inside"
ANIMAL = "The animal didn't cross the street because it was too"
QUESTION = '. In this sentence, the word "it" refers to the'
VICTIM = ". The victim is the"
PATCHED = ("blocks.*.resid_pre", "blocks.*.attn.head_out")
Files = dict[str, bytes]


class Prompted:
    """A model on one prompt: labels, probabilities and attention patterns [L H T S]."""

    def __init__(self, model: Model, text: str) -> None:
        runner = EngineRunner(model.module)
        self.text, self.ids, self.model = text, model.encode(text), model
        seen = runner.run(self.ids, ["probs", "logits", "blocks.*.attn.pattern"])
        self.labels = [model.tokenizer.visible(id) for id in self.ids]
        self.probs, self.logits = seen["probs"][0], seen["logits"][0]
        patterns = (seen[f"blocks.{layer}.attn.pattern"][0] for layer in range(model.config.n_layer))
        self.pattern = np.stack(list(patterns))

    def show(self, id: int) -> str:
        return self.model.tokenizer.visible(id)

    @property
    def answer(self) -> str:
        """The most likely next token."""
        return self.show(int(self.probs[-1].argmax()))

    def at(self, label: str) -> int:
        """Returns the last position of a token."""
        return len(self.labels) - 1 - self.labels[::-1].index(label)

    def probability(self, token: str) -> tuple[float, int]:
        """Returns p of a next token at the last position, and its rank from 1."""
        row, id = self.probs[-1], self.model.encode(token)[0]
        return float(row[id]), 1 + int((row > row[id]).sum())

    def difference(self, a: str, b: str) -> float:
        """Returns logit(a) − logit(b) at the last position."""
        one, other = self.model.encode(a)[0], self.model.encode(b)[0]
        return float(self.logits[-1, one] - self.logits[-1, other])

    def heads(self, query: str, key: str, count: int = 5) -> list[tuple[str, float]]:
        """Returns the heads that give the largest share of a query to a key."""
        shares = self.pattern[:, :, self.at(query), self.at(key)]
        order = np.argsort(-shares, axis=None, kind="stable")[:count]
        return [(f"{i // shares.shape[1]}.{i % shares.shape[1]}", float(shares.flat[i])) for i in order]


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def head_table(queries: Sequence[tuple[str, Prompted, str, str]]) -> str:
    columns = [title for title, *_ in queries]
    found = [prompted.heads(query, key) for _, prompted, query, key in queries]
    rows = [[f"{head} ({share:.2f})" for head, share in row] for row in zip(*found, strict=True)]
    return table(columns, rows)


def draw_pattern(prompted: Prompted, head: str, title: str) -> bytes:
    layer, number = map(int, head.split("."))
    values = prompted.pattern[layer, number].copy()
    values[np.triu_indices(len(values), 1)] = np.nan
    grid = Grid(title, values, prompted.labels, prompted.labels, "query", "key", "share", decimals=2)
    return write_svg(make_figure(title, grid))


def largest(effects: dict[str, float], part: str, count: int = 5) -> list[list[str]]:
    """Returns the heads, or other parts, of the largest effect."""
    chosen = {name: value for name, value in effects.items() if part in name}
    order = sorted(chosen, key=lambda name: -abs(chosen[name]))[:count]
    return [[f"`{name}`", f"{chosen[name]:.2f}"] for name in order]


def patch(model: Model, clean: str, corrupted: str, answer: str, wrong: str) -> tuple[dict[str, Any], bytes]:
    """Returns the data of the view, and the map of the residual stream."""
    settings = {"corrupted": corrupted, "answer": answer, "wrong": wrong, "names": PATCHED}
    view = pellucid.look(model, clean, show="patching", **settings)["patching"]
    stream = next(plot for plot in view.plots if "residual stream" in plot.title)
    return dict(view.data), write_svg(make_figure(stream.title, stream))


def fill(template: str, values: dict[str, str]) -> bytes:
    """Returns the page with every {{name}} replaced; each value is used and each name has one."""
    assert set(re.findall(r"\{\{(\w+)\}\}", template)) == values.keys()
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template).encode()


def quote(text: str) -> str:
    """Returns a text as it stands between double quotes in a shell."""
    return text.replace('"', '\\"')


def show_tokens(labels: Sequence[str]) -> str:
    return " ".join(f"`{label}`" for label in labels)


ANIMAL_PAGE = """# "The animal didn't cross the street because it was too tired"

*Every number on this page comes from a run of SmolLM2-135M in float64 (`scripts/worked_pages.py`).*

The sentence is the standard picture of attention: a line from *it* to *animal*. Which head draws that
line, does the model use it, and does *tired* matter? Each question is one command.

The model reads {{count}} tokens: {{tokens}}.

## What does the model expect?

After *it was too* the most likely tokens are {{likely}}. The word of the sentence, `·tired`, has p =
{{p_tired}} and rank {{r_tired}}; `·wide` has p = {{p_wide}} and rank {{r_wide}}.

```
pellucid look smollm2 "{{start}}" --show lens
```

## Where does *it* look?

The five heads (layer.head) that give the largest share of the row of `·it` to each noun:

{{heads}}

![The attention pattern of head {{head}}](animal-pattern.svg)

There are heads for both nouns, and *tired* does not choose between them: the rows of `·it` in *… too
tired* and in *… too wide* are equal bit for bit (largest difference {{same}}). The causal mask hides the
last word from `·it`. In a decoder the line from *it* cannot depend on a word that comes later; in an
encoder it can.

```
pellucid look smollm2 "{{start}} tired" --show attention --head {{head}}
```

## Then where is the reference decided?

Later, where the model needs it. Ask: *{{question}}* …

{{margins}}

It answers *animal* both times: a model of this size does not solve the pair. But the word moves the
answer the right way, by a logit difference of {{moved}}. Activation patching shows how that part travels:
the prompt with *wide* is run, and one value at a time is replaced by its value in the prompt with
*tired*.

![Recovered fraction by layer and position](animal-patching.svg)

The largest effects of single heads (1 would be the whole difference):

{{effects}}

```
pellucid look smollm2 "{{quoted}}" --show patching \\
    --corrupted "{{other}}" --answer " animal" --wrong " street"
```

## Which component says *animal*?

The logit difference {{logit}} is an exact sum over all heads, MLPs and the embedding (the parts add up to
{{sum}}):

{{parts}}

```
pellucid look smollm2 "{{quoted}}" --show attribution \\
    --token " animal" --against " street" --trace animal.json
pellucid explain animal.json --at attribution.sum
```

The last command takes the sum apart to the last product of the model's own weights.
"""


def animal_page(model: Model) -> Files:
    start = Prompted(model, ANIMAL)
    tired, wide = (Prompted(model, f"{ANIMAL} {word}") for word in ("tired", "wide"))
    asked = {word: Prompted(model, f"{ANIMAL} {word}{QUESTION}") for word in ("tired", "wide")}
    margin = {word: prompted.difference(" animal", " street") for word, prompted in asked.items()}
    it = tired.at("·it")
    same = float(np.abs(tired.pattern[:, :, it] - wide.pattern[:, :, it]).max())
    assert same == 0, "the row of `it` must not depend on a later token"
    assert margin["tired"] > margin["wide"] > 0, "the page says that `tired` favors the animal more"
    assert all(prompted.answer == "·animal" for prompted in asked.values())
    top = np.argsort(-start.probs[-1], kind="stable")[:5]
    (p_tired, r_tired), (p_wide, r_wide) = start.probability(" tired"), start.probability(" wide")
    effects, stream = patch(model, asked["tired"].text, asked["wide"].text, " animal", " street")
    settings = {"token": " animal", "against": " street"}
    found = pellucid.look(model, asked["tired"].text, show="attribution", **settings)["attribution"].data
    parts = sorted(found["contributions"], key=lambda part: -abs(part["value"]))[:6]
    head = tired.heads("·it", "·animal", 1)[0][0]
    columns = ("last word", "logit(`·animal`) − logit(`·street`)", "most likely")
    values = {
        "start": ANIMAL,
        "question": asked["tired"].text,
        "quoted": quote(asked["tired"].text),
        "other": quote(asked["wide"].text),
        "count": str(len(tired.labels)),
        "tokens": show_tokens(tired.labels),
        "likely": ", ".join(f"`{start.show(int(id))}` {start.probs[-1, id]:.3f}" for id in top),
        "p_tired": f"{p_tired:.4f}",
        "r_tired": str(r_tired),
        "p_wide": f"{p_wide:.4f}",
        "r_wide": str(r_wide),
        "heads": head_table([(f"`·it` → `{noun}`", tired, "·it", noun) for noun in ("·animal", "·street")]),
        "head": head,
        "same": f"{same:g}",
        "margins": table(columns, [(f"*{w}*", f"{margin[w]:.2f}", f"`{asked[w].answer}`") for w in asked]),
        "moved": f"{margin['tired'] - margin['wide']:.2f}",
        "effects": table(("head", "recovered"), largest(effects["effects"], "head_out")),
        "logit": f"{found['logit']:.4f}",
        "sum": f"{found['sum']:.4f}",
        "parts": table(("component", "adds"), [(name_part(part), f"{part['value']:+.3f}") for part in parts]),
    }
    return {
        "animal.md": fill(ANIMAL_PAGE, values),
        "animal-pattern.svg": draw_pattern(tired, head, f"attention pattern of head {head}"),
        "animal-patching.svg": stream,
    }


def name_part(part: dict[str, Any]) -> str:
    return f"`{part['name']}`" + ("" if part["head"] is None else f" head {part['head']}")


DOG_PAGE = """# "Dog bites man" is not "Man bites dog"

*Every number on this page comes from a run of SmolLM2-135M in float64 (`scripts/worked_pages.py`).*

Attention itself does not see order: a permutation of the keys and values leaves its sum as it was. What
makes the two headlines different comes before attention and around it: tokens, positions and the causal
mask.

## The tokens already differ

{{headlines}}

`Dog` at the beginning and `·dog` after a space are different rows of the embedding, so these two
headlines are not even the same bag of tokens. *{{one}}* and *{{two}}* are: the same five tokens in
another order. What follows is about those two.

## Order changes what the model believes

{{totals}}

After `The`, one sentence is e^{{ratio}} times as likely as the other. Ask who was bitten, *{{question}}* …

{{margins}}

The model names the right victim both times, from the order alone.

```
printf '{{one}}\\n{{two}}\\n' > bites.txt
pellucid evaluate smollm2 bites.txt --split line
pellucid generate smollm2 "{{question}}" --max-new-tokens 1 --ledger
```

## Who reads the order?

The verb looks at its subject. The heads with the largest share from `·bites`:

{{heads}}

![The attention pattern of head {{head}}](dog-pattern.svg)

Rotary positions put the order into the scores of queries and keys; the causal mask does too, since only
the object sees the verb and both nouns. The states of the last token in the two sentences, which end in
different nouns, have these cosines after some of the layers:

{{cosines}}

## Where is the victim stored?

Activation patching: the prompt in which the man bites is run, and one value at a time is replaced by its
value in the prompt in which the dog bites.

![Recovered fraction by layer and position](dog-patching.svg)

The heads of the largest effect:

{{effects}}

```
pellucid look smollm2 "{{question}}" --show patching \\
    --corrupted "{{other}}" --answer " man" --wrong " dog"
```
"""


def dog_page(model: Model) -> Files:
    short = [Prompted(model, text) for text in ("Dog bites man", "Man bites dog")]
    pair = [Prompted(model, text) for text in ("The dog bites the man", "The man bites the dog")]
    totals = [model.score(each.text).total for each in pair]  # a text has no token before its first
    asked = [Prompted(model, each.text + VICTIM) for each in pair]
    margins = [each.difference(" man", " dog") for each in asked]
    assert [each.answer for each in asked] == ["·man", "·dog"], "the page says that it names the victim"
    assert sorted(pair[0].ids) == sorted(pair[1].ids) and sorted(short[0].ids) != sorted(short[1].ids)
    assert totals[0] > totals[1], "the page says that a dog that bites is more likely"
    runner = EngineRunner(model.module)
    names = [f"blocks.{layer}.resid_post" for layer in range(model.config.n_layer)]
    states = [runner.run(each.ids, names) for each in pair]
    last = [(states[0][name][0, -1], states[1][name][0, -1]) for name in names]
    cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in last]
    effects, stream = patch(model, asked[0].text, asked[1].text, " man", " dog")
    head = pair[0].heads("·bites", "·dog", 1)[0][0]
    layers = [*range(0, model.config.n_layer, 5), model.config.n_layer - 1]
    rows = zip(pair, margins, asked, strict=True)
    subjects = [
        (f"`·bites` → `{subject}`", each, "·bites", subject)
        for each, subject in zip(pair, ("·dog", "·man"), strict=True)
    ]
    values = {
        "one": pair[0].text,
        "two": pair[1].text,
        "question": asked[0].text,
        "other": asked[1].text,
        "headlines": table(("text", "tokens"), [(each.text, show_tokens(each.labels)) for each in short]),
        "totals": table(
            ("text", "ln p(text after `The`)"),
            [(each.text, f"{total:.2f}") for each, total in zip(pair, totals, strict=True)],
        ),
        "ratio": f"{totals[0] - totals[1]:.2f}",
        "margins": table(
            ("text", "logit(`·man`) − logit(`·dog`)", "most likely"),
            [(each.text, f"{margin:.2f}", f"`{question.answer}`") for each, margin, question in rows],
        ),
        "heads": head_table(subjects),
        "head": head,
        "cosines": table(("layer", "cosine"), [(layer, f"{cosines[layer]:.3f}") for layer in layers]),
        "effects": table(("head", "recovered"), largest(effects["effects"], "head_out")),
    }
    return {
        "dog-bites-man.md": fill(DOG_PAGE, values),
        "dog-pattern.svg": draw_pattern(pair[0], head, f"attention pattern of head {head}"),
        "dog-patching.svg": stream,
    }


def main() -> None:
    model = pellucid.load(os.environ.get("PELLUCID_SMOLLM2", "smollm2"), dtype="float64")
    files = animal_page(model) | dog_page(model)
    if "--check" in sys.argv:
        stale = [name for name, data in files.items() if (FOLDER / name).read_bytes() != data]
        sys.exit(f"{', '.join(stale)}: not what the code generates." if stale else 0)
    FOLDER.mkdir(exist_ok=True)
    for name, data in files.items():
        (FOLDER / name).write_bytes(data)
        print(f"{FOLDER.name}/{name}")


if __name__ == "__main__":
    main()
