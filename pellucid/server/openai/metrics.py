"""Counters and measures of the server, as Prometheus reads it.

    meter = served.metrics.begin_answer()
    meter.mark_first_token()
    meter.end("complete", prompt_tokens=5, completion_tokens=16)

Nothing is measured for each token. No text of a client becomes a label: the labels are the server's own
paths and classes of status.
"""

import time
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pellucid import __version__

Outcome = Literal["complete", "cancelled", "failed"]

FIRST_TOKEN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKEN_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
OTHER_PATH = "other"
"""The label of every path that is not one of the server's own."""


class EngineLoad(NamedTuple):
    """How full the engine is."""

    slots: int = 0
    """Texts that can run at once; 0 until the model is loaded."""
    slots_used: int = 0
    queue: int = 0
    """Requests that wait for a slot."""
    restarts: int = 0
    """How often its process was started again."""
    most_requests: int = 0
    """Prompts that may run or wait at once; 0 until the model is loaded."""


class Metrics:
    """The counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._engine = EngineCollector()
        registry.register(self._engine)
        build = Gauge("pellucid_build_info", "The version that runs.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.requests = Counter(
            "pellucid_requests",
            "HTTP requests by path and class of status; 'left' where the client left before an answer.",
            ["endpoint", "status"],
            registry=registry,
        )
        self.prompt_tokens = Counter("pellucid_prompt_tokens", "Tokens of prompts.", registry=registry)
        self.completion_tokens = Counter(
            "pellucid_completion_tokens", "Tokens that were generated.", registry=registry
        )
        self.first_token_seconds = Histogram(
            "pellucid_time_to_first_token_seconds",
            "From the request to its first token, waiting for a slot included.",
            buckets=FIRST_TOKEN_SECONDS,
            registry=registry,
        )
        self.token_seconds = Histogram(
            "pellucid_time_per_token_seconds",
            "Mean time between the tokens of an answer, one observation for each answer.",
            buckets=TOKEN_SECONDS,
            registry=registry,
        )
        self.cancellations = Counter(
            "pellucid_cancellations", "Answers whose client left before the end.", registry=registry
        )
        self.errors = Counter("pellucid_errors", "Answers that the server could not end.", registry=registry)

    def count_request(self, path: str, status: int | None, known_paths: Collection[str]) -> None:
        """Counts a request by its path, where that is one of the server's, and its class of status."""
        label = path if path in known_paths else OTHER_PATH
        self.requests.labels(label, "left" if status is None else f"{status // 100}xx").inc()

    def begin_answer(self) -> "AnswerMeter":
        """Returns the meter of an answer that begins now."""
        return AnswerMeter(self)

    def write(self, load: EngineLoad) -> bytes:
        """Returns every metric in Prometheus' text format, the engine's at the given load."""
        self._engine.load = load
        return generate_latest(self.registry)


class AnswerMeter:
    """The time and the tokens of one answer, with all of its prompts and choices."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._began = metrics, time.perf_counter()
        self._first: float | None = None
        self._is_over = False

    def mark_first_token(self) -> None:
        """Says that a token came; all calls but the first do nothing."""
        if self._first is None:
            self._first = time.perf_counter()
            self._metrics.first_token_seconds.observe(self._first - self._began)

    def end(self, outcome: Outcome, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """Counts the answer, once; `completion_tokens` are those that were generated until now."""
        if self._is_over:
            return
        self._is_over, metrics = True, self._metrics
        metrics.prompt_tokens.inc(prompt_tokens)
        metrics.completion_tokens.inc(completion_tokens)
        if self._first is not None and completion_tokens > 1:
            seconds = time.perf_counter() - self._first
            metrics.token_seconds.observe(seconds / (completion_tokens - 1))
        if outcome == "cancelled":
            metrics.cancellations.inc()
        elif outcome == "failed":
            metrics.errors.inc()


class EngineCollector(Collector):
    """The engine's own numbers, as they are when they are asked for."""

    def __init__(self) -> None:
        self.load = EngineLoad()

    def collect(self) -> Iterator[Metric]:
        load = self.load
        yield GaugeMetricFamily("pellucid_slots", "Texts that can run at once.", load.slots)
        yield GaugeMetricFamily("pellucid_slots_used", "Texts that run.", load.slots_used)
        yield GaugeMetricFamily("pellucid_queue_length", "Requests that wait for a slot.", load.queue)
        yield CounterMetricFamily(
            "pellucid_engine_restarts", "How often the engine's process was started again.", load.restarts
        )
