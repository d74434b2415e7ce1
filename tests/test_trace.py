import math

import pytest

from toolkit.trace import RowRecord, StepRecord, Trace, metrics
from toolkit.trace.labels import short, visible


def row(parent, tip, outcome, emitted, token=None) -> RowRecord:
    n = len(parent)
    return RowRecord(
        position=4,
        token=tuple(token or range(n)),
        parent=tuple(parent),
        tip=tip,
        bonus=emitted[-1],
        emitted=tuple(emitted),
        outcome=tuple(outcome),
        p=(0.0,) * n,
        q=(1.0,) * n,
        accept=(0.0,) * n,
        u=(0.5,) * n,
    )


CHAIN = row([-1, 0, 1, 2], 2, [0, 1, 1, 2], [1, 2, 9])  # two of three accepted, then a correction
WHOLE = row([-1, 0], 1, [0, 1], [1, 9])  # all accepted, then a bonus
FORK = row([-1, 0, 0, 2], 0, [0, 2, 2, 0], [7])  # both children rejected
PLAIN = row([-1], 0, [0], [5])
STEPS = [
    StepRecord(0, (CHAIN, WHOLE), "A", "R", 4, {"draft": 1.0, "target": 10.0}),
    StepRecord(1, (FORK, None), "A", "R", 4, {"draft": 3.0, "target": 20.0}),
    StepRecord(2, (PLAIN, None), "A", "R", 1, {"draft": 8.0, "target": 60.0}),
]


def test_paths_depths_and_origins():
    assert CHAIN.path == (0, 1, 2) and CHAIN.depth == (0, 1, 2, 3) and FORK.depth == (0, 1, 1, 2)
    assert CHAIN.origins == ("accepted", "accepted", "correction")
    assert WHOLE.origins == ("accepted", "bonus")
    assert FORK.origins == ("correction",) and PLAIN.origins == ("bonus",)
    cut = row([-1, 0, 1, 2], 2, [0, 1, 1, 2], [1])  # the request ended after its first accepted token
    assert cut.origins == ("accepted",)


def test_metrics_by_hand():
    assert metrics.acceptance_length(STEPS) == (3 + 2 + 1 + 1) / 4
    assert metrics.acceptance_length(STEPS, row=1) == 2
    assert metrics.accepted_per_step(STEPS) == (2 + 1 + 0 + 0) / 4
    assert metrics.draft_token_acceptance(STEPS) == 3 / (3 + 1 + 3)
    assert metrics.origins(STEPS) == {"accepted": 3, "correction": 2, "bonus": 2}
    assert metrics.phase_ms(STEPS) == {"draft": 3.0, "target": 20.0}
    found = {d.depth: (d.reached, d.accepted) for d in metrics.acceptance_by_depth(STEPS)}
    # depth 1 was drafted by CHAIN, WHOLE and FORK; depth 2 under an accepted path only by CHAIN; so was depth 3
    assert found == {1: (3, 2), 2: (1, 1), 3: (1, 0)}


def test_metrics_of_nothing_are_nan():
    assert math.isnan(metrics.acceptance_length([])) and math.isnan(metrics.draft_token_acceptance(STEPS[2:]))
    assert metrics.acceptance_by_depth([]) == []


def test_a_trace_gives_the_tokens_of_a_row():
    trace = Trace(steps=list(STEPS))
    assert trace.tokens(0) == (1, 2, 9, 7, 5) and trace.tokens(1) == (1, 9)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" a", "␣a"),
        ("\n\t", "↵⇥"),
        ("", "∅"),
        ("\u202ex", "\\u202ex"),
        ("\x07", "\\u0007"),
        ("🙂", "🙂"),
        ("<b>", "<b>"),
    ],
)
def test_tokens_are_shown_without_invisible_or_acting_characters(text, shown):
    assert visible(text) == shown


def test_short_cuts_with_an_ellipsis():
    assert short("abcdefghijkl", 5) == "abcd…" and short("abc", 5) == "abc"
