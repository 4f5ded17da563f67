"""The engine in a process of its own, and the lines that it exchanges with the HTTP process."""
