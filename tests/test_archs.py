"""One unchanged transformers model after the other: random trees in ragged batches equal its own generate."""

import numpy as np
import pytest
import torch
import transformers as tf
from tiny import PROMPTS, RandomTrees, reference

from toolkit.drafting import Chain, DraftModel, Dynamic, EarlyExit, NGram
from toolkit.engine import Engine
from toolkit.models.attention import NAME, our_attention
from toolkit.models.early_exit import first_layers
from toolkit.models.hf import HFModel
from toolkit.protocols import Paging
from toolkit.sampling import Stopping
from toolkit.trace import metrics
from toolkit.tree import TokenTree

BASE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
MIXED = ["sliding_attention", "sliding_attention", "full_attention"]
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
MLA = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "max_position_embeddings": 512,
    "first_k_dense_replace": 1,
}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 512}
NEOX = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
ARCHS = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**BASE)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**BASE)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**BASE)),
    "qwen3 moe": lambda: tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(**BASE, **EXPERTS)),
    "mistral, window 8": lambda: tf.MistralForCausalLM(tf.MistralConfig(**BASE, sliding_window=8)),
    "gemma 2, window 8, soft-capping": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**BASE, sliding_window=8)),
    "gemma 3, window 8": lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**BASE, sliding_window=8, layer_types=MIXED)),
    "gpt-oss, window 8, sinks": lambda: tf.GptOssForCausalLM(
        tf.GptOssConfig(**BASE, sliding_window=8, num_local_experts=4, num_experts_per_tok=2, layer_types=MIXED)
    ),
    "gpt-2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2)),
    "gpt-neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**NEOX)),
    "phi-3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**BASE)),
    "olmo 2": lambda: tf.Olmo2ForCausalLM(tf.Olmo2Config(**BASE)),
    "deepseek v3, latent attention": lambda: tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(**MLA)),
    "granite": lambda: tf.GraniteForCausalLM(tf.GraniteConfig(**{k: v for k, v in BASE.items() if k != "head_dim"})),
    "smollm 3, no positions in some layers": lambda: tf.SmolLM3ForCausalLM(tf.SmolLM3Config(**BASE)),
    "opt": lambda: tf.OPTForCausalLM(
        tf.OPTConfig(
            vocab_size=64,
            hidden_size=32,
            ffn_dim=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=512,
            word_embed_proj_dim=32,
        )
    ),
}


def make(name: str) -> tf.PreTrainedModel:
    torch.manual_seed(0)
    model = ARCHS[name]().eval()
    if not any(word in name for word in ("moe", "oss", "deepseek")):  # experts have no float64 kernel
        model.double()
    for p in model.parameters():
        p.data.mul_(2 if p.ndim > 1 else 1)
    return model


@pytest.mark.parametrize("name", ARCHS)
def test_trees_equal_generate(name):
    model = make(name)
    before = model.config._attn_implementation
    target = HFModel(model)
    want = [reference(model, p, 30) for p in PROMPTS]
    engine = Engine(target, RandomTrees(want, [len(p) for p in PROMPTS]), stopping=Stopping(30))
    session, trees = engine.start(PROMPTS), engine.drafter
    while not session.done:
        engine.drafter = [trees, NGram(shortest=1, branches=2)][len(session.trace.steps) % 2]
        engine.step(session)
    assert session.outputs == want
    rows = list(metrics.row_steps(session.trace.steps))
    assert any(len(r.path) > 1 for r in rows) and any(2 in r.outcome for r in rows)
    assert model.config._attn_implementation == before, "nothing stays behind on the model"


@pytest.mark.parametrize("name", ["llama", "gemma 2, window 8, soft-capping", "gpt-oss, window 8, sinks", "gpt-2"])
def test_a_plain_pass_in_the_midst_of_ours_is_what_it_was(name):
    """As when the next cell uses the model of a run in the background."""
    model = make(name)
    target = HFModel(model)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])
    before, implementation = model(input_ids=ids).logits, model.config._attn_implementation
    for attends in {implementation, "eager"}:
        model.set_attn_implementation(attends)
        with our_attention(target._configs):
            assert torch.allclose(model(input_ids=ids).logits, before, atol=1e-4)
        switch = our_attention(target._configs)

        def later(*_, switch=switch):
            switch.__enter__()

        hook = target.decoder[0].register_forward_hook(later)  # its mask was made for what it had
        assert torch.allclose(model(input_ids=ids).logits, before, atol=1e-4)
        hook.remove()
        with our_attention(target._configs):
            switch.__exit__(None, None, None)
            assert model.config._attn_implementation == NAME, "another pass is under way"
        assert model.config._attn_implementation == attends


@pytest.mark.parametrize("name", ["mistral, window 8", "gemma 3, window 8", "gpt-oss, window 8, sinks"])
@pytest.mark.parametrize("length", [7, 8, 9, 40])
def test_windows_are_kept_before_at_and_past_their_end(name, length):
    model = make(name)
    prompts = [[1, 5, 9, 13, 17][i % 5 : i % 5 + 1] * 1 + [3] * (length - 1) for i in range(2)]
    want = [reference(model, p, 20) for p in prompts]
    session = Engine(HFModel(model), RandomTrees(want, [length] * 2), stopping=Stopping(20)).generate(prompts)
    assert session.outputs == want


