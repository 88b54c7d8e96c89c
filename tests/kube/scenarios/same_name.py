"""Pods with the same name, one after the other: each has its own limits."""

import api
from slices import check, pod, remove, running


def scenario(cluster):
    rounds = 8
    for number in range(rounds):
        api.make(pod("twin", 1024 + number, 10 + number))
        check([running("twin")])
        # By turns: the first container has ended before the next pod comes, or the kubelet is still ending it.
        if number % 2:
            remove(["twin"])
        else:
            api.delete("twin", grace=0)
    remove(["twin"])
    return f"{rounds} pods, half of them made while the kubelet still ends the one before: 0 mismatches"
