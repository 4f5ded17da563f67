"""One file per question: `answer(session, …)` returns plain data, its signature bounds the parameters.

A question that changes something, or computes for long, has `METHOD = "POST"`.
"""
