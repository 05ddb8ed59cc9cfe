"""Which reasons of waiting jobs are written in a round: what is news, never too many, each in its turn."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.adapters.reasons import AGAIN_S, LONGEST, SAME_KIND_S, ReasonsWritten, Waiting, bounded
from wattsched.adapters.rounds import Reason

REASONS = st.builds(Reason, st.sampled_from(["a", "b", "c"]), st.sampled_from(["room", "power"]))
ROUNDS = st.lists(
    st.tuples(st.floats(1.0, 900.0), st.dictionaries(st.integers(0, 8), REASONS)), min_size=1, max_size=12
)


def waiting(why: dict[int, Reason]) -> list[Waiting]:
    return [Waiting(key, key, key, reason) for key, reason in why.items()]


@settings(max_examples=examples(100))
@given(st.integers(0, 4), ROUNDS)
def test_what_is_written_is_news_and_never_too_much(
    most: int, rounds: list[tuple[float, dict[int, Reason]]]
) -> None:
    """By hand: what was written last of a job, and when, for as long as the job waits."""
    written, known, now_s = ReasonsWritten(most, 1.0), dict[int, tuple[Reason, float]](), 0.0
    for pause_s, why in rounds:
        now_s += pause_s
        known = {key: last for key, last in known.items() if key in why}
        due = [job.key for job in written.due(waiting(why), now_s)]
        assert len(due) <= most
        for key in due:
            if key in known:
                last, then_s = known[key]
                assert last != why[key]
                assert now_s - then_s >= (SAME_KIND_S if last.kind == why[key].kind else AGAIN_S)
            written.note(Waiting(key, key, key, why[key]), why[key], now_s)
            known[key] = why[key], now_s
        # Whoever has none goes before whoever has one.
        without = [key for key in why if key not in known]
        assert not without or len(due) == most


def test_of_1000_jobs_each_has_its_turn_though_all_reasons_change() -> None:
    written, seen, counts = ReasonsWritten(20, 1.0), set[object](), list[int]()
    for number in range(60):
        why = {job: Reason(f"{number}", "power" if number % 2 else "room") for job in range(1_000)}
        due = written.due(waiting(why), 30.0 * number)
        for job in due:
            written.note(job, why[job.name], 30.0 * number)
        seen |= {job.key for job in due}
        counts.append(len(due))
    assert (len(seen), max(counts)) == (1_000, 20)


@given(st.text(max_size=600), st.text(max_size=300))
def test_a_reason_is_one_line_that_is_not_too_long(reason: str, more: str) -> None:
    text = bounded(Reason(reason, "room"), more)
    assert text.kind == "room"
    assert text.isprintable()
    assert len(text) <= LONGEST
