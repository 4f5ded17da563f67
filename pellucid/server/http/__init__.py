"""The HTTP shell: what every server of the package asks of a request, and how it listens."""
