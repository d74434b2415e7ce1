"""The config that all layouts of vLLM's speculators share: the layers' fields nested, and who verifies the guesses."""

from __future__ import annotations

from typing import Any

import torch

from toolkit.heads.config import HeadConfig
from toolkit.heads.dialects import fitting
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Export, Notes

VERSION = "0.9.0"  # of the package whose files these are like


def says(c: Checkpoint, kind: str) -> bool:
    return c.option("speculators_model_type") == kind


def config(
    kind: str, architecture: str, head: HeadConfig, dtype: torch.dtype, export: Export, *, guesses: int, **own: Any
) -> dict[str, Any]:
    """`guesses` a step; `own` are the kind's fields."""
    layers = fitting.body(head, export.target, dtype)
    rope = {"rope_type": "default", "rope_theta": head.rope_theta}
    return {
        "architectures": [architecture],
        "speculators_model_type": kind,
        "speculators_version": VERSION,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": guesses,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "verifier": {"name_or_path": export.verifier, "architectures": [export.target.name]},
        },
        "transformer_layer_config": {
            "model_type": "qwen3" if head.qk_norm else "llama",
            **layers,
            "rope_parameters": rope,
        },
        "tie_word_embeddings": False,
        "torch_dtype": layers["torch_dtype"],
        **own,
    }


def unnamed(export: Export) -> Notes:
    """The note on a target without a name, from which readers fetch what the file does not hold."""
    if export.verifier:
        return ()
    return ("the config names no verifier, where readers look for the target: save with verifier='owner/name'",)
