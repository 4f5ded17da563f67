"""The server of a model: OpenAI's endpoints, and the engine in a process of its own."""