@pytest.mark.parametrize("name", ["llama", "gemma 3, window 8", "gpt-2", "qwen3 moe"])
def test_an_early_exit_shares_weights_and_leaves_the_model_alone(name):
    model = make(name)
    target = HFModel(model)
    draft = first_layers(target, 2)
    assert {id(p) for p in draft.model.parameters()} < {id(p) for p in model.parameters()}
    want = [reference(model, p, 20) for p in PROMPTS]
    for drafter in (DraftModel(draft, Chain(3)), EarlyExit(draft, Dynamic(2, 3, 6))):
        session = Engine(target, drafter, stopping=Stopping(20)).generate(PROMPTS)
        assert session.outputs == want == [reference(model, p, 20) for p in PROMPTS]
    with pytest.raises(ValueError, match="1 to 2 of the 3 layers; got 3"):
        first_layers(target, 3)


HYBRID = dict(
    EXPERTS,
    shared_expert_intermediate_size=16,
    linear_num_value_heads=4,
    linear_num_key_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
)
REFUSED = {
    "Mamba": lambda: tf.MambaForCausalLM(tf.MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2)),
    "Bloom": lambda: tf.BloomForCausalLM(tf.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)),
    "Qwen3Next": lambda: tf.Qwen3NextForCausalLM(tf.Qwen3NextConfig(**{**BASE, "num_hidden_layers": 4}, **HYBRID)),
    "T5": lambda: tf.T5ForConditionalGeneration(
        tf.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    ),
    "Mpt": lambda: tf.MptForCausalLM(tf.MptConfig(vocab_size=64, d_model=32, n_heads=4, n_layers=2)),
    "Rwkv": lambda: tf.RwkvForCausalLM(tf.RwkvConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2)),
    "Falcon": lambda: tf.FalconForCausalLM(
        tf.FalconConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_read_trees_is_refused_in_one_sentence(name):
    with pytest.raises(
        ValueError, match=rf"^{name}\w* (cannot read token trees|is an encoder-decoder|has no layer list).*: ?.*"
    ) as caught:
        HFModel(REFUSED[name]())
    assert "\n" not in str(caught.value)


@torch.inference_mode()
@pytest.mark.parametrize("name", ARCHS)
def test_pages_give_the_slabs_numbers_bit_for_bit(name):
    """float32, a ragged batch: prompts, then three random trees with a path of each kept, through both layouts."""
    torch.manual_seed(0)
    lm = HFModel(ARCHS[name]().float().eval())
    g = torch.Generator().manual_seed(1)
    stores = [
        lm.open(3, 8),
        lm.open(3, 8, Paging(1)),
        lm.open(3, 8, Paging(4, 40)),
        lm.open(3, 8, Paging(16, 9, False)),
    ]
    prompt = torch.randint(0, lm.vocab, (3, 11), generator=g)
    real = torch.arange(11) < torch.tensor([[11], [4], [9]])
    host, filled = prompt.numpy(), real.sum(1).numpy()
    chain, texts = TokenTree.chain(prompt, real), [row[:n].tolist() for row, n in zip(host, filled, strict=True)]

    def compare(tree: TokenTree) -> None:
        readings = [lm.read(tree, store, taps=(1, "final")) for store in stores]
        for other in readings[1:]:
            assert torch.equal(other.logits[tree.real], readings[0].logits[tree.real])
            assert torch.equal(other.feature[tree.real], readings[0].feature[tree.real])

    def settle(tree: TokenTree, path: torch.Tensor) -> None:
        host = np.zeros((3, 99), np.int64)
        for row, text in zip(host, texts, strict=True):
            row[: len(text)] = text
        for store in stores:
            store.keep(tree, path)
            store.trust(host, np.array([len(text) for text in texts]))

    compare(chain)
    states = lm.model(input_ids=prompt[:1], use_cache=False, output_hidden_states=True).hidden_states
    tapped = lm.read(chain, lm.open(3, 16), taps=(1, "final")).feature[0]
    torch.testing.assert_close(tapped, torch.cat([states[1], states[-1]], -1)[0], rtol=1e-3, atol=1e-4)
    settle(chain, real)
    for _ in range(3):
        parent = torch.tensor(
            [[-1, *(int(torch.randint(0, i, (1,), generator=g)) for i in range(1, 7))] for _ in range(3)]
        )
        tree = TokenTree(torch.randint(0, lm.vocab, (3, 7), generator=g), parent, torch.ones(3, 7).bool())
        compare(tree)
        path = tree.path(torch.randint(0, 7, (3,), generator=g))
        for b, text in enumerate(texts):
            text += tree.token[b][path[b]].tolist()
        settle(tree, path)
