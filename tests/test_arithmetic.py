"""Weights laid by column change nothing but time, and the fastest dtype is one that the device can multiply."""

from __future__ import annotations

import pytest
import torch
from tiny import loaded
from torch import nn
from transformers import AutoModelForCausalLM

from toolkit.bench.arithmetic import measure
from toolkit.models import arithmetic, zoo
from toolkit.models.baseline import hf_generate


@pytest.fixture
def by_column(monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_by_column_is_the_same_model_and_can_be_saved(by_column, tied, tmp_path):
    model = loaded().model.float()
    if tied:
        model.lm_head.weight = model.get_input_embeddings().weight
    before = hf_generate(model, [3, 4, 5], max_new_tokens=12)
    values = [p.clone() for p in model.parameters()]
    arithmetic.lay_by_column(model)
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert layers and all(layer.weight.t().is_contiguous() for layer in layers)
    assert model.get_input_embeddings().weight.is_contiguous()
    assert all(any(torch.equal(v, p) for p in model.parameters()) for v in values)
    assert hf_generate(model, [3, 4, 5], max_new_tokens=12) == before
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)


def test_other_numbers_stay_as_they_lie(by_column):
    for dtype in (torch.bfloat16, torch.float64):
        layer = nn.Linear(3, 4).to(dtype)
        arithmetic.lay_by_column(layer)
        assert layer.weight.is_contiguous()


@pytest.mark.parametrize(
    "able, dtype",
    [({"amx_bf16": True}, "bfloat16"), ({"avx512_bf16": False, "avx512_f": True}, "float32"), ({}, "float32")],
)
def test_the_fastest_dtype_is_one_with_arithmetic(monkeypatch, able, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    assert zoo.as_dtype("fastest") == zoo.DTYPES[dtype]
    assert zoo.as_dtype("bfloat16") == torch.bfloat16  # who names one gets it


def test_the_measurement_times_every_arm(by_column):
    assert all(ms > 0 for ms in measure(2, layers=1, repeats=2))
