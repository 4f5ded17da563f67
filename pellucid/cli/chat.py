"""`pellucid chat`: talk with a model."""

from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.options import DecodingOptions, ModelName, with_options
from pellucid.cli.sampling_options import GivenSampling


@with_options
def chat(
    model: ModelName,
    system: Annotated[
        str | None, typer.Option(help="The system message, which stays in the context.", metavar="TEXT")
    ] = None,
    load: Annotated[
        Path | None,
        typer.Option(
            help="Go on with a conversation that /save wrote, with its settings; options change single ones.",
            metavar="FILE",
        ),
    ] = None,
    *,
    engine: DecodingOptions,
    sampling: GivenSampling,
) -> None:
    """Talk with a model, by its own chat template; /help lists the commands.

    The oldest exchanges leave the context where the conversation no longer fits it.
    In a pipe each line is a message, and the answers alone are printed.
    """
    from pellucid.cli.chat_screen import ChatScreen
    from pellucid.generation.conversation import Conversation, resolve_chat_sampling
    from pellucid.generation.settings.token_names import resolve_tokens

    found = engine.open(model)
    given = resolve_tokens(found.pretrained.tokenizer, sampling.settings)
    settings, origins = resolve_chat_sampling(found, sampling.preset, given)
    with Conversation(found, None, settings, cache=engine.cache) as conversation:
        screen = ChatScreen(conversation)
        if load is not None:
            screen.load(load)
            conversation.replace_sampling(conversation.sampling.merge(given))
            origins = dict.fromkeys(conversation.sampling.given, f"from {load}")
        if system is not None:
            conversation.system = system
        found.module  # noqa: B018  # read now, so that the first answer does not wait for it
        screen.greet(origins)
        screen.run()
