"""A session in a thread of its own, so that the notebook stays free to look and to touch.

Button callbacks may come from any thread. All they do is set a flag under one condition variable; whatever touches the
session happens in the loop's thread, between two steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from toolkit.engine import refuse
from toolkit.engine.cores import give_back_cores
from toolkit.engine.ending import before_exit
from toolkit.engine.engine import Engine
from toolkit.engine.server import Server
from toolkit.engine.session import Session

State = Literal["paused", "running", "done", "failed", "stopped"]


class Live:
    """run, pause, step, rewind, stop. Parts of `engine` may be assigned at any time: a step reads each field once.

    `Live(engine, session)` moves a session, `Live(server)` a server.

    An error in a step puts the session into the state "failed" and is kept in `error`; the session stays as it was
    before that step, so run, step or rewind go on from there, for instance with another drafter.
    """

    def __init__(self, engine: Engine | Server, session: Session | None = None, *, delay: float = 0.0) -> None:
        self.engine = engine.engine if isinstance(engine, Server) else engine
        self.session: Session | Server
        if isinstance(engine, Server):
            self.session = engine
        elif session is not None:
            self.session = session
        else:
            raise ValueError("Live needs a session, made by `engine.start(prompts)`, or a server")
        if not delay >= 0:
            raise ValueError(f"delay is a number of seconds between two steps, at least 0; got {delay}")
        self.delay = delay  # seconds to wait between steps, for watching
        self.error: Exception | None = None
        self.state: State = "done" if self.session.done else "paused"
        self._change = threading.Condition()
        self._tickets = 0  # steps still to be made; negative: without end
        self._rewinds = 0
        self._busy = False
        self._listeners: list[Callable[[State], None]] = []
        self._thread: threading.Thread | None = None
        before_exit(self, Live.stop)

    def run(self) -> Live:
        """Go on until every request has ended, or until `pause`."""
        return self._ask(tickets=-1)

    def step(self, steps: int = 1) -> Live:
        """Make that many steps, then pause."""
        return self._ask(tickets=refuse.whole(steps, "steps"))

    def pause(self) -> Live:
        """Stop before the next step; the step being made is finished."""
        return self._ask(tickets=0)

    def rewind(self, steps: int = 1) -> Live:
        """Undo the last steps and pause. Raises ValueError for a server, whose requests are rewound one by one."""
        if isinstance(self.session, Server):
            raise ValueError("a server has no step to go back to: use `server.rewind(ticket, tokens)`")
        return self._ask(tickets=0, rewinds=refuse.whole(steps, "steps"))

    def stop(self) -> None:
        """End the thread; the step being made is finished. The session keeps what it has, and `run` goes on with it."""
        with self._change:
            thread, self._thread = self._thread, None
            self._tickets = self._rewinds = 0
            self._change.notify_all()
        if thread and thread is not threading.current_thread():
            thread.join()
        with self._change:
            if self.state in ("running", "paused"):
                self._set("stopped")

    def wait(self, timeout: float | None = None) -> State:
        """Block until nothing is left to do, or for `timeout` seconds; raise what went wrong in the thread. An interrupt
        (Ctrl-C, a notebook's stop button) pauses what is waited for: whoever stops waiting wants it to stop."""
        with self._change:
            try:
                self._change.wait_for(lambda: self.state != "running" and not self._has_work(), timeout)
            except KeyboardInterrupt:
                self.pause()
                raise
            if self.error:
                raise self.error
            return self.state

    def listen(self, listener: Callable[[State], None]) -> None:
        """Call `listener(state)` whenever the state changes, from whichever thread changed it; it must be quick."""
        self._listeners.append(listener)

    def _ask(self, *, tickets: int, rewinds: int = 0) -> Live:
        give_back_cores()  # the loop's thread computes now
        with self._change:
            self._tickets, self._rewinds = tickets, self._rewinds + rewinds
            if (tickets or rewinds) and self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="specdec-live", daemon=True)
                self._thread.start()
            self._change.notify_all()
        return self

    def _has_work(self) -> bool:
        return bool(self._busy or self._tickets or self._rewinds)

    def _set(self, state: State) -> None:
        if state != self.state:
            self.state = state
            for listener in self._listeners:
                listener(state)

    def _loop(self) -> None:
        me = threading.current_thread()
        while True:
            with self._change:
                if self._thread is not me:  # stopped
                    return
                if not self._has_work():  # the thread ends with its work; the next request starts another
                    if self.state == "running":  # paused while it waited between two steps
                        self._set("paused")
                    self._thread = None
                    self._change.notify_all()
                    return
                rewinds, self._rewinds = self._rewinds, 0
                self._busy, self.error = True, None
                if not rewinds:
                    self._set("running")
            error = self._work(rewinds)
            with self._change:
                self._busy, self.error = False, error
                self._tickets -= self._tickets > 0 and not rewinds
                if error or self.session.done:
                    self._tickets = 0
                if not self._tickets:
                    self._set("failed" if error else "done" if self.session.done else "paused")
                self._change.notify_all()
            if not self._tickets:
                self.session.trace.notify(force=True)
            elif self.delay:
                with self._change:
                    self._change.wait_for(
                        lambda: self._thread is not me or not self._tickets or bool(self._rewinds), self.delay
                    )

    def _work(self, rewinds: int) -> Exception | None:
        try:
            if self.session.done and not rewinds:
                pass
            elif isinstance(self.session, Server):
                self.session.step()
            elif rewinds:
                self.session.rewind(rewinds)
            else:
                self.engine.step(self.session)
        except Exception as error:  # shown where the notebook looks: `error`, `wait` and the controls
            return error
        return None
