"""The catalogue behind `pellucid verify`: a check is a claim, an error budget, a measurement, a verdict."""
