"""Three pods with claims on one GPU, as the guide starts them: each sees its own limits."""

import api
import claims
from cluster import kubectl, until
from slices import all_run, nothing_left


def scenario(cluster):
    kubectl("apply", "-f", "examples/kubernetes/dra/three-pods.yaml")
    pods = until("three pods run", lambda: all_run("app%3Dthree-claims", 3), 90)
    given = claims.check(pods)
    assert len(given) == 1, f"they are on {given}"
    assert set(given.values()) == {(12 << 30, 90)}, given
    kubectl("delete", "-f", "examples/kubernetes/dra/three-pods.yaml", "--grace-period=1")
    left = nothing_left()
    until("the claims are gone", lambda: not api.call("GET", claims.CLAIMS)["items"])
    return f"3 pods on {next(iter(given))}, 4 GiB and 30 % each; their files are gone after {left:.0f} s"
