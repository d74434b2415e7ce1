"""Charts: their numbers against numbers worked out by hand, and that they keep up with a run that grows and is rewound."""

from __future__ import annotations

import random
import re
from statistics import median
from xml.dom.minidom import parseString

import pytest

from toolkit.trace import Load, RowRecord, StepRecord, measures, metrics
from toolkit.widgets.charts import CHARTS, DEFAULT, Charts, figure
from toolkit.widgets.charts.chart import NOTHING, Given, read
from toolkit.widgets.charts.series import POINTS, TAIL, Series, Sorted, windows
from toolkit.widgets.follow import Follower
from toolkit.widgets.training import TrainingView
from toolkit.widgets.whatif_picture import bars


def row(parent, tip, outcome=None, emitted=(9,), confidence=(), q=(), top=(), position=4) -> RowRecord:
    n = len(parent)
    none = (0.0,) * n
    outcome = outcome or (0,) * n
    return RowRecord(
        *(position, tuple(range(n)), tuple(parent), tip, 9, tuple(emitted), tuple(outcome), none),
        *(tuple(q) or (1.0,) * n, none, none, tuple(confidence), (), top),
    )


def step(i: int, entry: RowRecord | None, load: Load | None = None, **ms: float) -> StepRecord:
    return StepRecord(i, (entry,), "d", "r", len(entry.token) if entry else 1, ms, load=load)


CHAIN = row([-1, 0, 1, 2], 2, [0, 1, 1, 2], [1, 2, 9], confidence=[1, 0.95, 0.85, 0.75])  # two of three, a correction
FORK = row([-1, 0, 0], 2, [0, 2, 1], [2, 9], confidence=[1, 0.95, 0.15])  # the second sibling, a bonus
PLAIN = row([-1], 0)
STEPS = [
    step(0, CHAIN, draft=5.0, target=20.0, verify=1.0),
    step(1, FORK, draft=3.0, target=20.0, verify=1.0),
    step(2, PLAIN, draft=1.0, target=12.0, verify=1.0),
    step(3, PLAIN, draft=1.0, target=14.0, verify=1.0),
]


def chart(name: str, steps=STEPS, given: Given = NOTHING):
    return read(CHARTS[name](0, given), steps)


def test_tokens_per_step():
    drawn = chart("tokens").arrays()
    assert drawn["tokens"]["x"] == [0, 1, 2, 3] and drawn["tokens"]["y"] == [3, 2, 1, 1]
    assert drawn["acceptance length"]["y"] == [1.75, 1.75]
    said = chart("tokens").caption()
    assert "Acceptance length 1.75 with bonus" in said and "Without it 0.75 accepted guesses per step" in said


def test_acceptance_by_depth_names_both_rates_and_the_interval():
    drawn = chart("depth").arrays()
    assert drawn["if reached"]["x"] == [1, 2, 3] and drawn["if reached"]["y"] == [1.0, 1.0, 0.0]
    assert drawn["of all steps"]["y"] == [0.5, 0.25, 0.0], "two, one and none of four steps"
    low, high = measures.Rate(2, 2).interval()
    assert drawn["low"]["y"][0] == round(low, 4) and drawn["95% Wilson interval"]["y"][0] == round(high, 4)
    assert drawn["if reached"]["error_y"]["arrayminus"][0] == pytest.approx(1 - low, abs=1e-4)
    assert "of 2 reached" in chart("depth").caption() and "n-alpha" in chart("depth").caption()


