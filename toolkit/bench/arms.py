"""Arms of a suite on one model: our engine with some drafter, and Hugging Face's `generate`."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.bench.suite import Arm
from toolkit.engine import Engine
from toolkit.models import zoo
from toolkit.models.baseline import hf_generate


def engine_arm(engine: Engine, loaded: zoo.Loaded) -> Arm:
    """Texts go through the chat template, each in a session of its own."""

    def answer(text: str) -> tuple[Sequence[int], int]:
        session = engine.generate([zoo.chat(loaded.tokenizer, text)])
        return session.outputs[0], len(session.trace.steps)

    return answer


def hf_arm(loaded: zoo.Loaded, max_new_tokens: int) -> Arm:
    """Greedy; nobody counts its steps."""

    def answer(text: str) -> tuple[Sequence[int], int]:
        prompt = zoo.chat(loaded.tokenizer, text)
        return hf_generate(loaded.model, prompt, max_new_tokens=max_new_tokens, stop_tokens=loaded.stop_tokens), 0

    return answer
