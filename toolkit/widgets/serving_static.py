"""A server's last picture as an SVG that needs no style sheet and no script. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from toolkit.trace.labels import short
from toolkit.widgets.serving_labels import count
from toolkit.widgets.serving_prefix import BOX_HEIGHT

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#9aa0a6")
ON = ("#ffffff", *["#111111"] * 7)  # what can be read on each
INK, QUIET, LINE, PAPER, HATCH = "#1f2328", "#6b7280", "#d0d4d9", "#ffffff", "#9aa0a6"
WIDTH, EDGE, GAP = 960, 16, 3  # pixels
SIDES = {"large": 26, "medium": 21, "small": 15}
TITLED = 256  # more cells than this have no titles: a notebook must not grow by megabytes
CHIP, CHIP_HEIGHT = 216, 24


def serving_svg(scene: Mapping[str, Any]) -> str:
    """Pages, queues, log and prefix cache below each other."""
    head, out, y = scene["head"], [], EDGE + 6
    out.append(_text(EDGE, y + 4, f"Pages: {head['summary']}", size=13, weight=600))
    out.append(_text(WIDTH - EDGE, y + 4, f"step {head['step']}", anchor="end", fill=QUIET))
    out.append(_text(EDGE, y + 22, head["note"], size=11, fill=QUIET))
    y += 34
    side = SIDES[head["size"]]
    columns = (WIDTH - 2 * EDGE + GAP) // (side + GAP)
    for i, cell in enumerate(scene["cells"]):
        at = EDGE + i % columns * (side + GAP), y + i // columns * (side + GAP)
        out.append(_cell(cell, *at, side, titled=len(scene["cells"]) <= TITLED))
    y += -(-len(scene["cells"]) // columns) * (side + GAP) + 8
    out.append(_legend(y, several=head["each"] > 1))
    y += 40
    for lane in scene["lanes"]:
        drawn, height = _lane(lane, y)
        out.append(drawn)
        y += height
    y += 14
    for line in scene["log"]:
        out.append(_text(EDGE + 64, y + 2, line["at"], fill=QUIET, anchor="end"))
        out.append(_badge(EDGE + 76, y - 11, 18, line))
        out.append(_text(EDGE + 102, y + 2, f"{line['mark']} {line['text']}"))
        y += 20
    y += 16
    out.append(_text(EDGE, y, f"Prefix cache: {scene['tree']['summary']}", size=13, weight=600))
    y += 8
    width = WIDTH
    if scene["nodes"]:
        out.append(f'<g transform="translate({EDGE - 10},{y})">{"".join(_tree(scene["nodes"]))}</g>')
        width = max(WIDTH, round(scene["tree"]["width"]) + EDGE)
        y += round(scene["tree"]["height"])
    if scene["tree"]["more"]:
        out.append(_text(EDGE, y + 14, scene["tree"]["more"], fill=QUIET))
        y += 20
    y += 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" role="img" '
        f'aria-label="{escape(head["summary"])}" font-family="sans-serif" font-size="12" fill="{INK}"><rect width="{width}" height="{y}" rx="6" '
        f'fill="{PAPER}"/>{"".join(out)}</svg>'
    )


def bands(x: float, y: float, side: float, width: float) -> Iterator[str]:
    """The corners of diagonal bands that fill a square, one after the other."""
    low = 0.0
    while low < 2 * side:
        high = min(low + width, 2 * side)
        corners = [*_ends(low, side), *reversed(_ends(high, side))]
        if low < side < high:
            corners = [corners[0], corners[1], (0, side), corners[2], corners[3], (side, 0)]
        yield " ".join(f"{x + a:g},{y + b:g}" for a, b in corners)
        low = high


def _ends(total: float, side: float) -> list[tuple[float, float]]:
    """Where the line a + b = total leaves a square, the upper right end first."""
    return [(total, 0), (0, total)] if total <= side else [(side, total - side), (total - side, side)]


def _cell(cell: Mapping[str, Any], x: float, y: float, side: float, *, titled: bool) -> str:
    state, colours, out = cell["state"], cell["colours"], []
    square = f'x="{x}" y="{y}" width="{side}" height="{side}"'
    if state == "free":
        out.append(f'<rect {square} rx="3" fill="{PAPER}" stroke="{LINE}"/>')
    elif state == "cached":
        out.append(f'<rect {square} rx="3" fill="{PAPER}" stroke="{QUIET}" stroke-dasharray="3 2"/>')
        dots = [(side * a, side * b) for a in (0.28, 0.72) for b in (0.28, 0.72)]
        out += [f'<circle cx="{x + a:g}" cy="{y + b:g}" r="1.4" fill="{QUIET}"/>' for a, b in dots]
    elif state == "held":
        out.append(f'<rect {square} rx="3" fill="{PALETTE[colours[0]]}"/>')
    else:
        fills = [PALETTE[c] for c in colours] if len(colours) > 1 else [PALETTE[colours[0]], PAPER]
        out += [
            f'<polygon points="{corners}" fill="{fills[i % len(fills)]}"/>'
            for i, corners in enumerate(bands(x, y, side, side / 3))
        ]
    if state in ("held", "shared"):
        if cell["full"] < 1:
            empty = side * (1 - cell["full"])
            out.append(f'<rect x="{x}" y="{y}" width="{side}" height="{empty:g}" fill="{PAPER}"/>')
            out.append(f'<rect {square} rx="3" fill="none" stroke="{LINE}"/>')
        over, halo = state == "shared" or cell["full"] < 1, side < 18 or cell["full"] < 1
        if over and not halo:
            out.append(
                f'<rect x="{x + side * 0.16:g}" y="{y + side * 0.24:g}" width="{side * 0.68:g}" '
                f'height="{side * 0.52:g}" rx="3" fill="{PAPER}"/>'
            )
        on = INK if over else ON[colours[0]]
        size = round(side * 0.42)
        middle = {"anchor": "middle", "weight": 600, "size": size, "fill": on, "halo": over and halo}
        out.append(_text(x + side / 2, y + side / 2 + size * 0.36, cell["label"], **middle))
        if cell["known"]:
            out.append(f'<path d="M{x + side},{y}h{-side * 0.28:g}l{side * 0.28:g},{side * 0.28:g}z" fill="{INK}"/>')
    if not titled:
        return "".join(out)
    title = "\n".join(f"{name}: {value}" for name, value in cell["card"])
    return f"<g><title>{escape(title)}</title>{''.join(out)}</g>"


def _legend(y: float, *, several: bool) -> str:
    example = {"label": "A", "colours": [0], "full": 1, "known": False}
    keys = [
        ({**example, "state": "held"}, "held by a request"),
        (
            {**example, "state": "shared", "colours": [0, 1], "label": "AB"},
            "held by several" if several else "shared by several",
        ),
        ({**example, "state": "held", "known": True}, "held and in the prefix cache"),
        ({**example, "state": "cached"}, "in the prefix cache alone"),
        ({**example, "state": "free"}, "free"),
    ]
    out, x = [], EDGE
    for cell, said in keys:
        out += [_cell(cell, x, y, 18, titled=False), _text(x + 24, y + 13, said, size=11, fill=QUIET)]
        x += 44 + 6 * len(said)
    return "".join(out)


def _lane(lane: Mapping[str, Any], y: float) -> tuple[str, int]:
    out = [_text(EDGE, y + 16, f"{lane['name']} {lane['count']}", weight=600)]
    left, columns = EDGE + 96, (WIDTH - 2 * EDGE - 96) // CHIP
    for i, chip in enumerate(lane["chips"]):
        x, top = left + i % columns * CHIP, y + i // columns * (CHIP_HEIGHT + 4)
        title = "\n".join(f"{name}: {value}" for name, value in chip["card"])
        again = f" ↺{chip['again']}" if chip["again"] else ""
        out.append(
            f'<g><title>{escape(title)}</title><rect x="{x}" y="{top}" width="{CHIP - 8}" height="{CHIP_HEIGHT}" rx="12" '
            f'fill="{PAPER}" stroke="{LINE}"/>{_badge(x + 3, top + 3, 18, chip)}'
            f"{_text(x + 27, top + 16, short(chip['name'], 14))}"
            f"{_text(x + CHIP - 18, top + 16, count(chip['settled'], 'token') + again, anchor='end', fill=QUIET, size=11)}</g>"
        )
    lines = max(1, -(-len(lane["chips"]) // columns))
    if lane["more"]:
        out.append(_text(left, y + lines * (CHIP_HEIGHT + 4) + 12, f"+{lane['more']} more", fill=QUIET))
    return "".join(out), lines * (CHIP_HEIGHT + 4) + (18 if lane["more"] else 0) + 6


def _badge(x: float, y: float, side: float, of: Mapping[str, Any]) -> str:
    """A request's letter on its colour."""
    middle = {"anchor": "middle", "weight": 600, "size": 10, "fill": ON[of["colour"]]}
    return (
        f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="9" fill="{PALETTE[of["colour"]]}"/>'
        f"{_text(x + side / 2, y + side / 2 + 4, of['label'], **middle)}"
    )


