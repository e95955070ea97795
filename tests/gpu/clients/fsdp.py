# SPDX-License-Identifier: Apache-2.0
"""Training with sharded parameters: torch's fully_shard ("FSDP2"), by itself and through accelerate.

Each case trains the same small network on the same data, and one rank's copy of the network, which is not
sharded, sees the data of all ranks: the losses must agree. run_clients compares them with NCCL's, too.
"""
import os
import time

from . import Skip, need

STEPS, WIDTH, LAYERS, BATCH = 40, 256, 4, 16
WARM_STEPS = 10  # are not in the time
CLIP = 0.5


def make_model(c):
    torch = c.torch
    torch.manual_seed(11)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1)).to(c.device)


def batches(c, rank):
    """The inputs and goals of one rank, for all steps."""
    torch = c.torch
    generator = torch.Generator().manual_seed(200 + rank)
    data = torch.randn(STEPS, BATCH, WIDTH, generator=generator).to(c.device)
    return data, torch.sin(data.sum(dim=2, keepdim=True) / WIDTH ** 0.5)


def train(c, model, optimizer, data, goals, backward=None, clip=None):
    """The losses of this rank's data, and ms per step."""
    torch = c.torch
    backward = backward or (lambda loss: loss.backward())
    clip = clip or torch.nn.utils.clip_grad_norm_
    losses, begin = [], None
    for step in range(STEPS):
        if step == WARM_STEPS:
            c.sync()
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[step]), goals[step])
        backward(loss)
        clip(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.detach())
    c.sync()
    ms = (time.perf_counter() - begin) * 1e3 / (STEPS - WARM_STEPS)
    return torch.stack(losses), ms


def make_optimizer(c, model):
    return c.torch.optim.AdamW(model.parameters(), lr=2e-3)


def finish(c, losses, ms):
    """The mean of all ranks' losses agrees with training that is not sharded."""
    torch = c.torch
    mean = losses.clone()
    c.dist.all_reduce(mean)
    mean = (mean / c.n).cpu()
    parts = [batches(c, rank) for rank in range(c.n)]
    model = make_model(c)
    alone, _ = train(c, model, make_optimizer(c, model), torch.cat([data for data, _ in parts], dim=1),
                     torch.cat([goals for _, goals in parts], dim=1))
    off = ((mean - alone.cpu()).abs() / alone.cpu().abs()).max().item()
    assert off < 1e-3, f"the losses are off by {off} from training on one device: {mean.tolist()}, {alone.tolist()}"
    assert mean[-1] < 0.9 * mean[0], f"the loss did not fall: {mean.tolist()}"
    return {"text": f"{ms:.3f} ms/step, loss {mean[0].item():.4f} -> {mean[-1].item():.4f}, off by {off:.1e} from "
                    "one device", "losses": mean.tolist(), "times": {"ms/step": ms}}


def fsdp2(c):
    """fully_shard() of every layer and of the whole: all-gathers and reduce-scatters that overlap with
    computation."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError as error:
        raise Skip(f"this PyTorch has no fully_shard: {error}") from error
    from torch.distributed.device_mesh import init_device_mesh
    model = make_model(c)
    mesh = init_device_mesh(c.device.type, (c.n,))
    for layer in model:
        if isinstance(layer, c.torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    data, goals = batches(c, c.rank)
    return finish(c, *train(c, model, make_optimizer(c, model), data, goals))


def accelerate(c):
    """The same through accelerate: prepare(), backward() and clip_grad_norm_(). Without GPUs accelerate does not
    shard, so that the case trains with DDP there."""
    package = need("accelerate")
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.state import AcceleratorState
    plugin = None
    if c.device.type != "cpu":
        os.environ["ACCELERATE_USE_FSDP"] = "true"
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap",
                                                min_num_params=1000, reshard_after_forward=True)
    accelerator = package.Accelerator(fsdp_plugin=plugin, cpu=plugin is None)
    model = make_model(c)
    model, optimizer = accelerator.prepare(model, make_optimizer(c, model))
    n_sharded = sum(hasattr(parameter, "to_local") for parameter in model.parameters())
    assert plugin is None or n_sharded > 0, "accelerate sharded no parameter"
    data, goals = batches(c, c.rank)
    losses, ms = train(c, model, optimizer, data, goals, accelerator.backward, accelerator.clip_grad_norm_)
    gathered = accelerator.gather(losses[-1:])
    assert gathered.numel() == c.n and gathered[c.rank] == losses[-1], (gathered, losses[-1])
    result = finish(c, losses, ms)
    accelerator.free_memory()
    if plugin is not None:
        result["text"] += f", {n_sharded} parameters sharded"
    AcceleratorState._reset_state(reset_partial_state=True)
    return result