def test_acceptance_by_rank_in_draw_order_and_by_the_target():
    top = (((2, 0.6), (7, 0.3)),) * 3
    some = [
        step(0, row([-1, 0, 0], 2, emitted=[2, 9], top=top)),
        step(1, row([-1, 0, 1], 2, emitted=[1, 2, 9], top=top)),
    ]
    drawn = chart("rank", some).arrays()
    # siblings 1 and 2 of the first step, then two only children: firsts 2 of 3, seconds 1 of 1
    assert drawn["sibling, in draw order"]["y"] == [round(2 / 3, 4), 1.0]
    # the accepted tokens 2, 1 and 2: the target's first, one it did not record, its first again
    assert drawn["target's rank of the accepted"]["x"] == ["1", "2", "beyond 2"]
    assert drawn["target's rank of the accepted"]["y"] == [round(2 / 3, 4), 0.0, round(1 / 3, 4)]
    assert measures.target_ranks(some) == {0: 2, -1: 1} and "67% of 3" in chart("rank", some).caption()
    assert list(measures.drawn_rank_acceptance(some)) == [measures.Rate(3, 2), measures.Rate(1, 1)]
    assert "was not recorded" in chart("rank").caption()


def test_calibration_is_that_of_the_measures_and_falls_back_to_q_by_name():
    drawn = chart("calibration").arrays()["guesses"]
    # .95 twice, once right; .85 right; .75 wrong; .15 right
    assert drawn["x"] == [0.15, 0.75, 0.85, 0.95] and drawn["y"] == [1.0, 0.0, 1.0, 0.5] and drawn["text"][-1] == "2"
    by_hand = 100 * (0.85 + 0.75 + 0.15 + 2 * 0.45) / 5
    assert f"error {by_hand:.1f}%" in chart("calibration").caption()
    assert measures.calibration_error(STEPS) == pytest.approx(by_hand / 100)
    drawn_by_chance = [step(0, row([-1, 0], 1, q=[1, 0.5], emitted=[1, 9]))]
    assert "between probability q and" in chart("calibration", drawn_by_chance).caption()
    certain = [step(0, row([-1, 0], 1, emitted=[1, 9]))]
    assert chart("calibration", certain).arrays() == {} and "no probability" in chart("calibration", certain).caption()


def test_phases_are_stacked_against_a_measured_or_given_floor_and_no_other():
    drawn = chart("phases").arrays()
    assert drawn["target"]["y"] == [20, 20, 12, 14] and drawn["draft"]["y"] == [5, 3, 1, 1]
    assert drawn["floor"]["y"] == [13, 13] and not drawn["prefill"]["visible"]
    assert metrics.floor_ms(STEPS) == metrics.PhaseMs(13, 2)
    said = chart("phases").caption()
    assert (
        "A step takes 20.0 ms (median)" in said
        and "median target pass of 2 one-node steps" in said
        and "1.54 times" in said
    )
    given = chart("phases", given=Given(floor_ms=10.0))
    assert given.arrays()["floor"]["y"] == [10, 10] and "(as given)" in given.caption()
    never = chart("phases", STEPS[:2])
    assert not never.arrays()["floor"]["visible"] and "No floor" in never.caption()
    assert "not timed" not in said and "No step was timed" in chart("phases", [step(0, PLAIN)]).caption()


def test_throughput_against_plain_decoding():
    drawn = chart("throughput").arrays()
    assert drawn["tokens/s"]["y"] == [round(1e3 * n / ms, 2) for n, ms in ((3, 26), (5, 50), (6, 64), (7, 80))]
    assert drawn["plain decoding"]["y"][0] == round(1e3 / 14, 2), "one-node steps took 13 and 15 ms without drafting"
    assert "2 one-node steps" in chart("throughput").caption()
    given = chart("throughput", given=Given(baseline=50.0))
    assert given.arrays()["plain decoding"]["y"] == [50, 50] and "as given" in given.caption()
    prefilled = [step(0, CHAIN, prefill=1000.0, target=30.0)]
    assert chart("throughput", prefilled).arrays()["tokens/s"]["y"] == [100.0]
    long = [step(i, CHAIN if i < 16 else FORK, target=10.0) for i in range(32)]
    assert chart("throughput", long).arrays()["tokens/s"]["y"][-1] == 200.0, "the last 16 steps alone"


