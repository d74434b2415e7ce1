"""Charts of a run. Each file is one chart: from records to plain arrays, to a sentence, to traces; `board` shows them."""

from toolkit.widgets.charts.board import CHARTS as CHARTS
from toolkit.widgets.charts.board import DEFAULT as DEFAULT
from toolkit.widgets.charts.board import Charts as Charts
from toolkit.widgets.charts.board import figure as figure
from toolkit.widgets.charts.board import fill as fill
