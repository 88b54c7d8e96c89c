"""Frameworks on NVIDIA's CUDA runtime: they load, and stop when the runtime asks the driver for a private table."""

import contextlib
import importlib.util
import io
import os

from harness import claim, main, skip


@contextlib.contextmanager
def silence():
    """Discards the output of the framework and its native code."""
    kept = os.dup(1), os.dup(2)
    with open(os.devnull, "w") as nowhere:
        for standard in (1, 2):
            os.dup2(nowhere.fileno(), standard)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            for standard, own in zip((1, 2), kept):
                os.dup2(own, standard)
                os.close(own)


def torch():
    import torch

    return torch.empty(1, device="cuda")


def cupy():
    import cupy

    return cupy.empty(1)


def warp():
    import warp

    warp.init()
    return warp.zeros(1, device="cuda:0")


def jax():
    import jax

    return jax.devices("cuda")


# The message of each framework. JAX does not reach the runtime: it does not look for a GPU without /dev/nvidia0.
STOPS = [
    (torch, "Error 1: invalid argument"),
    (cupy, "cudaErrorInvalidValue: invalid argument"),
    (warp, "Failed to allocate 4 bytes on device 'cuda:0'"),
    (jax, "Unknown backend cuda"),
]


def why(attempt):
    try:
        with silence():
            made = attempt()
    except Exception as error:  # each framework has its own
        return str(error)
    return f"it did not: {made}"


def use():
    found = [(attempt, words) for attempt, words in STOPS if importlib.util.find_spec(attempt.__name__)]
    for attempt, words in found or skip("no framework on the CUDA runtime; to mend it: ci/frameworks.sh cupy"):
        said = why(attempt)
        claim(f"{attempt.__name__} stops: {words}", words in said, said)


def obey(_quota):
    """Claims nothing more, because the framework never took memory."""
    use()


main(use, obey)
