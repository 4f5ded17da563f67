"""The server of a model: OpenAI's endpoints, and the engine in a process of its own."""

from pellucid.server import check_extra

check_extra(
    ("starlette", "uvicorn", "prometheus_client")
)  # before a module of the folder imports one of them
