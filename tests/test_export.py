"""Traces that leave the process: files that come back whole, Chrome's events, Prometheus's text."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from test_serving_metrics import CHAIN, STEPS, plain, served

from toolkit.trace import Event, Load, RowRecord, StepRecord, Trace, columns, metrics, perfetto, prometheus
from toolkit.trace.files import ENDINGS, load, save
from toolkit.trace.requests import requests, totals

whole = st.integers(-(2**63), 2**63 - 1)
number = st.floats()  # NaN and the infinite included
wholes = st.lists(whole, max_size=4).map(tuple)
numbers = st.lists(number, max_size=4).map(tuple)
rows = st.builds(
    RowRecord,
    *(whole, wholes, wholes, whole, whole, wholes, wholes, numbers, numbers, numbers, numbers, numbers, numbers),
    top=st.lists(st.lists(st.tuples(whole, number), max_size=2).map(tuple), max_size=3).map(tuple),
    ended=st.none() | st.text(),
)
kinds = st.sampled_from(["added", "admitted", "prefilled", "preempted", "finished", "aborted"])


@st.composite
def steps_of_any_value(draw: st.DrawFn) -> StepRecord:
    some = tuple(draw(st.lists(st.none() | rows, max_size=3)))
    ids = draw(st.just(()) | st.lists(st.text(), min_size=len(some), max_size=len(some)).map(tuple))
    return StepRecord(
        *(draw(whole), some, draw(st.text()), draw(st.text()), draw(whole)),
        ms=draw(st.dictionaries(st.text(), number, max_size=3)),
        at=draw(number),
        ids=ids,
        load=draw(st.none() | st.builds(Load, *[whole] * 9)),
        events=tuple(draw(st.lists(st.builds(Event, kinds, st.text(), number, whole, st.text()), max_size=2))),
    )


traces = st.builds(
    Trace,
    prompts=st.lists(wholes, max_size=3).map(tuple),
    about=st.dictionaries(st.text(), st.text(), max_size=3),
    steps=st.lists(steps_of_any_value(), max_size=4) | served | plain,
)
SMALL = Trace(((1, 2), (3,)), {"engine": "Engine(…)"}, list(STEPS))


def told(trace: Trace) -> str:
    """Everything in a trace; unlike ==, repr takes NaN for NaN, and lists for no tuples."""
    return repr((trace.prompts, trace.about, trace.steps))


@settings(max_examples=40, deadline=None)
@given(trace=traces)
def test_what_is_loaded_is_what_was_saved(tmp_path_factory, trace):
    for ending in ENDINGS:
        path = tmp_path_factory.getbasetemp() / f"run{ending}"
        save(trace, path)
        assert told(load(path)) == told(trace)


@pytest.mark.parametrize("ending", ENDINGS)
def test_many_rows_and_steps_without_any_come_back_in_order(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(columns, "BATCH", 5)  # steps begin in one batch and end in the next
    empty, ended = replace(STEPS[0], rows=(), ids=()), replace(STEPS[0], rows=(None, CHAIN, None), ids=())
    odd = replace(
        CHAIN, u=(nan, 0.5, nan, 1.0), accept=(inf, 0.0, 1.0, -0.0), top=(((1, 0.5), (2, nan)), (), ((3, 1.0),), ())
    )
    lone = replace(STEPS[0], rows=(odd,), ms={"draft": -0.0, "verify": 0.0}, at=-0.0, load=None, events=())
    trace = Trace(steps=[empty, ended, lone, empty, lone, *STEPS] * 5)
    save(trace, tmp_path / f"run{ending}")
    assert told(load(str(tmp_path / f"run{ending}"))) == told(trace)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_trace_makes_the_same_bytes_and_replaces_what_was_there(tmp_path, ending):
    first, second = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    second.write_text("something else")
    save(SMALL, first)
    save(SMALL, second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [first.name, second.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_save_that_fails_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path, ending):
    path = tmp_path / f"run{ending}"
    save(SMALL, path)
    before = path.read_bytes()
    unwritable: Any = object()
    with pytest.raises((TypeError, ValueError)):
        save(Trace(steps=[*STEPS, replace(STEPS[0], step=unwritable)]), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_cut_anywhere_is_refused_in_a_sentence(tmp_path, ending):
    path = tmp_path / f"run{ending}"
    save(SMALL, path)
    data = path.read_bytes()
    for size in range(0, len(data) - 1, max(1, len(data) // 200)):  # all but the last line's end
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"run\.(jsonl|parquet).*: (copy it again|choose a file)") as refused:
            load(path)
        assert "\n" not in str(refused.value)


def test_the_sentence_says_how_much_is_there(tmp_path):
    path = tmp_path / "run.jsonl"
    save(SMALL, path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    with pytest.raises(ValueError, match="cut off or damaged after 2 of its 3 steps"):
        load(path)
    path.write_text("".join([lines[0], lines[1], lines[2][:40]]))
    with pytest.raises(ValueError, match="cut off or damaged after 1 of its 3 steps"):
        load(path)
    path.write_text("".join([*lines, lines[3]]))
    with pytest.raises(ValueError, match="damaged after 4 of its 3 steps"):
        load(path)
    path.write_text("".join([lines[0], lines[1], '{"step": 1}\n', lines[3]]))
    with pytest.raises(ValueError, match="damaged after 1 of its 3 steps"):
        load(path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("run.csv", b"", r"run\.csv ends like no kind of trace file: end it in \.jsonl, \.jsonl\.gz or \.parquet"),
        ("run.jsonl", None, "there is no file .*run.jsonl to load a trace from: save one there"),
        (
            "run.jsonl",
            b'{"format":"specdec-trace","version":2,"columns":[]}\n',
            "version 2 of .* reads version 1: read it",
        ),
        ("run.jsonl", b'{"format":"specdec-trace"}\n', "does not begin like a trace: choose"),
        ("run.jsonl", b'{"format":"specdec-trace","version":1,"steps":0}\n', "does not begin like a trace: choose"),
        ("run.jsonl", b"[1, 2]\n", "does not begin like a trace: choose"),
        ("run.jsonl", b"\xff\xfe", "does not begin like a trace: choose"),
        ("run.jsonl.gz", b"no gzip", "does not begin like a trace: choose"),
        ("run.parquet", b"no parquet", "is no Parquet file, or cut off: copy"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as refused:
        load(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_a_foreign_table_and_a_place_to_save_that_is_none(tmp_path):
    save(SMALL, tmp_path / "run.parquet")
    bare = pq.read_table(tmp_path / "run.parquet").replace_schema_metadata(None)
    pq.write_table(bare, tmp_path / "foreign.parquet")
    with pytest.raises(ValueError, match="does not begin like a trace"):
        load(tmp_path / "foreign.parquet")
    with pytest.raises(ValueError, match=r"ends like no kind of trace file"):
        save(SMALL, tmp_path / "run.json")
    with pytest.raises(ValueError, match=r"there is no folder .* make it first"):
        save(SMALL, tmp_path / "nowhere" / "run.jsonl")


def test_a_line_is_plain_json_without_defaults(tmp_path):
    save(
        Trace(steps=[StepRecord(0, (replace(CHAIN, u=(nan, 0.5, nan, 1.0)),), "D", "R", 4)]), tmp_path / "run.jsonl.gz"
    )
    _, line = gzip.decompress((tmp_path / "run.jsonl.gz").read_bytes()).splitlines()
    step = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert step["rows"][0]["u"] == [None, 0.5, None, 1.0]
    assert step.keys() == {"step", "rows", "drafter", "rule", "nodes", "ms"}
    assert not step["rows"][0].keys() & {"confidence", "prob", "top", "ended"}


def test_a_table_has_a_line_for_each_row_and_tells_a_steps_own_things_once(tmp_path):
    save(SMALL, tmp_path / "run.parquet")
    table = pq.read_table(tmp_path / "run.parquet").to_pydict()
    assert table["step"] == [0, 1, 2, 2] and table["row"] == [0, 0, 0, 1] and table["request"] == ["a", "b", "b", "a"]
    assert [len(t) for t in table["emitted"]] == [3, 2, 1, 1] and table["ended"][2:] == ["stop token", "length"]
    assert sum(ms for told in table["ms"] if told for _, ms in told) == sum(s.total_ms for s in STEPS)
    assert table["events"][3] is None and [e["kind"] for e in table["events"][2]][2:] == ["finished", "finished"]


@pytest.mark.parametrize("package", ["pyarrow", "prometheus_client"])
def test_a_missing_package_is_one_sentence_with_the_remedy(tmp_path, monkeypatch, package):
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ImportError, match=rf'needs? the package {package}: run `pip install "specdec-toolkit\[trace\]"`'
    ):
        save(SMALL, tmp_path / "run.parquet") if package == "pyarrow" else prometheus.text(SMALL)
    assert list(tmp_path.iterdir()) == []


def test_exports_cost_nothing_until_they_are_used_and_need_no_models():
    code = """if True:
        import sys
        import toolkit
        assert "toolkit.trace" not in sys.modules
        from toolkit.trace import files, perfetto, prometheus, requests
        print([n for n in ("pyarrow", "prometheus_client", "transformers", "toolkit.models") if n in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def faults(document: str) -> list[str]:
    """What is wrong with a document of Chrome's events, read without our code."""
    found: list[str] = []
    events = json.loads(document, parse_constant=lambda word: found.append(f"{word} is no JSON"))["traceEvents"]
    last, named, ends = 0.0, set(), defaultdict(list)
    arrows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        track = e["pid"], e.get("tid")
        if e["ph"] == "M":
            named.add(track if e["name"] == "thread_name" else None)
            continue
        if e["ts"] < last:
            found.append(f"{e['name']} comes after a later event")
        last = e["ts"]
        if e["ph"] != "C" and track not in named:
            found.append(f"track {track} has no name")
        now = round(1e3 * e["ts"])
        if e["ph"] == "X":
            end = now + round(1e3 * e["dur"])
            ends[track] = [(n, stop) for n, stop in ends[track] if stop > now]
            if end < now or any(end > stop for _, stop in ends[track]):
                found.append(f"{e['name']} on {track} is not inside what it began in")
            ends[track].append((e["name"], end))
        elif e["ph"] in "sf":
            arrows[e["id"]].append(e)
            if {"s": "draft", "f": "verify"}[e["ph"]] not in [n for n, stop in ends[track] if stop >= now]:
                found.append(f"arrow {e['id']} hangs in the air")
        elif e["ph"] == "i" and e.get("s") not in ("t", "p", "g"):
            found.append(f"{e['name']} has no scope")
        elif e["ph"] == "C" and not all(isinstance(v, int | float) and v >= 0 for v in e["args"].values()):
            found.append(f"{e['name']} counts {e['args']}")
        elif e["ph"] not in "isfC":
            found.append(f"{e['ph']} is not ours")
    found += [f"arrow {i} has {len(a)} ends" for i, a in arrows.items() if [e["ph"] for e in a] != ["s", "f"]]
    return found


@settings(max_examples=60, deadline=None)
@given(st.one_of(served, plain))
def test_chromes_events_are_sound_and_tell_all_that_happened(steps):
    document = perfetto.text(Trace(steps=steps))
    assert faults(document) == []
    events = [e for e in json.loads(document)["traceEvents"] if e["ph"] != "M"]
    count = Counter((e["ph"], e["name"]) for e in events)
    rows = [r for s in steps for r in s.rows if r]
    assert count["X", "step"] == len(steps)
    assert count["X", "target"] == sum("target" in s.ms for s in steps)
    assert count["X", "draft"] == sum("draft" in s.ms for s in steps) + len(rows)
    assert count["s", "guesses"] == count["f", "guesses"] == sum(len(r.token) > 1 for r in rows)
    assert count["C", "acceptance"] == sum(any(s.rows) for s in steps)
    assert count["C", "pages"] == count["C", "queue"] == sum(s.load is not None for s in steps)
    for kind in "preempted", "aborted":
        assert count["i", kind] == sum(e.kind == kind for s in steps for e in s.events)
    assert count["i", "finished"] == sum(r.ended is not None for r in rows)
    whole = [e["args"] for e in events if e["ph"] == "X" and e["name"] == "step"]
    t = metrics.tokens(steps)
    assert [sum(a[k] for a in whole) for k in ("rows", "drafted", "accepted", "emitted")] == [
        *(t.row_steps, t.drafted, t.accepted, t.committed)
    ]


def test_the_check_of_chromes_events_finds_faults():
    load = Load(0, 0, 1, 1, 8, 2, 1)
    step = replace(STEPS[0], ms={"draft": 1.0, "verify": 1.0}, load=load)
    document = json.loads(perfetto.text(Trace(steps=[step])))

    def spoilt(change: Any) -> list[str]:
        events = [dict(e) for e in document["traceEvents"]]
        change(events)
        return faults(json.dumps({"traceEvents": events}))

    def one(events: list[dict[str, Any]], ph: str, name: str | None = None) -> dict[str, Any]:
        return next(e for e in reversed(events) if e["ph"] == ph and name in (None, e["name"]))

    assert spoilt(lambda events: None) == []
    assert "later event" in spoilt(lambda events: events.insert(12, events.pop()))[0]
    assert "not inside" in spoilt(lambda events: one(events, "X", "draft").update(dur=1e7))[0]
    assert "1 ends" in spoilt(lambda events: events.remove(one(events, "f")))[0]
    assert "no scope" in spoilt(lambda events: events.append(one(events, "s") | {"ph": "i"}))[-1]
    assert "hangs" in spoilt(lambda events: events.remove(one(events, "X", "verify")))[0]
    assert "no name" in spoilt(lambda events: one(events, "X", "running").update(tid=7))[0]
    assert "counts" in spoilt(lambda events: one(events, "C", "pages").update(args={"free": -1}))[0]
    assert "JSON" in spoilt(lambda events: one(events, "C", "pages").update(args={"free": nan}))[0]


def test_a_requests_track_by_hand():
    events = perfetto.events(STEPS)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            spans[names[e["pid"], e["tid"]]].append((e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6))
    assert spans["a"] == [
        ("waiting", 0.0, 0.75),
        ("prefill", 0.75, 1.5),
        ("running", 1.5, 2.0),
        ("draft", 1.5, 1.75),
        ("waiting", 2.0, 3.0),
        ("prefill", 3.0, 3.5),
        ("running", 3.5, 4.0),
        ("draft", 3.5, 3.875),
    ]
    assert spans["steps"][:4] == [
        ("step", 1.0, 2.0),
        ("prefill", 1.0, 1.5),
        ("draft", 1.5, 1.75),
        ("target", 1.75, 2.0),
    ]
    marks = [(e["name"], e["ts"], e["s"], e["args"]) for e in events if e["ph"] == "i" and e["tid"] == 1]
    assert marks == [
        ("preempted", 2e6, "t", {"tokens": 10}),
        ("finished", 4e6, "t", {"tokens": 4, "why": "length"}),
    ]


def test_a_clock_that_lags_moves_no_draft_out_of_its_run():
    """The host says "prefilled" after the device has begun to draft, "finished" before it has verified, and the next step
    begins before this one has ended."""
    early = replace(
        STEPS[0],
        ms={"draft": 250.0, "verify": 500.0},
        events=(Event("admitted", "a", 0.5), Event("prefilled", "a", 1.125), Event("finished", "a", 1.5)),
    )
    events = perfetto.events([early, replace(STEPS[1], at=1.25, events=())])
    assert faults(json.dumps({"traceEvents": events})) == []
    spans = {
        e["name"]: (e["ts"] / 1e6, e["dur"] / 1e6) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (2, 1)
    }
    assert spans == {"prefill": (0.5, 0.5), "running": (1.0, 0.75), "draft": (1.0, 0.25), "verify": (1.25, 0.5)}
    assert [e["ts"] / 1e6 for e in events if e["ph"] == "X" and e["name"] == "step"] == [1.0, 1.75]


def samples(text: str) -> dict[tuple[str, str], float]:
    """By name and the value of the only label."""
    families = text_string_to_metric_families(text)
    return {(s.name, "".join(s.labels.values())): s.value for f in families for s in f.samples}


@settings(max_examples=30, deadline=None)
@given(st.one_of(served, plain))
def test_prometheus_reads_what_the_metrics_say(steps):
    found = samples(prometheus.text(Trace(steps=steps)))
    each = requests(steps)
    sums, t = totals(each), metrics.tokens(steps)
    for kind, tokens in {"accepted": t.accepted, "bonus": t.bonus, "correction": t.correction}.items():
        assert found["specdec_tokens_total", kind] == tokens
    assert found["specdec_guesses_total", "accepted"] + found["specdec_guesses_total", "discarded"] == t.drafted
    assert found["specdec_verified_nodes_total", ""] - t.drafted == found["specdec_row_steps_total", ""] == t.row_steps
    assert found["specdec_prefill_tokens_total", "new"] == sums.prefilled - sums.reread
    assert found["specdec_prefill_tokens_total", "again"] == sums.reread
    assert found["specdec_preemptions_total", ""] == sums.preemptions
    for d in metrics.acceptance_by_depth(steps):
        assert found["specdec_depth_reached_total", str(d.depth)] == d.reached
        assert found["specdec_depth_accepted_total", str(d.depth)] == d.accepted
    assert sum(v for (name, _), v in found.items() if name == "specdec_ended_requests_total") == sum(
        sums.reasons.values()
    )
    seconds = sum(v for (name, _), v in found.items() if name == "specdec_phase_seconds_total")
    assert seconds == pytest.approx(sum(s.total_ms for s in steps) / 1000)
    assert found["specdec_time_to_first_token_seconds_count", ""] == sums.ttft.count
    if (last := steps[-1].load) is not None:
        assert found["specdec_requests", "running"] == last.running
        assert sum(found["specdec_pages", k] for k in ("held", "cached", "free")) == last.pages


def test_prometheus_by_hand():
    found = samples(prometheus.text(SMALL))
    # Times to the first token are 2 and 2.25 seconds, between tokens 2/3 and 3/4 of a second.
    assert found["specdec_time_to_first_token_seconds_bucket", "1.0"] == 0
    assert found["specdec_time_to_first_token_seconds_bucket", "2.5"] == 2
    assert found["specdec_time_to_first_token_seconds_bucket", "+Inf"] == 2
    assert found["specdec_time_to_first_token_seconds_sum", ""] == 4.25
    assert found["specdec_inter_token_latency_seconds_bucket", "0.5"] == 0
    assert found["specdec_inter_token_latency_seconds_bucket", "1.0"] == 2
    assert found["specdec_ended_requests_total", "stop token"] == 1
    assert found["specdec_phase_seconds_total", "draft"] == 0.75


def test_labels_are_escaped_and_the_processs_own_registry_stays_as_it_was():
    before = {f.name for f in REGISTRY.collect()}
    odd = 'stop "\\\n"'
    steps = [replace(STEPS[0], events=(Event("finished", "a", 2.0, detail=odd),))]
    assert samples(prometheus.text(Trace(steps=steps)))["specdec_ended_requests_total", odd] == 1
    assert {f.name for f in REGISTRY.collect()} == before


def test_a_request_that_still_writes_has_no_latency_yet():
    text = prometheus.text(Trace(steps=STEPS[:2]))
    assert samples(text)["specdec_inter_token_latency_seconds_count", ""] == 0


def test_a_saved_trace_is_a_trace_to_go_on_with(tmp_path: Path):
    save(SMALL, tmp_path / "run.jsonl")
    again, seen = load(tmp_path / "run.jsonl"), []
    again.watch(seen.extend, every=0)
    again.append(STEPS[0])
    assert seen == [*STEPS, STEPS[0]]
