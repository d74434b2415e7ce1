"""A run as one HTML file: tree, text and charts at work in any browser, with no kernel, no network and nothing beside it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from toolkit.trace import StepRecord, Trace, decoder, seated
from toolkit.widgets.charts import Charts
from toolkit.widgets.page import status_line
from toolkit.widgets.ribbon import Ribbon
from toolkit.widgets.scene import Decode, scene
from toolkit.widgets.static import ribbon_html, tree_svg
from toolkit.widgets.tree import TreeView

HERE = Path(__file__).parent
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
STYLE = """
:root { color-scheme: light dark; --jp-ui-font-color1: #1f2328; --jp-ui-font-color2: #595959; --jp-layout-color1: #fff; --jp-layout-color2: #eee;
  --jp-layout-color3: #ddd; --jp-border-color1: #bdbdbd; --jp-content-font-color1: #1f2328; }
@media (prefers-color-scheme: dark) { :root { --jp-ui-font-color1: #e6e6e6; --jp-ui-font-color2: #b0b0b0; --jp-layout-color1: #16181b;
  --jp-layout-color2: #2a2d31; --jp-layout-color3: #3a3e44; --jp-border-color1: #5a5f66; --jp-content-font-color1: #e6e6e6; } }
body { font: 13px sans-serif; margin: 12px auto; padding: 0 12px; max-width: 1200px; background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1); }
h1 { font-size: 18px; } dl { display: grid; grid-template-columns: max-content auto; gap: 2px 12px; } dd { margin: 0; overflow-wrap: anywhere; }
.bar { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin: 8px 0; } .bar input[type=range] { flex: 1; min-width: 200px; }
button, select { font: inherit; padding: 2px 8px; }
"""


def export_html(
    trace: Trace, path: str | Path, *, decode: Decode | None = None, title: str = "A run of speculative decoding"
) -> int:
    """Write the file; returns its size in bytes. decode: by default the words that the trace itself holds.

    Raises ValueError for a trace without steps, and for one without words where `decode` is not given.
    """
    path, trace = Path(path), seated(trace)
    if not trace.steps:
        raise ValueError("this trace has no step to show: export it after a run")
    if decode is None and not trace.words:
        raise ValueError(
            "this trace holds no words of its tokens: give decode=, or export it from the Lab that made it"
        )
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} in: make it first")
    text = page(trace, decode or decoder(trace.words), title)
    path.write_text(text, encoding="utf-8")
    return path.stat().st_size


def page(trace: Trace, decode: Decode, title: str) -> str:
    """The HTML. All text in it is escaped or set as text by the views."""
    steps = list(trace.steps)
    rows = [_row(steps, b, decode(prompt), decode) for b, prompt in enumerate(trace.prompts)]
    charts = json.loads(Charts().static(steps, 0).to_json())
    options = "".join(f'<option value="{b}">{b}: {escape(r["prompt"][:40])}</option>' for b, r in enumerate(rows))
    about = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in trace.about.items())
    reasons = [r.ended for s in steps for r in s.rows if r]
    last = next((s for s in reversed(rows[0]["scenes"]) if s), None)
    still = (tree_svg(last) if last else "") + ribbon_html([(rows[0]["prompt"], "prompt", -1), *rows[0]["pieces"]])
    packed = base64.b64encode(zlib.compress(json.dumps({"rows": rows, "charts": charts}).encode(), 9)).decode()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>
<style>{STYLE}{_ours("tree.css")}{_ours("ribbon.css")}</style></head>
<body class="sd-page"><main><h1>{escape(title)}</h1><p>{status_line("exported", steps, reasons)}</p><dl>{about}</dl>
<noscript>{still}</noscript>
<div class="bar"><button id="play">Play</button><button id="back" aria-label="one step back">◀</button>
<button id="on" aria-label="one step on">▶</button>
<label>speed <select id="speed"><option value="600">slow</option><option value="250" selected>normal</option><option value="80">fast</option></select></label>
<label{" hidden" if len(rows) == 1 else ""}>row <select id="row">{options}</select></label>
<input id="step" type="range" min="0" max="0" value="0" aria-label="step"><output id="at" for="step"></output></div>
<div id="tree"></div><div id="text"></div><div id="charts"></div></main>
<script id="run" type="text/plain">{packed}</script>
<script>{_inside(get_plotlyjs())}</script>
<script type="module">{_inside(_script())}</script></body></html>
"""


def _row(steps: Sequence[StepRecord], row: int, prompt: str, decode: Decode) -> dict[str, Any]:
    ribbon = Ribbon(decode)
    ribbon.start(prompt + "\n\n", row)
    ribbon.update(steps)
    ended = next((i for i in range(len(steps), 0, -1) if steps[i - 1].rows[row]), 0)
    scenes = [scene(r, decode, s.step) if (r := s.rows[row]) else None for s in steps[:ended]]
    made = {"prompt": ribbon.prompt, "pieces": list(ribbon.pieces), "ms": list(ribbon.ms), "scenes": scenes}
    ribbon.close()
    return made


def _ours(name: str) -> str:
    """A style sheet or module of the widgets."""
    return (HERE / name).read_text(encoding="utf-8")


def _script() -> str:
    """The views' own modules, each within a function, since a page's module can have but one default export."""
    parts = [_ours("page.js"), _ours("export.js")]
    for name, source in (("tree", TreeView._esm), ("ribbon", Ribbon._esm)):
        parts.append(f"const {name} = (() => {{\n{str(source).replace('export default', 'return', 1)}\n}})();")
    return "\n".join([*parts, "main({ tree, ribbon });"])


def _inside(code: str) -> str:
    """Code that does not end the element that it stands in."""
    return code.replace("</script", "<\\/script")
