"""A page with widgets and no kernel: their own modules and style sheets, each on a model of thirty lines."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

WIDGETS = Path(__file__).parents[2] / "toolkit" / "widgets"
MODEL = """
const stub = (state) => {
  const on = {}, fire = (name, ...a) => (on[name] || []).forEach((f) => f(...a));
  const m = {
    sent: [], saved: 0,
    get: (k) => state[k],
    set: (k, v) => { if (state[k] !== v) { state[k] = v; fire("change:" + k); } },
    on: (name, f) => { (on[name] ||= []).push(f); },
    off: (name, f) => { on[name] = (on[name] || []).filter((g) => g !== f); },
    save_changes: () => { m.saved += 1; },
    send: (content) => m.sent.push(content),
    message: (content) => fire("msg:custom", content),
  };
  return m;
};"""


def page(dark: bool = False, **widgets: dict[str, Any]) -> str:
    """HTML of these widgets below each other: the module's name and the state of its model, which is `window.<name>`."""
    styles = "".join((WIDGETS / f"{name}.css").read_text() for name in widgets)
    parts = "".join(
        f"window.{name} = stub({json.dumps(state).replace('<', chr(92) + 'u003c')}); await open({name!r}, "
        f'"data:text/javascript;base64,{base64.b64encode((WIDGETS / f"{name}.js").read_bytes()).decode()}");\n'
        for name, state in widgets.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>alone</title><style>{styles}</style>'
        f'<body data-jp-theme-light="{str(not dark).lower()}"><script type="module">{MODEL}'
        """
        const open = async (name, url) => {
          const el = document.createElement("div"), made = (await import(url)).default;
          el.id = name;
          document.body.append(el);
          const widget = typeof made === "function" ? made() : made;
          widget.initialize?.({ model: window[name] });
          window["close_" + name] = widget.render({ model: window[name], el });
        };"""
        f"{parts} window.ready = true;</script></body></html>"
    )
