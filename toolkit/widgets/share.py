"""Keeping a run and handing it on: names of files, two buttons, and a sentence about what was written."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

import ipywidgets as w

from toolkit.widgets.controls import WRAP
from toolkit.widgets.page import error_line

Writer = Callable[[str], object]
"""Writes a file of that name, or refuses with an error."""


class Share:
    """`save` writes a trace, `export` an HTML file."""

    def __init__(self, save: Writer, export: Writer) -> None:
        self.said = w.HTML()
        self.trace, self.save = _line("run.jsonl.gz", "Save trace", "save", "for Replay: .jsonl, .jsonl.gz or .parquet")
        self.page, self.export = _line("run.html", "Export HTML", "file-code-o", "one file for any browser, offline")
        self.save.on_click(lambda _: self._write(save, self.trace.value, "Replay shows it again without the model."))
        self.export.on_click(lambda _: self._write(export, self.page.value, "Any browser shows it, offline."))
        lines = [w.HBox([self.trace, self.save], layout=WRAP), w.HBox([self.page, self.export], layout=WRAP)]
        self.widget = w.VBox([*lines, self.said])

    def _write(self, writer: Writer, name: str, use: str) -> None:
        try:
            if not name.strip():
                raise ValueError("the file has no name: write one into the box")
            path = Path(name.strip()).expanduser()
            writer(str(path))
            size = path.stat().st_size
            told = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
            self.said.value = f"Wrote <b>{escape(str(path.resolve()))}</b>, {told}. {use}"
        except Exception as error:
            self.said.value = error_line(error)


def _line(name: str, button: str, icon: str, tip: str) -> tuple[w.Text, w.Button]:
    return (
        w.Text(
            name,
            description="to file",
            tooltip=tip,
            layout=w.Layout(width="340px"),
            style={"description_width": "initial"},
        ),
        w.Button(description=button, icon=icon, tooltip=tip, layout=w.Layout(width="130px")),
    )
