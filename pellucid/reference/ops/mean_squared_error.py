"""Mean squared error, for the lessons before networks."""

from typing import Any

from pellucid.reference.op import Gradients, Ref, each, everything, operation


@operation(everything, "{y} = Σ ({0} - {1})² / {samples}")
def mean_squared_error(predicted: Any, wanted: Any, samples: int) -> Any:
    """L = (1/N) Σ over N samples of the squared distance."""
    if predicted.shape != wanted.shape:
        raise ValueError("predictions and wanted values differ in shape")
    return ((predicted - wanted) ** 2).sum() / samples


@mean_squared_error.gradient
def _(y: Ref, dy: Ref, predicted: Ref, wanted: Ref, samples: int) -> Gradients:
    yield predicted, mean_squared_error_back(predicted, wanted, dy, samples=samples)
    yield wanted, mean_squared_error_back(wanted, predicted, dy, samples=samples)


@operation(each, "{y} = 2 · ({0} - {1}) · {2} / {samples}")
def mean_squared_error_back(predicted: Any, wanted: Any, dy: Any, samples: int) -> Any:
    """dŷ = (2/N) (ŷ − y) dL."""
    return 2 * (predicted - wanted) * dy / samples
