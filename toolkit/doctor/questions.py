"""A handful of questions, and what the target answers: what a head is graded by where nobody gives texts."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.engine import Engine
from toolkit.models import zoo
from toolkit.models.chats import Tokenizer, rendered
from toolkit.sampling import Sampling, Stopping
from toolkit.training.texts import Text

QUESTIONS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a lighthouse keeper and a storm.",
    "List five uses of a paper clip.",
    "What is the difference between weather and climate?",
    "Write a Python function that reverses a string.",
    "How do I cook rice?",
)


def asked(
    engine: Engine, tokenizer: Tokenizer, *, chat: bool = True, questions: Sequence[str] = QUESTIONS, tokens: int = 48
) -> list[Text]:
    """Each question with the target's own greedy answer of at most `tokens` tokens, put through the chat template or bare."""
    prompts = [
        rendered(tokenizer, [{"role": "user", "content": q}], begun=True) if chat else zoo.plain(tokenizer, q)
        for q in questions
    ]
    session = engine.generate(prompts, sampling=Sampling(), stopping=Stopping(tokens, engine.stopping.tokens))
    return [
        Text((*p, *out), ((len(p), len(p) + len(out)),)) for p, out in zip(prompts, session.outputs, strict=True) if out
    ]
