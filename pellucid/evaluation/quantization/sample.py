"""The text that a bill is measured on: eight short texts of different domains, or what the user gives."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from pellucid.base.errors import FileError, TokenError, UsageError, show
from pellucid.evaluation.documents import Documents, EncodedDocument, Limit, encode_text, read_documents
from pellucid.formats.pretrained import Pretrained

BUILT_IN = "the built-in sample"
GENERATED = ("stories", "task")
"""What a source that is not a file begins with, before its colon."""
TOKEN_BYTES = 64
"""Bytes of text that are read for each token that is asked for: more than most tokens have."""
SPAN = 32
"""Targets of a span, at most. Intervals are by bootstrap over spans, since neighbors are alike."""

TEXTS = {
    "story": (
        "The harbour lay quiet when Anna pushed the boat off the stones. Her brother had promised to "
        "come, but the lamp in his window was still dark. She rowed alone along the wall, counting the "
        "strokes, and at the end of it she heard a voice call her name from the water. It was the old "
        'fisherman, holding on to a plank. "You took your time," he said, and laughed, and then he could '
        "not stop coughing. She gave him her coat, turned the boat, and said nothing until they were "
        "both ashore. Later, beside the stove, he explained what had happened to the others, and why "
        "the village must never know."
    ),
    "history": (
        "The printing press with movable type was developed in Mainz around 1450. Paper had reached "
        "Europe from China by way of the Arab world some centuries earlier, and without it the invention "
        "would have been of little use, because parchment was far too expensive. Within fifty years "
        "about 250 towns had presses, and the price of a book had fallen to a fraction of what a copyist "
        "charged. Scholars could now quote the same page of the same edition, errors could be listed and "
        "corrected, and maps and tables no longer became worse with every copy. Governments soon began "
        "to license printers, and the church published an index of forbidden books, which made some of "
        "them famous."
    ),
    "dialogue": (
        "User: My phone says that the storage is full, but I deleted most of my photos yesterday.\n"
        "Assistant: Deleted photos usually stay in a folder for thirty days before they are removed. "
        'Open the album "Recently Deleted" and empty it.\n'
        "User: I did that, and nothing changed.\n"
        "Assistant: Then something else takes the space. Open Settings, choose Storage, and look at the "
        "list: it is sorted by size. Which entry is the largest?\n"
        'User: It says "Messages", with 41 GB.\n'
        "Assistant: Those are probably videos that people sent you. You can delete them there without "
        "losing the text of the conversations. Would you like to know how?\n"
    ),
    "code": (
        "import csv\n"
        "from collections import defaultdict\n"
        "\n"
        "\n"
        "def total_by_month(path):\n"
        '    """Returns the sum of the amounts for each month of a CSV file."""\n'
        "    totals = defaultdict(float)\n"
        '    with open(path, newline="") as file:\n'
        "        for row in csv.DictReader(file):\n"
        '            if not row["amount"]:\n'
        "                continue\n"
        '            month = row["date"][:7]\n'
        '            totals[month] += float(row["amount"])\n'
        "    return dict(sorted(totals.items()))\n"
        "\n"
        "\n"
        'if __name__ == "__main__":\n'
        '    for month, total in total_by_month("expenses.csv").items():\n'
        '        print(f"{month}: {total:.2f}")\n'
    ),
    "mathematics": (
        "Claim. The sum of the first n odd numbers is n squared.\n"
        "Proof. For n = 1 the sum is 1, which is 1 squared. Suppose that 1 + 3 + ... + (2n - 1) = n^2. "
        "The next odd number is 2n + 1, so the sum of the first n + 1 odd numbers is n^2 + 2n + 1 = (n + "
        "1)^2. By induction the claim holds for every n.\n"
        "Example. 1 + 3 + 5 + 7 + 9 = 25 = 5^2. A train that travels 1 metre in the first second, 3 "
        "metres in the second one and 5 metres in the third has therefore travelled 9 metres after three "
        "seconds and 100 metres after ten."
    ),
    "instructions": (
        "Bread without kneading\n"
        "\n"
        "1. Stir 400 g of flour, 8 g of salt and a quarter of a teaspoon of dried yeast in a large bowl.\n"
        "2. Add 300 ml of cold water and stir until no dry flour is left. The dough will be sticky.\n"
        "3. Cover the bowl and let it stand at room temperature for 12 to 18 hours.\n"
        "4. Fold the dough once on a floured board, cover it with a cloth, and wait for another hour.\n"
        "5. Heat the oven to 230 degrees with a heavy pot inside.\n"
        "6. Put the dough into the pot and bake it for 30 minutes with the lid on, then for 15 minutes "
        "without it, until the crust is dark brown.\n"
    ),
    "data": (
        '{"orders": [\n'
        '  {"id": 1042, "customer": "M. Okafor", "country": "NG", "items": 3, "total": 59.70, "paid": '
        "true},\n"
        '  {"id": 1043, "customer": "L. Brandt", "country": "DE", "items": 1, "total": 12.50, "paid": '
        "false},\n"
        '  {"id": 1044, "customer": "S. Ito", "country": "JP", "items": 7, "total": 210.00, "paid": '
        "true},\n"
        '  {"id": 1045, "customer": "P. Nunes", "country": "BR", "items": 2, "total": 34.20, "paid": '
        "true}\n"
        '], "currency": "EUR", "count": 4}\n'
    ),
    "German": (
        "Am Morgen lag Schnee auf den Dächern, und die Straße war still. Der Bäcker hatte schon um vier "
        "Uhr Licht gemacht. Als die Kinder zur Schule gingen, blieben sie vor seinem Fenster stehen, "
        "denn es roch nach frischem Brot. Er gab jedem ein kleines Stück und sagte, sie sollten sich "
        "beeilen, sonst kämen sie zu spät."
    ),
}


@dataclass(frozen=True)
class TargetSpan:
    """Consecutive counted targets of a document: the `first` to before the `last` one, from 0."""

    document: EncodedDocument
    first: int
    last: int


@dataclass(frozen=True)
class BillSample:
    """Documents to measure on, and where they are from."""

    source: str
    documents: tuple[EncodedDocument, ...]
    omitted: tuple[str, ...] = ()
    """Texts of the built-in sample that the tokenizer cannot encode."""

    @property
    def n_targets(self) -> int:
        return sum(map(count_targets, self.documents))

    def spans(self) -> list[TargetSpan]:
        """Returns the documents as spans of nearly equal length, at most `SPAN` targets each."""
        found = list[TargetSpan]()
        for document in self.documents:
            size = count_targets(document)
            borders = np.linspace(0, size, -(-size // SPAN) + 1).round().astype(int).tolist()
            found += [TargetSpan(document, *ends) for ends in pairwise(borders)]
        return found

    def begin(self, most: int) -> "BillSample":
        """Returns the beginnings of the documents, `most` targets in all."""
        return replace(self, documents=_share(self.documents, most))


def count_targets(document: EncodedDocument) -> int:
    """Returns the number of targets that count."""
    return int(document.is_counted.sum())


def read_sample(model: Pretrained, on: str | None, tokens: int) -> BillSample:
    """Returns at most `tokens` targets of the built-in texts, or of what `on` is: a file, a folder,
    stories:LEVEL, or a text itself."""
    if on is None:
        return _encode_built_in(model, tokens)
    is_source = _names_source(on)
    if is_source:
        found: Iterable[EncodedDocument] = read_documents(
            on, model, limit=Limit(n_bytes=TOKEN_BYTES * tokens)
        )
    else:
        found = [encode_text(Documents((), model), on, "text")] if on else []
    documents = _take(found, tokens)
    if not documents:
        raise UsageError(
            f"{on if is_source else 'the text'} has no token to predict: a bill needs a text of at least two "
            "tokens."
        )
    return BillSample(on if is_source else "the given text", documents)


def _names_source(on: str) -> bool:
    """Returns whether `on` names what can be read, and is not a text itself; raises for a file that is not
    there."""
    if on == "-" or on.partition(":")[0] in GENERATED:
        return True
    try:
        if on and Path(on).exists():
            return True
    except (OSError, ValueError):  # longer than a name may be, or with a zero byte
        return False
    if on and not any(map(str.isspace, on)) and ("/" in on or Path(on).suffix):
        raise FileError(f"{show(on)} does not exist; a text of one word is given with a space before it.")
    return False


def _encode_built_in(model: Pretrained, tokens: int) -> BillSample:
    about, found = Documents((), model), list[EncodedDocument]()
    for name, text in TEXTS.items():
        with contextlib.suppress(TokenError):
            document = encode_text(about, text, name)
            if about.tokenizer.unknown_id not in document.ids.tolist():
                found.append(document)
    if not found:
        raise UsageError(
            f"the tokenizer of {model.name} encodes none of the built-in texts: give a text of its kind, "
            "on=… (--on TEXT_OR_FILE)."
        )
    omitted = TEXTS.keys() - {document.name for document in found}
    return BillSample(BUILT_IN, _share(found, tokens), tuple(name for name in TEXTS if name in omitted))


def _share(documents: Sequence[EncodedDocument], most: int) -> tuple[EncodedDocument, ...]:
    """Returns the beginnings of documents, `most` targets in all; what a short one leaves is shared by the
    longer ones."""
    documents = documents[:most]
    sizes, left, cuts = list(map(count_targets, documents)), most, dict[int, int]()
    for done, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        cuts[i] = min(sizes[i], max(left // (len(sizes) - done), 1))
        left -= cuts[i]
    return tuple(_cut(document, cuts[i]) for i, document in enumerate(documents))


def _take(documents: Iterable[EncodedDocument], most: int) -> tuple[EncodedDocument, ...]:
    """Returns the first documents that have targets, `most` targets in all."""
    found = list[EncodedDocument]()
    for document in documents:
        if document.is_counted.any():
            found.append(_cut(document, most))
            most -= count_targets(found[-1])
        if most <= 0:
            break
    return tuple(found)


def _cut(document: EncodedDocument, most: int) -> EncodedDocument:
    """Returns a document up to its target number `most` that counts."""
    last = int(np.flatnonzero(document.is_counted)[:most][-1])
    return replace(
        document, ids=document.ids[: last + 2], is_counted=document.is_counted[: last + 1], n_bytes=None
    )
