"""Pictures of training: what comes in is drawn, and passed on as it came."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from toolkit.training import Look, StepReport
from toolkit.training.simulate import Simulated
from toolkit.widgets import TrainingView, coverage_figure, mask_figure


def reports(steps: int = 6) -> list[StepReport | Look]:
    made: list[StepReport | Look] = [Look(0, 0, Simulated(10, 11, (10,), (1,)), True, 0.0)]
    made += [
        StepReport(
            i, steps, i / steps, 10 * i, 5.0 / i, (1.0, 2.0), (0.1 * i, 0.05 * i), (0.1, 0.1), 1e-3, 1.0, 0.1 * i
        )
        for i in range(1, steps + 1)
    ]
    made.append(Look(steps, 10 * steps, Simulated(10, 20, (10,), (5,)), True, 1.0))
    return made


def curves(figure: go.Figure) -> dict[str, list[float]]:
    return {trace.name: list(trace.y) for trace in figure.data}


def test_reports_are_passed_on_and_drawn() -> None:
    view, given = TrainingView(every=0.0), reports()
    assert list(view.watch(iter(given), "mine")) == given
    drawn = curves(view.widget)
    assert drawn["mine loss"] == [5.0 / i for i in range(1, 7)]
    assert drawn["mine depth 2"] == pytest.approx([0.05 * i for i in range(1, 7)])
    assert drawn["mine acceptance"] == [1.1, 2.0]
    assert curves(view.static()) == drawn
    list(view.watch(iter(given[:3]), "other"))
    assert {"other loss", "mine loss"} <= curves(view.widget).keys()


def test_a_run_that_breaks_off_leaves_its_curve() -> None:
    def broken():
        yield from reports()[:4]
        raise RuntimeError("out of memory")

    view = TrainingView(every=100.0)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(view.watch(broken()))
    assert curves(view.widget)["loss"] == [5.0, 2.5, 5.0 / 3]


def test_a_long_run_is_thinned() -> None:
    view = TrainingView(every=100.0)
    list(view.watch(iter(reports(5000)), "long"))
    assert len(curves(view.widget)["long loss"]) < 1000


def test_coverage_and_mask() -> None:
    figure = coverage_figure([10, 100], [0.5, 0.9], 100)
    assert list(figure.data[0].y) == [0.5, 0.9] and len(figure.layout.shapes) == 1
    seen = [[True, False, True, False], [True, True, False, True]]
    drawn = mask_figure(seen, 2)
    assert [list(row) for row in drawn.data[0].z] == [[1, 0, 1, 0], [1, 1, 0, 1]] and len(drawn.layout.shapes) == 1
