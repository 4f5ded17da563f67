"""`python -m tests.server.serve_stand_in MODEL PORT` serves as the command does, with a stand-in engine."""

import signal
import sys
from functools import partial

from pellucid.base.errors import PellucidError
from pellucid.server.openai import serve as serving
from pellucid.server.openai.worker.client import EngineClient
from tests.server.stand_in_engine import MODULE


def main(model: str, port: str) -> None:
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
    main(*sys.argv[1:])
