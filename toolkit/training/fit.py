"""Training as a generator of plain records: whoever asks for the next one lets the next step be made.

Everything that chance decides is decided by the seed and the number of the step: a run that was killed and goes on from its last
checkpoint makes the same steps again, and on one kind of CPU ends with the same bits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from toolkit.training.checkpoint import Checkpoints, State
from toolkit.training.lecture import Lecture, Sums, narrowed
from toolkit.training.lessons import Source, lesson
from toolkit.training.optimizers import optimizers, set_rate
from toolkit.training.plan import Look, Plan, Report, StepReport
from toolkit.training.simulate import simulate
from toolkit.training.teach import draw_anchors
from toolkit.training.texts import Text


def fit(
    head: nn.Module,
    unembedding: nn.Linear,
    source: Source,
    plan: Plan | None = None,
    *,
    folder: Path | None = None,
    tokens: Tensor | None = None,
    accelerator: Accelerator | None = None,
) -> Iterator[Report]:
    """Train `head` in place; when the iterator ends, it holds its best state.

    unembedding  the target's LM head, which says what the target would have said
    folder       for checkpoints; a run found there is gone on with. None keeps nothing
    tokens       [W] tokens that are told apart while learning, for heads that borrow the target's LM head; None for all

    Raises ValueError for a source with no more texts than are held back, and for a head without a socket.
    """
    plan, accelerator = plan or Plan(), accelerator or Accelerator(cpu=not torch.cuda.is_available())
    count = len(source.texts) - plan.held
    if count < plan.batch:
        raise ValueError(
            f"{len(source.texts)} texts, {plan.held} of them held back, leave less than one batch of {plan.batch}: give more "
            f"texts, or lower held or batch"
        )
    if plan.batch % accelerator.num_processes:
        raise ValueError(
            f"a batch of {plan.batch} texts cannot be shared by {accelerator.num_processes} processes evenly"
        )
    with narrowed(head, unembedding, tokens):
        yield from _Run(head, unembedding, source, plan, tokens, accelerator, folder).go()


class _Run:
    """A training on its way."""

    def __init__(
        self,
        head: nn.Module,
        unembedding: nn.Linear,
        source: Source,
        plan: Plan,
        tokens: Tensor | None,
        accelerator: Accelerator,
        folder: Path | None,
    ) -> None:
        self.head, self.source, self.plan, self.tokens, self.accelerator = head, source, plan, tokens, accelerator
        self.checkpoints = None if folder is None else Checkpoints(folder)
        head.to(accelerator.device, torch.float32).train()
        lecture = Lecture(head, unembedding, plan.objective, tokens=tokens)
        self.lecture = accelerator.prepare(lecture)
        self.optimizers = [accelerator.prepare(o) for o in optimizers(head, plan)]
        self.step, self.tokens_seen, self.looks = 0, 0, 0
        self.best = -1.0
        self.best_head: dict[str, Any] | None = None
        self.learned = range(len(source.texts) - plan.held)
        self.a_pass = len(self.learned) // plan.batch
        self.total = self.a_pass * plan.epochs
        self.began = perf_counter()
        self._resume()

    def go(self) -> Iterator[Report]:
        if not self.step:
            yield self._look()  # what the head can do before it learns
        while self.step < self.total:
            yield self._learn()
            if self.step % self.plan.every == 0 or self.step == self.total:
                yield self._look()
                self._keep()
                if self.plan.patience is not None and self.looks >= self.plan.patience:
                    break
        if self.best_head is not None:
            self.head.load_state_dict(self.best_head)
        self.head.eval()

    def _learn(self) -> StepReport:
        plan, world, rank = self.plan, self.accelerator.num_processes, self.accelerator.process_index
        numbers = self._batch(self.step)
        stake = sum(self._stake(self.source.texts[i]) for i in numbers) / world  # processes' gradients are averaged
        mine = numbers[rank::world]
        batch = lesson(self.source.told(mine), whole=plan.prompts).to(
            self.accelerator.device, torch.bfloat16 if plan.bf16 else torch.float32
        )
        keys = [hash_of(plan.seed, self.step, i) for i in mine]
        anchors = draw_anchors(batch, plan.blocks, keys) if hasattr(self.head, "remember") else None
        rate = self._rate(self.step)
        for optimizer in self.optimizers:
            set_rate(optimizer, rate)
            optimizer.zero_grad()
        with torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=plan.bf16):
            loss, sums = self.lecture(batch, stake, 1 if self.step < plan.short * self.total else plan.steps, anchors)
        self.accelerator.backward(loss)
        norm = self.accelerator.clip_grad_norm_(self.head.parameters(), plan.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        self.tokens_seen += sum(self._taught(self.source.texts[i]) for i in numbers)
        whole = self._summed(sums)
        count = whole.count.clamp(min=1)
        return StepReport(
            self.step,
            self.total,
            self.step / self.a_pass,
            self.tokens_seen,
            float(self.accelerator.reduce(loss.detach(), "mean")),
            tuple((whole.loss / count).tolist()),
            tuple((whole.right / count).tolist()),
            tuple((whole.accept / count).tolist()),
            rate,
            float(norm if norm is not None else 0.0),
            perf_counter() - self.began,
        )

    def _look(self) -> Look:
        held = range(len(self.learned), len(self.source.texts))
        found = simulate(self.head, self.source, held, depth=self._depth(), tokens=self.tokens)
        better = found.acceptance_length > self.best
        if better:
            self.best, self.looks = found.acceptance_length, 0
            self.best_head = {k: v.detach().cpu().clone() for k, v in self.head.state_dict().items()}
        else:
            self.looks += 1
        return Look(self.step, self.tokens_seen, found, better, perf_counter() - self.began)

    def _depth(self) -> int:
        given: Any = self.head
        return int(getattr(given, "horizon", self.plan.steps))

    def _batch(self, step: int) -> list[int]:
        """The texts of a step: shuffled, then put together by length within windows, so that little is padding."""
        epoch, place = divmod(step, self.a_pass)
        generator = torch.Generator().manual_seed(hash_of(self.plan.seed, epoch))
        order = torch.randperm(len(self.learned), generator=generator).tolist()[: self.a_pass * self.plan.batch]
        window = 16 * self.plan.batch
        batches: list[list[int]] = []
        for i in range(0, len(order), window):
            part = sorted(order[i : i + window], key=lambda j: (len(self.source.texts[j].tokens), j))
            batches += [part[k : k + self.plan.batch] for k in range(0, len(part), self.plan.batch)]
        return batches[torch.randperm(len(batches), generator=generator).tolist()[place]]

    def _stake(self, text: Text) -> int:
        taught = self._taught(text)
        return min(taught, self.plan.blocks) if hasattr(self.head, "remember") else taught

    def _taught(self, text: Text) -> int:
        return len(text.tokens) - 1 if self.plan.prompts else text.taught

    def _rate(self, step: int) -> float:
        plan = self.plan
        if step < plan.warmup:
            return plan.rate * (step + 1) / plan.warmup
        done = (step - plan.warmup) / max(1, self.total - plan.warmup)
        return plan.rate * (plan.floor + (1 - plan.floor) * 0.5 * (1 + math.cos(math.pi * done)))

    def _summed(self, sums: Sums) -> Sums:
        depths = self._depth()
        padded = torch.zeros(4, max(depths, len(sums.count)), device=sums.count.device)
        padded[:, : len(sums.count)] = torch.stack([sums.count, sums.loss, sums.right, sums.accept])
        return Sums(*self.accelerator.reduce(padded, "sum"))

    def _keep(self) -> None:
        if self.checkpoints is not None and self.accelerator.is_main_process:
            state = State(
                self.step,
                self.tokens_seen,
                self.head.state_dict(),
                [optimizer.state_dict() for optimizer in self.optimizers],
                self.best,
                self.best_head,
                self.looks,
                repr(self.plan),
            )
            self.checkpoints.put(state)

    def _resume(self) -> None:
        found = None if self.checkpoints is None else self.checkpoints.get(repr(self.plan))
        if found is None:
            return
        self.head.load_state_dict(found.head)
        for optimizer, state in zip(self.optimizers, found.optimizers, strict=True):
            optimizer.load_state_dict(state)
        self.step, self.tokens_seen, self.looks = found.step, found.tokens, found.looks
        self.best, self.best_head = found.best, found.best_head


def hash_of(*numbers: int) -> int:
    """A seed from numbers, the same in every process."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:6], "big")
