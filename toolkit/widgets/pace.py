"""How fast a run is watched: a slider that says its name, also to those who do not see it."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets


class Pace(anywidget.AnyWidget):
    """Seconds to wait between two steps. The slider ends at two; code may set more. (ipywidgets' own slider has no name
    that a screen reader could tell.)"""

    _esm = Path(__file__).parent / "pace.js"
    value = traitlets.Float(0.0, min=0.0).tag(sync=True)
