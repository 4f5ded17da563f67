"""A stand-in for the engine's process, which runs no model: `python -m tests.server.stand_in_engine JSON`.
`python -m tests.server.stand_in_engine MODEL PORT` serves with it, as the command does with the engine.

It obeys `generation/answers/lines.py`. Every choice of a request gets the text " 0", " 1", " 2" …, one piece
in each step, up to `max_new_tokens`. What it should do wrong stands in the name of the model's folder:
"fails" does not load, "ends" ends while it loads, "loads" loads for ever, "garbles" writes another line, and
with "slow" a step takes 50 ms instead of 1.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.generation.answers.lines import End, EngineReady, Piece, StepLine, format_step

MODULE = "tests.server.stand_in_engine"


class StandIn:
    def __init__(self, slots: int, seconds: float) -> None:
        self.slots, self.seconds = slots, seconds
        self.commands = queue.SimpleQueue[dict[str, Any]]()
        self.waiting: list[dict[str, Any]] = []
        self.running: list[tuple[dict[str, Any], int]] = []
        self.lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def beat(self) -> None:
        while True:
            time.sleep(0.1)
            self.write(format_step(StepLine([], [], [], len(self.running), len(self.waiting))))

    def read(self) -> None:
        for line in sys.stdin.buffer:
            self.commands.put(json.loads(line))
        os._exit(0)

    def run(self) -> None:
        for target in (self.beat, self.read):
            threading.Thread(target=target, daemon=True).start()
        while True:
            ends = []
            while not self.commands.empty() or not (self.running or self.waiting or ends):
                command = self.commands.get()
                if command["do"] == "cancel":
                    self.running = [(made, n) for made, n in self.running if made["id"] != command["id"]]
                    self.waiting = [made for made in self.waiting if made["id"] != command["id"]]
                    ends.append(End(command["id"]))
                elif command["do"] == "embed":
                    ends.append(End(command["id"], embedding=[float(id) for id in command["prompt"]]))
                else:
                    self.waiting.append(command)
            time.sleep(self.seconds)
            self.step(ends)

    def step(self, ends: list[End]) -> None:
        free = self.slots - len(self.running)
        self.running += [(command, 0) for command in self.waiting[:free]]
        self.waiting = self.waiting[free:]
        pieces, left = list[Piece](), list[tuple[dict[str, Any], int]]()
        for command, n in self.running:
            sampling = command["request"]["sampling"]
            is_last = n + 1 >= sampling.get("max_new_tokens", 16)
            for choice in range(sampling.get("n", 1)):
                pieces.append(Piece(command["id"], choice, f" {n}", 1, None, "length" if is_last else None))
            if is_last:
                ends.append(End(command["id"], seed=sampling.get("seed", 0)))
            else:
                left.append((command, n + 1))
        self.running = left
        self.write(format_step(StepLine(pieces, [], ends, len(left), len(self.waiting))))


def main(argument: str) -> None:
    options = json.loads(argument)
    model, slots = Path(options["model"]).name, options["slots"] or 4
    stand_in = StandIn(slots, 0.05 if "slow" in model else 0.001)
    if "ends" in model:
        sys.exit(7)
    if "loads" in model:
        sys.stdin.buffer.read()
        return
    if "fails" in model:
        stand_in.write(b'{"failed": {"message": "the weights are damaged.", "kind": "FileError"}}\n')
        return
    ready = EngineReady(slots, 512, 4096)
    stand_in.write(json.dumps({"ready": ready._asdict()}).encode() + b"\n")
    if "garbles" in model:
        stand_in.write(b'["not a line of the engine"]\n')
    stand_in.run()


def serve(model: str, port: str) -> None:
    from pellucid.base.errors import PellucidError
    from pellucid.server.openai import serve as serving
    from pellucid.server.openai.worker.client import EngineClient

    serving.EngineClient = partial(EngineClient, module=MODULE)  # type: ignore[misc, assignment]
    try:
        ended_by = serving.serve(
            model,
            host="127.0.0.1",
            port=int(port),
            key=None,
            name="stand-in",
            allow_hosts=(),
            slots=4,
            queue=2,
            dtype="float32",
            device="cpu",
            cache=None,
            say=partial(print, flush=True),
        )
    except PellucidError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    assert "torch" not in sys.modules
    sys.exit(0 if ended_by == signal.SIGTERM else 130)


if __name__ == "__main__":
    (serve if len(sys.argv) > 2 else main)(*sys.argv[1:])
