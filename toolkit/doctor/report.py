"""The doctor's report on one page: for a terminal, and as HTML that stands alone."""

from __future__ import annotations

from html import escape

from toolkit.doctor.diagnose import Diagnosis, Finding, Looked
from toolkit.doctor.exam import Grade
from toolkit.doctor.traps import trap


def text(found: Diagnosis) -> str:
    """The page as plain text."""
    lines = [_verdict(found), *(f"  {line}" for line in _facts(found)), ""]
    for f in found.findings:
        lines += [f"T{f.trap:<3}{trap(f.trap).title}", f"    {f.wrong}", f"    remedy: {f.remedy}", f"    {_effect(f)}"]
    if found.findings:
        lines.append("")
    if found.loaded.notes:
        lines += ["Notes of the loader", *(f"    {note}" for note in found.loaded.notes), ""]
    lines.append("Looked for and not found")
    lines += [f"T{one.trap:<3}{trap(one.trap).title:<44}{_why(one)}" for one in found.looked]
    return "\n".join(lines) + "\n"


def page(found: Diagnosis) -> str:
    """The page as HTML, light and dark, with nothing to fetch."""
    rows = [
        f"<tr class=bad><td>T{f.trap}</td><td><b>{escape(trap(f.trap).title)}</b><br>{escape(f.wrong)}</td>"
        f"<td>{escape(f.remedy)}</td><td>{escape(_effect(f))}</td></tr>"
        for f in sorted(found.findings, key=lambda f: f.trap)
    ]
    rows += [
        f"<tr><td>T{one.trap}</td><td>{escape(trap(one.trap).title)}</td><td></td><td>{escape(_why(one))}</td></tr>"
        for one in found.looked
    ]
    facts = "".join(f"<li>{escape(line)}</li>" for line in _facts(found))
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.loaded.notes)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(_verdict(found))}</title><style>{_STYLE}</style>"
        f"<h1>{escape(_verdict(found))}</h1><ul>{facts}</ul><table><thead><tr><th>trap<th>what<th>remedy<th>measured</thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{f'<h2>Notes of the loader</h2><ul>{notes}</ul>' if notes else ''}"
        f"<p>Cost is draft cross-entropy against the target's likeliest token, in nats a guess; acceptance length is that of "
        f"chains at temperature 0, with the bonus.</p></html>"
    )


def _verdict(found: Diagnosis) -> str:
    if found.healthy:
        return f"{found.where}: a clean bill of health"
    some = ", ".join(f"T{f.trap}" for f in found.findings)
    return f"{found.where}: {len(found.findings)} finding{'s' if len(found.findings) > 1 else ''} ({some})"


def _facts(found: Diagnosis) -> list[str]:
    before = "can't be read" if found.before is None else _grade(found.before)
    lines = [
        f"layout {found.dialect}, for {found.target}, graded on {found.tokens} tokens of answers",
        f"as its files say: {before}",
    ]
    if not found.healthy:
        lines.append(f"as it should be read: {_grade(found.after)}")
    return lines


def _grade(grade: Grade) -> str:
    return (
        f"cost {grade.cross_entropy:.3f}, first guesses right {grade.right:.0%}, acceptance length "
        f"{grade.acceptance_length:.2f}"
    )


def _effect(f: Finding) -> str:
    if f.after is None:
        return "seen in the files" if f.before is None else f"now {_grade(f.before)}"
    if f.before is None:
        return f"unreadable before, then {_grade(f.after)}"
    return (
        f"cost {f.before.cross_entropy:.3f} to {f.after.cross_entropy:.3f}, acceptance length "
        f"{f.before.acceptance_length:.2f} to {f.after.acceptance_length:.2f}"
    )


def _why(one: Looked) -> str:
    if one.loss is None:
        return one.why
    if abs(one.loss) < 1e-4:
        return f"no matter: {_times(one.tried)} guess just as well"
    return f"{_times(one.tried)} cost {one.loss:+.3f} nats at best"


def _times(n: int) -> str:
    return f"{n} other reading{'s' if n > 1 else ''}"


_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1.1rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #8886}
.bad td:first-child{border-left:4px solid #c4462e}
"""