def test_pages_of_a_server_and_slots_of_a_session():
    loads = [Load(0, 0, 1, 4, pages=10, held=3, cached=2), Load(0, 0, 1, 4, pages=10, held=5, cached=1)]
    served = [step(i, PLAIN, load) for i, load in enumerate(loads)]
    drawn = chart("pages", served).arrays()
    assert [drawn[n]["y"] for n in ("held", "cached", "free")] == [[3, 5], [2, 1], [5, 4]]
    assert not drawn["tokens kept"]["visible"] and "5 are held" in chart("pages", served).caption()
    plain = chart("pages").arrays()
    assert plain["nodes in the pass"]["y"] == [4, 3, 1, 1] and plain["cache slots of the text"]["y"] == [4, 4, 4, 4]


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_to_show_is_said_in_a_sentence(name):
    nothing = chart(name, [])
    assert nothing.arrays() == {} and nothing.caption().endswith(".")
    assert chart(name, [step(0, None, target=1.0)]).arrays() == {}, "a row that had ended"


def grown(n: int, seed: int = 0) -> list[StepRecord]:
    chance = random.Random(seed)
    return [
        step(i, chance.choice([CHAIN, FORK, PLAIN]), draft=chance.random(), target=20 + chance.random(), verify=0.1)
        for i in range(n)
    ]


@pytest.mark.parametrize("name", CHARTS)
def test_taking_steps_back_is_never_having_read_them(name):
    steps = grown(POINTS + 200)
    went_on = read(CHARTS[name](0, NOTHING), steps)
    for old in reversed(steps[150:]):
        went_on.pop(old)
    other = grown(400, seed=1)
    read(went_on, other)
    straight = chart(name, [*steps[:150], *other])
    assert went_on.caption() == straight.caption()
    for trace, lists in straight.arrays().items():
        for key, values in lists.items():
            same = went_on.arrays()[trace][key]
            numbers = isinstance(values, list) and values and isinstance(values[0], int | float)
            assert same == (pytest.approx(values, abs=2e-3) if numbers else values), (trace, key)


@pytest.mark.parametrize("count", [1, POINTS, POINTS + 1, 2000, 20_000])
def test_long_runs_are_few_points_that_cover_every_step_once_and_end_exactly(count):
    found = windows(count)
    assert len(found) <= POINTS and [i for w in found for i in range(w.first, w.end)] == list(range(count))
    assert all(w.size == 1 for w in found[-min(count, TAIL) :])
    values = [i * i % 7 for i in range(count)]
    series = Series(1)
    for i, v in enumerate(values):
        series.push(i, v)
    assert all(series.mean(0, w) == pytest.approx(sum(values[w.first : w.end]) / w.size) for w in found)


def test_full_windows_stay_as_they_are_while_the_run_grows():
    """Else every point of the picture would move at every step."""
    before, after = windows(1500), windows(1501)
    assert before[: -TAIL - 1] == after[: len(before) - TAIL - 1]


def test_the_median_at_hand_is_the_median():
    chance, held, all_of_them = random.Random(0), Sorted(), []
    for _ in range(60):
        value = chance.randrange(10)
        held.add(value)
        all_of_them.append(value)
        if chance.random() < 0.3:
            held.remove(gone := chance.choice(all_of_them))
            all_of_them.remove(gone)
        assert not all_of_them or held.median() == median(all_of_them)


def test_a_follower_tells_what_is_gone_and_what_is_new():
    follower, steps = Follower(), grown(100)
    assert follower.news(steps[:60]) == ([], steps[:60]) and follower.news(steps[:60]) == ([], [])
    assert follower.news(steps) == ([], steps[60:])
    for kept in (99, 61, 1, 0):
        other = [*steps[:kept], *grown(30, seed=2)]
        gone, fresh = follower.news(other)
        assert len(gone) == 100 - kept and all(a is b for a, b in zip(gone, reversed(steps[kept:]), strict=True))
        assert len(fresh) == 30 and follower.had == other
        follower.news(steps)
    assert len(follower.news(steps[:10])[0]) == 90


