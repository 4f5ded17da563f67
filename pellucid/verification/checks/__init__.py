"""The catalogue behind `pellucid verify`: each check measures one claim and returns a verdict."""
