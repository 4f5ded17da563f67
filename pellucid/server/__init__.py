"""The HTTP shell: what each server of the package asks of a request, and how it listens."""
