# SPDX-License-Identifier: Apache-2.0
"""Inference with a model of Hugging Face's transformers that is cut over the ranks (tp_plan="auto").

The model is a small Llama with random weights, and the prompt has random tokens, so that nothing is
downloaded. Servers such as vLLM communicate in the same places: one all-reduce after each attention and one
after each feed-forward block, of one token at a time while they generate.
"""
import os
import shutil
import statistics
import tempfile
import time

from . import need

PROMPT, NEW_TOKENS, BATCH = 64, 48, 2
TIMES = 5        # of generate(), for the median
FORWARDS = 20    # of the whole prompt


def make_config(transformers, n_ranks, on_gpu):
    heads = max(8, n_ranks)
    return transformers.LlamaConfig(
        vocab_size=2048, hidden_size=128 * heads if on_gpu else 16 * heads,
        intermediate_size=256 * heads if on_gpu else 32 * heads, num_hidden_layers=8 if on_gpu else 3,
        num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=512,
        bos_token_id=None, eos_token_id=None, pad_token_id=0)


def cut_over_ranks():
    """The argument of from_pretrained(): tp_plan="auto", which later versions take in an object."""
    try:
        from transformers.distributed import DistributedConfig
        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    except (ImportError, TypeError):
        return {"tp_plan": "auto"}


def load(c, transformers, folder, dtype, **how):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **how)
    if not how:
        model = model.to(c.device)
    return model.eval()


def generate(model, tokens):
    return model.generate(tokens, attention_mask=tokens.new_ones(tokens.shape), do_sample=False,
                          max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, pad_token_id=0)


def whole(torch, logits):
    """Some versions of transformers return a tensor that knows how it is cut."""
    return logits.full_tensor() if hasattr(logits, "full_tensor") else logits


def median_ms(c, function, n_times):
    function()
    times = []
    for _ in range(n_times):
        c.dist.barrier()
        c.sync()
        begin = time.perf_counter()
        function()
        c.sync()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def check_values(c, transformers, folder, tokens):
    """In float32: the logits, and every token that greedy decoding chooses, are those of the whole model."""
    torch = c.torch
    alone = load(c, transformers, folder, torch.float32)
    wanted, wanted_tokens = alone(tokens).logits, generate(alone, tokens)
    del alone
    shared = load(c, transformers, folder, torch.float32, **cut_over_ranks())
    n_cut = sum(tuple(p.to_local().shape) != tuple(p.shape) for p in shared.parameters()
                if hasattr(p, "to_local"))
    assert c.n == 1 or n_cut > 0, "no parameter is cut over the ranks"
    logits = whole(torch, shared(tokens).logits)
    off = (logits - wanted).abs().max().item()
    allowed = 1e-4 * wanted.abs().max().item()
    assert off <= allowed, f"logits of rank {c.rank} are off by {off}, more than {allowed}"
    got = generate(shared, tokens)
    wrong = (got != wanted_tokens).nonzero()
    assert len(wrong) == 0, (f"rank {c.rank}: token {wrong[0].tolist()} of {got.shape} is "
                             f"{got[tuple(wrong[0])].item()}, not {wanted_tokens[tuple(wrong[0])].item()}")
    return off


def tensor_parallel(c):
    """A Llama cut over all ranks computes what one device computes; times in bfloat16."""
    transformers = need("transformers")
    need("accelerate")
    torch, dist = c.torch, c.dist
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    on_gpu = c.device.type == "cuda"
    folder = [tempfile.mkdtemp(prefix="gyre-llama-") if c.rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    try:
        if c.rank == 0:
            torch.manual_seed(5)
            model = transformers.LlamaForCausalLM(make_config(transformers, c.n, on_gpu))
            model.save_pretrained(folder[0])
            del model
        dist.barrier()
        generator = torch.Generator().manual_seed(6)
        tokens = torch.randint(1, 2048, (BATCH, PROMPT), generator=generator).to(c.device)
        with torch.no_grad():
            off = check_values(c, transformers, folder[0], tokens)
            model = load(c, transformers, folder[0], torch.bfloat16, **cut_over_ranks())
            per_token = median_ms(c, lambda: generate(model, tokens), TIMES) / NEW_TOKENS
            forward = median_ms(c, lambda: model(tokens), FORWARDS)
        dist.barrier()
    finally:
        if c.rank == 0:
            shutil.rmtree(folder[0], ignore_errors=True)
    return {"text": f"{per_token:.3f} ms/token, {forward:.3f} ms/forward of {BATCH * PROMPT} tokens, "
                    f"logits off by {off:.1e}",
            "times": {"ms/token": per_token, f"ms/forward of {BATCH * PROMPT} tokens": forward}}
