"""Where widgets are shown: notebook pages, Colab's, which ask for a switch, and terminals, which can show none.

Elsewhere nothing is needed: the views' modules and styles travel with the widgets, so that VS Code's notebooks and Voilà's
pages load nothing from a server.
"""

from __future__ import annotations

import importlib

import ipywidgets as w
from IPython import get_ipython
from IPython.display import display


def enable_in_colab() -> bool:
    """Let Colab show widgets that are not its own. False where this is no Colab, or no page of it."""
    if not has_page():
        return False
    try:
        output = importlib.import_module("google.colab.output")
    except ImportError:
        return False
    output.enable_custom_widget_manager()
    return True


def has_page() -> bool:
    """Is there a kernel, so that somebody may be looking at a page; a terminal has none."""
    return getattr(get_ipython(), "kernel", None) is not None


def put(widget: w.Widget) -> None:
    """Display a widget whose picture follows it. Pages that keep no widgets show these words, not the widget's insides."""
    view = {**(widget._repr_mimebundle_() or {}), "text/plain": "(live in a notebook; below, as it was saved)"}
    display(view, raw=True)
