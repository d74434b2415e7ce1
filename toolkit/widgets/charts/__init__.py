"""Charts of a run. Each file is one chart: from records to plain arrays, to a sentence, to traces. `menu` names them, `board`
shows them live, `whole` and `svg` make pictures that need no kernel."""

from toolkit.widgets.charts.board import Charts as Charts
from toolkit.widgets.charts.menu import CHARTS as CHARTS
from toolkit.widgets.charts.menu import DEFAULT as DEFAULT
from toolkit.widgets.charts.whole import figure as figure
from toolkit.widgets.charts.whole import fill as fill
