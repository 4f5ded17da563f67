"""What is counted, and that no text of a client becomes a label."""

from prometheus_client.parser import text_string_to_metric_families

from pellucid.server.openai.metrics import EngineLoad, Metrics

PATHS = frozenset({"/health", "/v1/completions"})


def read_samples(metrics: Metrics, load: EngineLoad | None = None) -> dict[tuple[str, ...], float]:
    """Returns the value of every sample by its name and its labels' values."""
    text = metrics.write(load or EngineLoad()).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_whole_answer_is_counted_with_its_tokens_and_times() -> None:
    metrics = Metrics()
    meter = metrics.begin_answer()
    meter.mark_first_token()
    meter.mark_first_token()
    meter.end("complete", prompt_tokens=5, completion_tokens=16)
    meter.end("cancelled", prompt_tokens=5, completion_tokens=16)
    found = read_samples(metrics)
    assert found["pellucid_prompt_tokens_total",] == 5
    assert found["pellucid_completion_tokens_total",] == 16
    assert found["pellucid_time_to_first_token_seconds_count",] == 1
    assert found["pellucid_time_per_token_seconds_count",] == 1
    assert found["pellucid_cancellations_total",] == found["pellucid_errors_total",] == 0


def test_the_time_per_token_is_the_mean_after_the_first() -> None:
    metrics = Metrics()
    meter = metrics.begin_answer()
    meter.mark_first_token()
    assert meter._first is not None
    meter._first -= 10.0
    meter.end("complete", completion_tokens=101)
    assert 0.1 <= read_samples(metrics)["pellucid_time_per_token_seconds_sum",] < 0.2


def test_cancelled_and_failed_answers_are_counted_apart_and_their_tokens_too() -> None:
    metrics = Metrics()
    metrics.begin_answer().end("cancelled", 2, 3)
    metrics.begin_answer().end("failed", 2, 3)
    found = read_samples(metrics)
    assert found["pellucid_cancellations_total",] == found["pellucid_errors_total",] == 1
    assert found["pellucid_completion_tokens_total",] == 6
    assert found["pellucid_time_per_token_seconds_count",] == 0


def test_paths_and_statuses_become_few_labels() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.count_request(f"/{number}\n{{}}", 404, PATHS)
        metrics.count_request("/health", 200 + number % 4, PATHS)
    metrics.count_request("/v1/completions", None, PATHS)
    found = read_samples(metrics).items()
    assert {labels[1:]: value for labels, value in found if labels[0] == "pellucid_requests_total"} == {
        ("other", "4xx"): 1000,
        ("/health", "2xx"): 1000,
        ("/v1/completions", "left"): 1,
    }


def test_the_engine_is_as_full_as_it_is_when_asked() -> None:
    found = read_samples(Metrics(), EngineLoad(slots=32, slots_used=7, queue=3, restarts=1))
    assert found["pellucid_slots",] == 32
    assert found["pellucid_slots_used",] == 7
    assert found["pellucid_queue_length",] == 3
    assert found["pellucid_engine_restarts_total",] == 1
    assert [value for (name, *_), value in found.items() if name == "pellucid_build_info"] == [1]
