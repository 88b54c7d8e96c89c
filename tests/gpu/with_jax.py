"""Tests that unmodified JAX keeps to a quota, with and without its preallocation, and computes the same as without the
library."""

import importlib.util

from bench import GIB, MIB, Skip, main

QUOTA, PIECE, OWN = 4 * GIB, 256 * MIB, 1 * GIB


def usable():
    """Runs one operation, which fails if JAX does not work."""
    import jax

    if jax.devices()[0].platform not in ("gpu", "cuda"):
        raise Skip(f"JAX runs on {jax.devices()[0].platform}")
    return {}


def fill():
    """Allocates arrays until JAX reports out of memory, frees them, and allocates again."""
    import jax
    import jax.numpy as jnp

    def take():
        return jnp.full((PIECE,), 7, dtype=jnp.uint8).block_until_ready()

    device, held, error = jax.devices()[0], [], None
    while error is None and len(held) < 64:
        try:
            held.append(take())
        except Exception as raised:  # the class has had several names
            error = str(raised)
    taken = len(held) * PIECE
    del held
    again = [take() for _ in range(taken // PIECE // 2)]
    stats = device.memory_stats() or {}
    return {
        "version": jax.__version__, "platform": device.platform, "taken": taken, "error": (error or "")[:300],
        "again": len(again), "pool": stats.get("bytes_limit"),
    }  # fmt: skip


def train():
    """Runs steps of a small regression."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(1), 3)
    inputs, outputs = jax.random.normal(keys[0], (64, 32)), jax.random.normal(keys[1], (64, 4))
    weights = jax.random.normal(keys[2], (32, 4))

    def loss(weights):
        return jnp.mean((jnp.tanh(inputs @ weights) - outputs) ** 2)

    step = jax.jit(lambda weights: weights - 0.1 * jax.grad(loss)(weights))
    for _ in range(5):
        weights = step(weights)
    return {"platform": jax.devices()[0].platform, "loss": float(loss(weights)).hex(), "weights": float(weights.sum()).hex()}


def run(part):
    if part.simulated:
        return part.skip("JAX", "the CUDA runtime needs tables that only NVIDIA's driver has")
    if importlib.util.find_spec("jax") is None:
        return part.skip("JAX", "python3 has no jax")
    if not part.usable("JAX"):
        return None
    fixed = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
    for name, choice in (("as it needs", "false"), ("in advance", "true")):
        with part.about(f"JAX, memory taken {name}"):
            seen = part.work("fill", limit=QUOTA, patience=90, env={"XLA_PYTHON_CLIENT_PREALLOCATE": choice})
            part.figure(f"fill {name}", seen)
            part.check(f"{name}: full is RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED" in seen["error"], seen)
            part.check(f"{name}: no more than the quota is granted", seen["taken"] <= QUOTA, seen)
            # JAX allocates three quarters of the memory that it sees in advance.
            part.check(f"{name}: what fits is granted", seen["taken"] >= QUOTA * 3 // 4 - OWN, seen)
            part.check(f"{name}: what was deleted can be had again", seen["again"] > 0, seen)
    with part.about("JAX, a fraction of the quota in advance"):
        env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".50"}
        seen = part.work("fill", limit=QUOTA, patience=90, env=env)
        part.figure("fill of a fraction of 0.5", seen)
        within = seen["pool"] is None or abs(seen["pool"] - QUOTA // 2) <= OWN // 2
        part.check("XLA_PYTHON_CLIENT_MEM_FRACTION is of the quota and not of the device", within, seen)
        part.check("no more than the fraction is granted", QUOTA // 4 <= seen["taken"] <= QUOTA // 2, seen)
    with part.about("JAX, a training step"):
        bare, loaded, limited = part.three_ways("train", limit=QUOTA, patience=90, env=fixed)
        part.check("a training step gives the same, loaded", loaded == bare, loaded, bare)
        part.check("a training step gives the same, inside a quota", limited == bare, limited, bare)
    return None


if __name__ == "__main__":
    main(__file__, run, usable, fill, train)
