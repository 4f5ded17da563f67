"""The number of threads follows what was measured."""

from pellucid.engine.cpu.threads import MOST_BETWEEN, PROBE_AFTER, ThreadChoice


def run(choice: ThreadChoice, steps: int, seconds: dict[int, float]) -> list[int]:
    """Returns the threads of each of some steps, on a machine that takes these seconds."""
    taken = []
    for _ in range(steps):
        threads = choice.choose(2)
        choice.add(threads, seconds[threads])
        taken.append(threads)
    return taken


def test_a_quiet_machine_gets_all_threads_and_a_crowded_one_a_single_thread() -> None:
    choice = ThreadChoice()
    assert run(choice, 200, {2: 0.5, 1: 1.0}).count(2) > 190
    crowded = run(choice, 2000, {2: 20.0, 1: 1.0})
    assert crowded[10:].count(2) < 12, "trials that change nothing become rare"
    quiet = run(choice, 4 * MOST_BETWEEN, {2: 0.5, 1: 1.0})
    assert quiet[-PROBE_AFTER:].count(2) >= PROBE_AFTER - 1


def test_one_interruption_does_not_decide() -> None:
    choice = ThreadChoice()
    run(choice, 10, {2: 0.5, 1: 1.0})
    choice.add(2, 50.0)
    assert choice.choose(2) == 2


def test_one_core_has_no_choice() -> None:
    choice = ThreadChoice()
    assert {choice.choose(1) for _ in range(100)} == {1}
