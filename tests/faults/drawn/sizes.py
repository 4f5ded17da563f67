"""What a number may become: the next integer, or a multiple."""

FACTORS = (0.5, 0.9, 1.01, 1.1, 2.0)


def change_integer(value: int) -> tuple[str, ...]:
    return str(value + 1), str(value - 1)


def change_float(value: float) -> tuple[str, ...]:
    """Returns the multiples that are other numbers; of zero, small ones."""
    found = [repr(value * factor) for factor in FACTORS] if value else ["0.01", "1.0"]
    return tuple(text for text in dict.fromkeys(found) if float(text) != value)
