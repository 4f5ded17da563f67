"""`pellucid serve`: a model over HTTP, for every program that can ask OpenAI's."""

from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.options import DecodingOptions, ModelName, with_options
from pellucid.cli.signals import exit_by_signal
from pellucid.cli.terminal import say


@with_options
def serve(
    model: ModelName,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; one that other machines reach needs a key."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0: any free one.", min=0, max=65_535)
    ] = 8000,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the key that clients must send, 16 to 256 characters, which only you can read. "
            "Without it, the key is PELLUCID_API_KEY of the environment, or there is none.",
            metavar="FILE",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="The name by which clients ask for the model; if omitted, that of MODEL."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A further name by which clients address the server, such as a proxy's; repeatable.",
            metavar="HOST",
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            help="Texts that run at once; if omitted, 32, or as many as half of the free memory holds.",
            min=1,
            max=4096,
        ),
    ] = None,
    queue: Annotated[
        int,
        typer.Option(help="Prompts that may wait for a slot; further ones are refused.", min=0, max=65_536),
    ] = 256,
    *,
    engine: DecodingOptions,
) -> None:
    """Serve a model over HTTP with OpenAI's API: completions, chat, embeddings, tokens.

    Programs that take a base URL of that API work unchanged. This machine alone can ask, unless --host says
    otherwise, and no web page can. Ctrl-C or SIGTERM lets running answers end first; a second one does not.
    Exit code 0 after SIGTERM, and 3 where the engine ended twice within an hour: a service manager can start
    the server again.
    """
    from pellucid.server.http.key_file import find_key
    from pellucid.server.openai.serve import serve
    from pellucid.server.openai.served_model import check_model_name, make_model_name

    ended_by = serve(
        model,
        host=host,
        port=port,
        key=find_key(api_key_file),
        key_file=api_key_file,
        name=make_model_name(model) if name is None else check_model_name(name),
        allow_hosts=allow_host or [],
        slots=slots,
        queue=queue,
        **vars(engine),
        say=say,
    )
    exit_by_signal(ended_by)