def test_an_update_draws_the_new_steps_alone_and_a_hidden_chart_reads_none(monkeypatch):
    steps, charts = grown(500), Charts()
    seen: list[int] = []
    original = CHARTS["tokens"](0, NOTHING).__class__.push
    monkeypatch.setattr(
        CHARTS["tokens"](0, NOTHING).__class__, "push", lambda self, s: (seen.append(s.step), original(self, s))[1]
    )
    charts.update(steps[:400])
    charts.update(steps)
    assert seen == list(range(500))
    charts.shown = ["depth"]
    charts.update([*steps, *grown(1)])
    assert len(seen) == 500 and charts.shown == ("depth",)
    with pytest.raises(ValueError, match="'tokens' is not shown"):
        charts.figure("tokens")


def test_the_board_shows_what_is_chosen_and_what_there_is():
    charts = Charts()
    assert charts.shown == DEFAULT and all(len(p.children) == 1 for p in charts.widget.children[1].children), (
        "words alone"
    )
    charts.update(STEPS)
    assert list(charts.figure("tokens").data[0].y) == [3, 2, 1, 1]
    charts.widget.children[0].children[list(CHARTS).index("throughput")].value = True
    assert (
        charts.shown == ("tokens", "depth", "phases", "throughput") and len(charts.figure("throughput").data[0].y) == 4
    )
    charts.update(STEPS[:2])
    assert list(charts.figure("tokens").data[0].y) == [3, 2]
    charts.update([])
    assert all(len(p.children) == 1 for p in charts.widget.children[1].children)
    charts.update(STEPS)
    assert len(charts.widget.children[1].children[0].children) == 2
    with pytest.raises(ValueError, match="no chart 'speed': choose from tokens"):
        charts.shown = ["speed"]
    with pytest.raises(ValueError, match="floor_ms is 0"):
        Charts(floor_ms=0)


def test_all_figures_of_a_board_share_one_copy_of_plotly():
    """A copy is megabytes: one in each figure would be sent, read and kept as often as there are charts."""
    charts = Charts(("tokens",))
    charts.shown = ("tokens", "depth")
    charts.shown = tuple(CHARTS)  # also those that are chosen later
    states = [charts.figure(name).get_state() for name in CHARTS]
    assert len({s["_library"] for s in states}) == 1 and all(len(s["_esm"]) < 10_000 for s in states)
    library = charts.figure("tokens")._library
    assert "export" in library.code and len(library.code) > 1_000_000


def test_all_figures_of_a_kernel_share_it_and_a_closed_one_is_replaced():
    first, second = Charts(("tokens",)).figure("tokens"), TrainingView().widget
    assert first._library is second._library
    first._library.close()
    third = bars()
    assert third._library is not first._library and len(third._library.code) > 1_000_000


def test_another_row_is_drawn_anew():
    both = [StepRecord(s.step, (s.rows[0], FORK), "d", "r", 4, s.ms) for s in STEPS]
    charts = Charts()
    charts.update(both, 0)
    charts.update(both, 1)
    assert list(charts.figure("tokens").data[0].y) == [2, 2, 2, 2]


def test_traces_are_told_apart_without_colour():
    for name, make in CHARTS.items():
        shown = [t for t in make(0, NOTHING).traces() if t.showlegend is not False]
        looks = [(t.line.dash, t.marker.symbol, t.fillpattern.shape if t.stackgroup else None) for t in shown]
        assert len(set(looks)) == len(looks), name


def test_static_pictures_hold_the_same_and_no_markup_of_a_stranger():
    charts = Charts()
    plain = charts.static(STEPS)
    assert list(next(t for t in plain.data if t.name == "tokens").y) == [3, 2, 1, 1]
    nothing = charts.static([])
    assert "No step yet" in nothing.layout.annotations[0].text and nothing.layout.xaxis.visible is False
    with pytest.raises(ValueError, match="at least one chart"):
        figure([])
    picture = charts.svg(STEPS)
    parseString(picture)
    assert picture.count("<title>") == 3 and "<script" not in picture and "acceptance length" in picture
    assert len(charts.svg(grown(2000))) < 100_000
    empty = charts.svg([])
    parseString(empty)
    assert "No step yet" in re.sub(r"<[^>]+>", " ", empty)
    assert charts.caption(STEPS).count("with bonus") == 1 and set(charts.captions(STEPS)) == set(DEFAULT)