def _tree(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for node in nodes:
        if node["parent"] >= 0:
            above = nodes[node["parent"]]
            x1, x2 = above["x"] + above["wide"] / 2, node["x"] - node["wide"] / 2
            middle = (x1 + x2) / 2
            yield (
                f'<path d="M{x1},{above["y"]}C{middle},{above["y"]} {middle},{node["y"]} {x2},{node["y"]}" fill="none" '
                f'stroke="{INK if node["state"] == "held" else HATCH}" stroke-dasharray="{_dash(node)}"/>'
            )
    for node in nodes:
        x, y = node["x"] - node["wide"] / 2, node["y"] - BOX_HEIGHT / 2
        title = "\n".join(f"{name}: {value}" for name, value in node["card"])
        held = node["state"] == "held"
        yield (
            f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{node["wide"]}" height="{BOX_HEIGHT}" rx="5" '
            f'fill="{PAPER}" stroke="{INK if held else HATCH}" stroke-width="{1.8 if held else 1}" '
            f'stroke-dasharray="{_dash(node)}"/>'
        )
        tall = (BOX_HEIGHT - 8) / max(1, len(node["colours"]))
        for i, colour in enumerate(node["colours"]):
            yield f'<rect x="{x + 4}" y="{y + 4 + i * tall:g}" width="4" height="{tall:g}" fill="{PALETTE[colour]}"/>'
        yield _text(x + 14, y + (15 if node["small"] else 22), node["label"], family="monospace")
        yield _text(x + 14, y + 29, node["small"], size=10, fill=QUIET) + "</g>"


def _dash(node: Mapping[str, Any]) -> str:
    return "4 3" if node["state"] == "cached" else "none"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    fill: str = INK,
    weight: int = 400,
    anchor: str = "start",
    family: str = "",
    halo: bool = False,
) -> str:
    """What the picture as a whole says already is left out: there may be a thousand of these."""
    said = [
        f'font-family="{family}"' if family else "",
        f'font-size="{size}"' if size != 12 else "",
        f'font-weight="{weight}"' if weight != 400 else "",
        f'fill="{fill}"' if fill != INK else "",
        f'text-anchor="{anchor}"' if anchor != "start" else "",
        f'stroke="{PAPER}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"' if halo else "",
    ]
    return f'<text x="{x:g}" y="{y:g}" {" ".join(filter(None, said))}>{escape(text)}</text>'
