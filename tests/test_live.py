import threading
import time

import pytest
from tiny import PROMPTS, greedy, lm, noisy_lm

from toolkit.drafting import Chain, DraftModel, NGram, Nothing
from toolkit.engine import Engine, Live
from toolkit.sampling import Stopping


def start(delay: float = 0.0, **parts) -> Live:
    engine = Engine(lm(0), stopping=Stopping(40), **parts)
    return Live(engine, engine.start(PROMPTS), delay=delay)


def running() -> bool:
    return any(t.name == "specdec-live" for t in threading.enumerate())


def until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def test_run_to_the_end():
    live = start()
    states = []
    live.listen(states.append)
    assert live.state == "paused"
    assert live.run().wait() == "done"
    assert live.session.outputs == greedy() and states == ["running", "done"]
    assert live.run().wait() == "done", "asking again is harmless"
    until(lambda: not running())


def test_pause_makes_no_step_more_and_step_exactly_as_many_as_asked():
    live = start(delay=0.01)
    live.run()
    until(lambda: len(live.session.trace.steps) >= 3)
    assert live.pause().wait() == "paused"
    n = len(live.session.trace.steps)
    time.sleep(0.05)
    assert len(live.session.trace.steps) == n
    live.step().wait()
    assert len(live.session.trace.steps) == n + 1 and live.state == "paused"
    live.step(4).wait()
    assert len(live.session.trace.steps) == n + 5
    live.rewind(2).wait()
    assert len(live.session.trace.steps) == n + 3
    live.run().wait()
    assert live.session.outputs == greedy()


def test_pause_interrupts_a_long_delay():
    live = start(delay=60)
    live.run()
    until(lambda: len(live.session.trace.steps) == 1)
    began = threading.Event()
    threading.Timer(0.0, began.set).start()
    assert live.pause().wait(20) == "paused"
    live.stop()


def test_rewind_past_the_beginning_and_after_the_end():
    live = start()
    live.run().wait()
    live.rewind(10_000).wait()
    assert live.session.outputs == [[]] * 4 and live.state == "paused"
    live.rewind().wait()
    assert live.run().wait() == "done" and live.session.outputs == greedy()


def test_parts_are_swapped_from_another_thread():
    live = start(delay=0.001)
    parts = [Nothing(), NGram(shortest=1), DraftModel(noisy_lm(), Chain(3))]
    live.run()
    n = 0
    while live.state not in ("done", "failed"):
        live.engine.drafter = parts[n % 3]
        n += 1
        if n % 25 == 0:
            live.rewind(2).wait()
            live.run()
        if n > 200:
            live.delay = 0.0
        time.sleep(0.002)
    assert live.wait() == "done" and live.session.outputs == greedy()
    assert len({s.drafter for s in live.session.trace.steps}) > 1


def test_many_presses_at_once_leave_the_text_right():
    live = start(delay=0.001)
    presses = [live.run, live.pause, live.step, live.rewind, live.run, live.pause]

    def press(n: int) -> None:
        for i in range(30):
            presses[(i * n) % 6]()
            time.sleep(0.0005)

    threads = [threading.Thread(target=press, args=(n,)) for n in (1, 2, 3, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert live.run().wait() == "done" and live.session.outputs == greedy()


class Fails:
    def propose(self, context):
        raise RuntimeError("a drafter in the making")


def test_an_error_is_kept_and_another_drafter_goes_on():
    live = start()
    live.step(3).wait()
    live.engine.drafter = Fails()
    with pytest.raises(RuntimeError, match="in the making"):
        live.run().wait()
    assert live.state == "failed" and isinstance(live.error, RuntimeError)
    assert len(live.session.trace.steps) == 3
    live.engine.drafter = NGram()
    assert live.run().wait() == "done" and live.error is None and live.session.outputs == greedy()


def test_stop_ends_the_thread_and_run_goes_on_later():
    live = start(delay=0.005)
    live.run()
    until(lambda: len(live.session.trace.steps) >= 2)
    live.stop()
    assert live.state == "stopped" and not running()
    n = len(live.session.trace.steps)
    time.sleep(0.03)
    assert len(live.session.trace.steps) == n
    live.stop()
    assert live.run().wait() == "done" and live.session.outputs == greedy()
    live.stop()


@pytest.mark.parametrize("steps", [0, -1])
def test_counts_below_one_are_refused(steps):
    with pytest.raises(ValueError, match=f"at least 1; got {steps}"):
        start().step(steps)
    with pytest.raises(ValueError, match="at least 1"):
        start().rewind(steps)


def test_watchers_see_everything_and_a_broken_one_stops_nothing(capsys):
    live = start()
    seen, had = [], []

    def broken(records):
        raise ValueError("a reader in the making")

    live.session.trace.watch(seen.extend, every=0)
    live.session.trace.watch(broken, every=0)
    live.session.trace.watch(had.extend, every=1000)
    live.run().wait()
    live.stop()
    assert live.session.outputs == greedy()
    assert seen == live.session.trace.steps == had
    assert [str(e) for e in live.session.trace.errors] == ["a reader in the making"]
    assert capsys.readouterr().err.count("a reader in the making") == 1


def test_a_watcher_is_told_of_a_rewind():
    live = start()
    told = []
    live.session.trace.watch(lambda records: told.append([r.step for r in records]), every=0)
    live.step(3).wait()
    live.rewind(2).wait()
    live.step(1).wait()
    live.stop()
    flat = [t for t in told if t]
    assert flat == [[0], [1], [2], [1]] and [] in told
