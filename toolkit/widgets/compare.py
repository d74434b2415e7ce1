"""A comparison while it grows: a bar, a table, and how each prompt fared."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go
from IPython.display import HTML, display
from plotly.subplots import make_subplots

from toolkit.bench.compare import HF, PLAIN, Compared, Row
from toolkit.engine import before_exit, give_back_cores
from toolkit.terminal.compared import compared_table
from toolkit.terminal.view import plain
from toolkit.widgets.charts.shared import Figure
from toolkit.widgets.elsewhere import has_page, put
from toolkit.widgets.page import error_line

CAPTION = (
    "AL: acceptance length with the bonus, tokens a target pass. speedup: tokens/s relative to plain decoding of the same prompt, the "
    "median over prompts with quartiles; p: sign test. same: prompts with exactly plain decoding's tokens; in bfloat16 near-ties may "
    "break either way, and above temperature 0 other tokens of the same distribution may be drawn."
)
HEADS = ("AL", "ms/step", "tokens/s", "speedup", "quartiles", "p", "same")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
EVERY = 0.3  # seconds between two pictures


class CompareView:
    """Runs a comparison in a thread of its own and shows what there is; Stop keeps it.

        from toolkit.bench.compare import plan
        CompareView(plan({"ngram": NGram()}, prompts))

    `compared` holds the answers. Raises RuntimeError for a second start while it runs.
    """

    def __init__(self, compared: Compared, *, log: str | Path | None = None, start: bool = True) -> None:
        self.compared, self._log = compared, Path(log) if log else None
        self.error: Exception | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        before_exit(self, CompareView._end)
        self._static = f"specdec-{uuid.uuid4().hex[:8]}"
        self._handle: Any = None
        self._bar = w.IntProgress(max=compared.whole, layout=w.Layout(width="50%"))
        self._said, self._table, self._button = w.HTML(), w.HTML(), w.Button(description="Stop", icon="stop")
        self._button.on_click(lambda _: self.stop())
        self._figure = figure(compared)
        self.widget = w.VBox([w.HBox([self._bar, self._said, self._button]), self._table, self._figure])
        self._began, self._first = time.monotonic(), 0
        self._show()
        if start:
            self.start()

    @property
    def running(self) -> bool:
        """Its thread has the model now."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> CompareView:
        """Go on with what has not been answered."""
        if self.running:
            raise RuntimeError("this comparison is running already: wait() for it, or stop() it")
        self._stop.clear()
        self.compared.interrupted = False
        self._began, self._first = time.monotonic(), len(self.compared.answers)
        give_back_cores()
        self._thread = threading.Thread(target=self._run, name="specdec-compare", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End it after the answer that is being given."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> Compared:
        """Block until it has ended; raise what went wrong in it."""
        if self._thread:
            self._thread.join(timeout)
        if self.error:
            raise self.error
        return self.compared

    def _end(self) -> None:
        self.stop()
        if self._thread:
            self._thread.join()

    def close(self) -> None:
        """Stop it, and close the widgets."""
        self.stop()
        if self._thread:
            self._thread.join()
        self.widget.close()

    def _run(self) -> None:
        seen = 0.0
        answers = self.compared.run(self._log)
        try:
            for _ in answers:
                if self._stop.is_set():
                    break
                if time.monotonic() - seen > EVERY:
                    seen = time.monotonic()
                    self._show()
        except Exception as error:
            self.error = error
        finally:
            answers.close()
            self._show(ended=True)

    def _show(self, *, ended: bool = False) -> None:
        done, whole = len(self.compared.answers), self.compared.whole
        self._bar.value = done
        spent = time.monotonic() - self._began
        left = (whole - done) * spent / max(1, done - self._first)
        if self.error:
            self._said.value = error_line(self.error)
        elif ended or done == whole:
            self._said.value = f"{done} of {whole} answers" + ("" if done == whole else ", stopped")
        else:
            self._said.value = f"{done} of {whole} answers" + (
                f", about {left:.0f} s left" if done > self._first else ""
            )
        self._button.disabled = ended or done == whole
        hidden = f"<style>#{self._static} {{ display: none; }}</style>"
        self._table.value = hidden + table_html(self.compared.rows(), self.compared.about)
        if ended and self._handle:
            self._handle.update(HTML(self._fallback()))
        with self._figure.batch_update():
            fill(self._figure, self.compared)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/html": table_html(self.compared.rows(), self.compared.about), "text/plain": repr(self)}

    def _ipython_display_(self) -> None:
        if not has_page():
            print(self)
            return
        put(self.widget)
        self._handle = display(HTML(self._fallback()), display_id=self._static)

    def _fallback(self) -> str:
        """The table for saved notebooks, which the living one hides."""
        return f'<div id="{self._static}">{table_html(self.compared.rows(), self.compared.about)}</div>'

    def __str__(self) -> str:
        return f"{self!r}\n{plain(compared_table(self.compared.rows(), self.compared.about))}"

    def __repr__(self) -> str:
        return f"CompareView({len(self.compared.answers)} of {self.compared.whole} answers)"


def table_html(rows: Sequence[Row], about: str) -> str:
    """The rows as a table that a screen reader can follow."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    out = [
        f'<table style="text-align:right;line-height:1.5;min-width:min(100%,820px)"><caption style="text-align:left;padding-bottom:8px">{escape(about)}. {CAPTION}</caption><thead><tr>'
    ]
    out += [f'<th scope="col">{head}</th>' for head in ("task", "arm", *HEADS)]
    out.append("</tr></thead><tbody>")
    for r in rows:
        quartiles = "-" if r.low is None or r.high is None else f"{r.low:.2f} to {r.high:.2f}"
        cells = (
            number(r.acceptance_length, ".2f"),
            number(r.ms_per_step, ".1f"),
            f"{r.tokens_per_second:.1f}",
            number(r.speedup, ".2f"),
            quartiles,
            number(r.p_value, ".2g"),
            f"{r.same}/{r.prompts}",
        )
        out.append(
            f'<tr><th scope="row">{escape(r.task)}</th><td>{escape(r.arm)}</td>'
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    return "".join([*out, "</tbody></table>"])


def figure(compared: Compared) -> Any:
    """Left: every prompt a point by plain decoding's speed and the arm's. Right: acceptance length by task."""
    base = make_subplots(
        rows=1, cols=2, subplot_titles=("tokens/s: plain decoding → arm", "acceptance length, with bonus")
    )
    for n, arm in enumerate(_arms(compared)):
        colour = COLOURS[n % len(COLOURS)]
        base.add_trace(
            go.Scatter(name=arm, legendgroup=arm, mode="markers", marker={"color": colour, "symbol": n, "size": 8}),
            1,
            1,
        )
        base.add_trace(
            go.Bar(
                name=arm,
                legendgroup=arm,
                showlegend=False,
                marker={"color": colour, "pattern": {"shape": "/x-|+."[n % 6]}},
            ),
            1,
            2,
        )
    base.add_trace(
        go.Scatter(
            name="as fast", mode="lines", line={"color": "#80868b", "dash": "dot", "width": 1}, hoverinfo="skip"
        ),
        1,
        1,
    )
    base.update_layout(
        height=320,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "#767b81", "size": 11},
        margin={"l": 40, "r": 10, "t": 30, "b": 60},
        legend={"orientation": "h", "y": -0.15},
    )
    base.update_xaxes(gridcolor="rgba(128,134,139,0.2)")
    base.update_yaxes(gridcolor="rgba(128,134,139,0.25)", rangemode="tozero")
    return Figure(base)


def fill(fig: Any, compared: Compared) -> None:
    """Put in what has been answered."""
    rows, most = compared.rows(), 0.0
    for n, arm in enumerate(_arms(compared)):
        pairs = compared.pairs(arm)
        x, y = [p.tokens / p.seconds for p, _ in pairs], [a.tokens / a.seconds for _, a in pairs]
        most = max([most, *x])
        fig.data[2 * n].x, fig.data[2 * n].y = x, y
        mine = [r for r in rows if r.arm == arm and r.acceptance_length is not None]
        fig.data[2 * n + 1].x, fig.data[2 * n + 1].y = [r.task for r in mine], [r.acceptance_length for r in mine]
    fig.data[-1].x = fig.data[-1].y = [0, most]


def _arms(compared: Compared) -> list[str]:
    return [arm for arm in compared.arms if arm not in (PLAIN, HF)]
