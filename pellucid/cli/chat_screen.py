"""A chat on a terminal or in a pipe: it reads messages and commands, and prints the answers.

At a terminal answers are wrapped between words, and a faint line after each says how long it took. In a pipe
each line is a message, the answers alone go to standard output, and a mistake ends the chat.
"""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

from pellucid.base.errors import PellucidError
from pellucid.base.formatting import escape_controls, format_count, pluralize
from pellucid.cli.chat_commands import ChatInput, complete_input, read_input, run_command
from pellucid.cli.console import Console
from pellucid.cli.line_editor import LineEditor
from pellucid.cli.terminal import exact_output, note, print_error
from pellucid.evaluation.quantization.quantize import describe_cost
from pellucid.formats.pretrained import parameter_count

if TYPE_CHECKING:
    from pellucid.generation.conversation import ChatAnswer, Conversation

PROMPT, MORE = "> ", ". "
ORIGINS = {"model": "the model's own", "given": "options"}
WIDEST = 100
"""Columns of a line of text, at most."""
_PARTS = re.compile(r"\n|[^\S\n]+|\S+")


class ChatScreen:
    """A conversation that is being held."""

    def __init__(self, conversation: "Conversation") -> None:
        self.conversation = conversation
        self.file: Path | None = None
        """The file that the conversation was saved as or loaded from, which /save may replace."""
        self.console = Console(highlight=False)
        self.editor = LineEditor(complete_input)
        self.is_interactive = self.editor.is_terminal and self.console.is_terminal

    def greet(self, origins: Mapping[str, str]) -> None:
        """Says at a terminal which model talks, and with which settings."""
        model = self.conversation.model
        if not self.conversation.has_template:
            self.note(
                f"{model.name} has no chat template, so it was hardly trained on conversations: messages are "
                'written as plain text, "User: …" and "Assistant: …".'
            )
        if not self.is_interactive:
            return
        count = parameter_count(model.config.parameters())
        self.show(
            f"{model.name}: {format_count(count)} parameters, {model.dtype} on {model.device}, context "
            f"{model.config.context_length:,} tokens"
        )
        if cost := describe_cost(model):
            self.note(cost)
        names = self.conversation.sampling.given
        by = list(dict.fromkeys(ORIGINS.get(word, word) for word in map(origins.get, names) if word))
        settings, source = self.describe_settings(names), f" ({', '.join(by)})" if by else ""
        self.note(f"{settings or 'greedy decoding'}{source}")
        self.note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves.")
        self._end_turn()

    # ---- the loop

    def run(self) -> None:
        """Holds the conversation until the input ends."""
        if not self.is_interactive:
            while self._take_turn():
                pass
            return
        interrupts = 0
        while interrupts < 2:
            try:
                if not self._take_turn():
                    return
                interrupts = 0
            except KeyboardInterrupt:
                interrupts += 1
                self.console.print()
                if interrupts == 1:
                    self.note("Ctrl-C again, or Ctrl-D, leaves.")
            except PellucidError as error:
                interrupts = 0
                self._print_error(error)

    def _take_turn(self) -> bool:
        """Reads one input and does it; False where the input ends."""
        try:
            given = self._read()
            if given.command is not None:
                run_command(self, given.command, given.text)
                self._end_turn()
            elif given.text.strip():
                self.show_answer(self.conversation.ask(given.text))
                self._end_turn()
        except EOFError:
            if self.is_interactive:
                self.console.print()
            return False
        return True

    def _read(self) -> ChatInput:
        lines: list[str] = []

        def read_line(goes_on: bool) -> str:
            lines.append(self.editor.read(self._prompt(MORE if goes_on else PROMPT)))
            return lines[-1]

        given = read_input(read_line)
        self.editor.remember("\n".join(lines))
        return given

    def edit_text(self, text: str) -> str:
        """Returns a text as the person changes it, at a terminal."""
        if not self.is_interactive:
            return text
        edited = self.editor.read(self._prompt(PROMPT), text)
        self.editor.remember(edited)
        return edited

    def _prompt(self, text: str) -> str:
        """Returns the prompt in bold; \\1 and \\2 tell readline what takes no column."""
        if self.console.no_color or self.console.is_dumb_terminal or not self.is_interactive:
            return text
        return f"\1\x1b[1m\2{text}\1\x1b[0m\2"

    # ---- answers

    def show_answer(self, answer: "ChatAnswer") -> None:
        """Prints an answer as it comes. Ctrl-C stops it, and what has come is kept."""
        self._note_dropped(answer)
        wrap, out = WordWrap(self.width) if self.is_interactive else None, exact_output()
        with _silent_keys() if self.is_interactive else contextlib.nullcontext():
            try:
                for piece in answer:
                    text = wrap.feed(escape_controls(piece)) if wrap else piece
                    print(text, end="", file=out, flush=True)
            except KeyboardInterrupt:
                answer.stop()
                if not self.is_interactive:
                    raise
            finally:
                print(wrap.end() if wrap else "", file=out, flush=True)
        self._note_end(answer)

    def _note_dropped(self, answer: "ChatAnswer") -> None:
        if answer.dropped:
            context, count = self.conversation.model.config.context_length, answer.left_out
            which = "exchange no longer fits" if count == 1 else f"{count} exchanges no longer fit"
            self.note(
                f"The first {which} the context of {context:,} tokens, and the model no longer sees it."
            )

    def _note_end(self, answer: "ChatAnswer") -> None:
        context = self.conversation.model.config.context_length
        if answer.finish == "length":
            more = f"/set max_new_tokens={2 * self.conversation.answer_tokens} allows more"
            is_full = answer.context_used >= context
            why = f"the context of {context:,} tokens is full" if is_full else more
            self.note(f"The answer ends after {pluralize(answer.n_tokens, 'token')}: {why}.")
        if self.is_interactive:
            self.note(" · ".join(self._describe(answer)))

    def _describe(self, answer: "ChatAnswer") -> Iterable[str]:
        """Yields the figures of an answer."""
        if answer.finish == "cancelled":
            yield "stopped" if answer.text else "stopped before the first token: the message is not kept"
        speed = answer.tokens_per_second
        first = answer.seconds_to_first
        yield (
            pluralize(answer.n_tokens, "token")
            + ("" if speed is None else f", {speed:.1f}/s")
            + ("" if first is None else f", first after {first:.2f} s")
        )
        yield f"context {answer.context_used:,} of {self.conversation.model.config.context_length:,} tokens"
        if answer.request.sampling.temperature:
            yield f"seed {answer.seed}"

    # ---- what commands print

    @property
    def width(self) -> int:
        return min(self.console.width, WIDEST)

    def _end_turn(self) -> None:
        """Parts a turn from the next by an empty line."""
        if self.is_interactive:
            self.console.print()

    def note(self, text: str) -> None:
        """Prints a remark of the program: faint at a terminal, else on standard error."""
        if self.is_interactive:
            self._print_wrapped(text, "dim")
        else:
            note(text)

    def show(self, text: str) -> None:
        """Prints what a command was asked for."""
        if self.is_interactive:
            self._print_wrapped(text)
        else:
            print(text)

    def _print_wrapped(self, text: str, style: str = "") -> None:
        wrap = WordWrap(self.width)
        whole = wrap.feed(escape_controls(text)) + wrap.end()
        self.console.print(whole, style=style, markup=False, soft_wrap=True)

    def _print_error(self, error: PellucidError) -> None:
        print_error(str(error), prefix="")
        self._end_turn()

    def show_table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Prints names and what they mean; a meaning that does not fit its line goes on below itself."""
        left = max(len(name) for name, _ in rows)
        for name, meaning in rows:
            room = max(self.width - left - 4, 20)
            wrap = WordWrap(room) if self.is_interactive else WordWrap(10**6)
            lines = (wrap.feed(escape_controls(meaning)) + wrap.end()).split("\n")
            for i, line in enumerate(lines):
                self._print_line(f"  {name if i == 0 else '':<{left}}  {line}".rstrip())

    def _print_line(self, line: str) -> None:
        if self.is_interactive:
            self.console.print(line, markup=False, soft_wrap=True)
        else:
            print(line)

    def show_settings(self) -> None:
        """Prints every setting with its value and meaning."""
        from pellucid.generation.conversation import ANSWER_TOKENS
        from pellucid.generation.settings.table import SETTINGS

        values = self._format_settings(SETTINGS)
        meanings = {name: setting.meaning for name, setting in SETTINGS.items()}
        meanings["max_new_tokens"] = f"End an answer after this number of tokens; none: {ANSWER_TOKENS}."
        self.show_table([(f"{name}={values[name]}", meaning) for name, meaning in meanings.items()])

    def describe_settings(self, names: Iterable[str]) -> str:
        """Returns settings as /set takes them."""
        return " ".join(f"{name}={value}" for name, value in self._format_settings(names).items())

    def _format_settings(self, names: Iterable[str]) -> dict[str, str]:
        import json

        from pellucid.generation.settings.table import SETTINGS

        sampling, found = self.conversation.sampling, dict[str, str]()
        for name in names:
            value = SETTINGS[name].to_plain(getattr(sampling, name))
            found[name] = "none" if value is None else json.dumps(value, ensure_ascii=False)
        return found

    def load(self, path: Path) -> None:
        """Goes on with a saved conversation."""
        saved = self.conversation.load(path)
        self.file = path.resolve()
        own = self.conversation.model.short_name
        by = f", which was held with {saved.model}" if saved.model != own else ""
        self.note(f"Loaded {pluralize(len(saved.exchanges), 'exchange')} from {path}{by}.")

    def show_ledger(self, number: int | None) -> None:
        """Prints how the tokens of the last answer were chosen, or one of them."""
        from pellucid.generation.ledger.text import format_ledger, format_token

        ledger = self.conversation.why()
        if number is None:
            self._print_lines(format_ledger(ledger, self.width))
            self.note("/why N shows how token N was chosen, /explain N where its probability came from.")
        else:
            self._print_lines(format_token(ledger, number, width=self.width))
            self.note(f"/explain {number} shows where its probability came from, inside the model.")

    def explain(self, number: int, at: str | None) -> None:
        """Prints where the probability of a token came from, or another number behind it."""
        from pellucid.explanation.trace import More

        found = self.conversation.explain(number, at, say=self.note)
        here, shell = f"/explain {number} ", f"pellucid explain LEDGER.json --token {number} "
        more = More(
            here, f"depth: /ledger LEDGER.json, {shell}--depth 5", f"{shell}--lines 0", f"{shell}--top "
        )
        self._print_lines(found.found.to_lines(more=more))
        if at is None and self.conversation.last is not None:
            last = len(self.conversation.last.request.prompt) + number - 2
            self.note(f"Into the model: {here}logits[t={last},v={found.token['id']}]")

    def _print_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._print_line(line)


@contextlib.contextmanager
def _silent_keys() -> Iterator[None]:
    """In this block keys are not shown as they are pressed: ^C would stand in the middle of an answer, and a
    message that is typed ahead is shown by the prompt that reads it."""
    try:
        import termios
    except ImportError:  # not on this system
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    changed = [*before[:3], before[3] & ~(termios.ECHO | termios.ECHOCTL), *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class WordWrap:
    """Breaks a text that comes in pieces into lines of at most `width` columns.

    A word is held back until it ends, one token as a rule, so that it can be put on the next line; a word
    that is longer than a line is broken. Spaces at the beginning of a line stay, as code needs them.
    """

    def __init__(self, width: int) -> None:
        self.width = max(width, 1)
        self._column = 0
        self._space = self._word = ""

    def feed(self, piece: str) -> str:
        """Returns what can be written now."""
        return "".join(self._take(part) for part in _PARTS.findall(piece.replace("\t", "    ")))

    def end(self) -> str:
        """Returns what was held back, without spaces at the end."""
        text = self._put_word()
        self._space = ""
        return text

    def _take(self, part: str) -> str:
        if not part.isspace():
            self._word += part
            return self._put_long_word()
        text = self._put_word()
        if part == "\n":
            self._column, self._space = 0, ""
            return f"{text}\n"
        self._space += part
        return text

    def _put_word(self) -> str:
        """Returns the space and the word that were held back, or a line break and the word."""
        word, self._word = self._word, ""
        if not word:
            return ""
        space, self._space = self._space, ""
        if self._column + cell_len(space + word) > self.width:
            space, self._column = "\n" * bool(self._column), 0
        self._column += cell_len(word) + cell_len(space.strip("\n"))
        return f"{space}{word}"

    def _put_long_word(self) -> str:
        """Returns the whole lines of a word that no line holds."""
        text = ""
        while cell_len(self._word) > self.width:
            cut = 1
            while cell_len(self._word[: cut + 1]) <= self.width:
                cut += 1
            rest, self._word = self._word[cut:], self._word[:cut]
            text += f"{self._put_word()}\n"
            self._column, self._word = 0, rest
        return text
