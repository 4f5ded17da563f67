"""The explorer: questions about the numbers of a trace, and the page that lays out the answers.

A question is a file in `questions/`, and nothing else lists them.
"""

from types import ModuleType

from pellucid.base import registry


def list_questions() -> list[str]:
    """Returns the names of all questions."""
    return registry.kinds(f"{__name__}.questions")


def find_question(name: str) -> ModuleType:
    """Returns the file of a question."""
    return registry.module_of(f"{__name__}.questions", name, "a question")
