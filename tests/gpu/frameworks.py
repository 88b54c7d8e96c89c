"""Tests that frameworks under a quota and a share compute the same as bare, and end with the same status."""

import importlib.util
import os
import signal
import sys
from ctypes import byref, c_int, c_uint, c_uint64

from bench import GIB, MIB, Skip, main, tell
from driver import Cuda

QUOTA, SHARE = 4 * GIB, 50
# Difference of results that is allowed if two runs without the library differ already.
CLOSE = 1e-3


def by_driver():
    """Fills, copies and frees memory by the driver's calls alone."""
    cuda, told = Cuda(), {}
    size, stream = 4 * MIB, cuda.stream()
    one, two = cuda.value("cuMemAlloc_v2", size), cuda.value("cuMemAllocAsync", size, stream)
    cuda("cuMemsetD32_v2", one, c_uint(0x01020304), size // 4)
    cuda("cuCtxSynchronize")  # another stream does not wait for it
    cuda("cuMemcpyDtoDAsync_v2", two, one, size, stream)
    cuda("cuMemsetD8Async", two, c_int(9), 100, stream)
    cuda("cuStreamSynchronize", stream)
    back = (c_uint64 * (size // 8))()
    cuda("cuMemcpyDtoH_v2", byref(back), two, size)
    told["sum"] = sum(back)
    cuda("cuMemFreeAsync", two, stream)
    cuda("cuMemFree_v2", one)
    cuda("cuStreamSynchronize", stream)
    return told


def by_torch():
    """Computes products, convolutions, attention, sorts, transforms, random numbers, solvers, and a few training steps."""
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    device = {"device": "cuda"}
    matrix, images = torch.randn(512, 512, **device), torch.randn(8, 3, 64, 64, **device)
    heads = torch.randn(2, 8, 128, 64, **device, dtype=torch.half)
    told = {
        "product": (matrix @ matrix).double().sum(),
        "attention": torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).double().sum(),
        "sort": matrix.flatten().sort().values[::1000].double().sum(),
        "transform": torch.fft.fft2(matrix).abs().double().sum(),
        "random": torch.rand(1000, **device).double().sum(),
        "solver": torch.linalg.solve(matrix + 100 * torch.eye(512, **device), matrix).double().sum(),
    }
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 62 * 62, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for number in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(images), torch.arange(8, **device))
        loss.backward()
        optimizer.step()
        told[f"loss {number}"] = loss.double()
    return {"version": torch.__version__, **{name: value.item() for name, value in told.items()}}


def by_triton():
    """Runs a kernel that Triton compiles here."""
    import torch
    import triton
    import triton_kernel

    return {"version": triton.__version__, "sum": triton_kernel.added(torch)}


def by_jax():
    """Computes products, transforms, sorts, random numbers, and a compiled training step."""
    import jax
    import jax.numpy as jnp

    if jax.devices()[0].platform not in ("gpu", "cuda"):
        raise Skip(f"JAX runs on {jax.devices()[0].platform}")
    keys = jax.random.split(jax.random.PRNGKey(1), 3)
    matrix, weights = jax.random.normal(keys[0], (512, 512)), jax.random.normal(keys[1], (512, 4))

    def loss(weights):
        return jnp.mean((jnp.tanh(matrix @ weights) - 1) ** 2)

    step = jax.jit(lambda weights: weights - 0.1 * jax.grad(loss)(weights))
    for _ in range(5):
        weights = step(weights)
    told = {"product": (matrix @ matrix).sum(), "transform": jnp.abs(jnp.fft.fft2(matrix)).sum(), "loss": loss(weights),
            "sort": jnp.sort(matrix.flatten())[::1000].sum(), "random": jax.random.uniform(keys[2], (1000,)).sum()}  # fmt: skip
    return {"version": jax.__version__, **{name: float(value) for name, value in told.items()}}


def by_cupy():
    """Computes products, transforms, sorts, and a kernel that is compiled here."""
    import cupy

    values = cupy.arange(1 << 16, dtype=cupy.float32).reshape(256, 256) / (1 << 16)
    twice = cupy.RawKernel('extern "C" __global__ void twice(float *x) { x[blockIdx.x * 256 + threadIdx.x] *= 2; }', "twice")
    doubled = values.copy()
    twice((256,), (256,), (doubled,))
    told = {"product": (values @ values).sum(), "transform": cupy.abs(cupy.fft.fft2(values)).sum(), "doubled": doubled.sum(),
            "sort": cupy.sort(cupy.sin(values * 99).ravel())[::100].sum()}  # fmt: skip
    return {"version": cupy.__version__, **{name: float(value) for name, value in told.items()}}


def by_tensorflow():
    """Computes products and training steps. TensorFlow allocates memory in advance, which is its default."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        raise Skip("TensorFlow sees no GPU")
    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    matrix, images = tf.random.normal((512, 512)), tf.random.normal((8, 32, 32, 3))
    net = tf.keras.Sequential(
        [tf.keras.layers.Conv2D(8, 3, activation="relu"), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)]
    )
    optimizer = tf.keras.optimizers.SGD(0.01)
    told = {"product": tf.reduce_sum(matrix @ matrix)}
    for number in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(tf.range(8), net(images), from_logits=True))
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables))
        told[f"loss {number}"] = loss
    return {"version": tf.__version__, **{name: float(value) for name, value in told.items()}}


# Function that computes, and the modules that it needs, by name of the framework.
FRAMEWORKS = {
    "driver API": (by_driver, []), "PyTorch": (by_torch, ["torch"]), "Triton": (by_triton, ["torch", "triton"]),
    "JAX": (by_jax, ["jax"]), "CuPy": (by_cupy, ["cupy"]), "TensorFlow": (by_tensorflow, ["tensorflow"]),
}  # fmt: skip
FIXED = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true", "TF_CPP_MIN_LOG_LEVEL": "2"}
# Ends of a program, with the status of each: a number of its own, an exception, a signal.
ENDS = {"exit": 7, "exception": 1, "signal": -signal.SIGTERM}


def compute(framework):
    return FRAMEWORKS[framework][0]()


def leave(framework, how):
    """Computes, and ends in the given way."""
    FRAMEWORKS[framework][0]()
    tell({})
    if how == "exit":
        sys.exit(ENDS["exit"])
    if how == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    raise RuntimeError("on purpose")


def same(one, other, exactly):
    """Returns whether two results are the same: to the bit, or nearly."""
    if exactly:
        return one == other
    numbers = [name for name, value in one.items() if isinstance(value, float)]
    return one.keys() == other.keys() and all(abs(one[name] - other[name]) <= CLOSE * max(1, abs(one[name])) for name in numbers)


def ended(part, framework, patience=90, **how):
    """Returns the results of a framework and its exit status, if it ended."""
    with part.start("compute", framework=framework, **how) as worker:
        return worker.answer(patience), worker.end(30)


def measure(part, framework):
    bare = {"env": FIXED}
    inside = {"limit": QUOTA, "env": {**FIXED, "GPU_CORE_PERCENT": str(SHARE)}}
    try:
        first, status = ended(part, framework, 120, **bare)
    except Exception as why:  # no such error is the library's fault
        return part.skip(framework, f"not even without the library: {why}")
    again, _ = ended(part, framework, **bare)
    limited, limited_status = ended(part, framework, **inside)
    exactly = first == again
    part.figure(framework, {"bare": first, "inside": limited, "two bare runs are the same to the bit": exactly})
    how = "to the bit" if exactly else "nearly, as two bare runs are"
    part.check(f"{framework}: the same results under a quota and a share, {how}", same(first, limited, exactly), first, limited)
    part.check(f"{framework}: ends with the same status", status == limited_status == 0, status, limited_status)
    for way, wanted in ENDS.items():
        with part.start("leave", framework=framework, how=way, **inside) as worker:
            worker.answer(90)
            got = worker.end(30)
        part.check(f"{framework}: ends by {way} as without the library", got == wanted, got, wanted)
    return None


def run(part):
    for framework, (_, needs) in FRAMEWORKS.items():
        missing = [name for name in needs if importlib.util.find_spec(name) is None]
        if part.simulated and needs:
            part.skip(framework, "the CUDA runtime needs tables that only NVIDIA's driver has")
        elif missing:
            part.skip(framework, f"python3 has no {missing[0]}")
        else:
            with part.about(framework):
                measure(part, framework)


if __name__ == "__main__":
    main(__file__, run, compute, leave)
