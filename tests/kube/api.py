"""Client of the apiserver, with the rights of an administrator."""

import json
import os
import ssl
import urllib.error
import urllib.request

RUN = os.environ["RUN"]
SERVER = "https://10.99.0.1:443"
TOKEN = "administrator"
PATIENCE = 20
# The only user whom the manifests' policy lets write the allocation of a pod.
EXTENDER = "system:serviceaccount:gpuslice:gpuslice-scheduler"


class Refused(Exception):
    """The apiserver's status, and its reason."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


def _context():
    return ssl.create_default_context(cafile=f"{RUN}/certificates/apiserver.crt")


def call(method, path, body=None, kind="application/json", user=None):
    """Returns the answer, parsed if it is JSON. `user`: on behalf of another user."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data, method=method)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Content-Type", kind)
    if user:
        request.add_header("Impersonate-User", user)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=_context()) as answer:
            text = answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return json.loads(text) if is_json else text.decode()
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode(errors="replace")) from error


def pods(namespace="default", selector=""):
    return call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]


def pod(name, namespace="default"):
    """Returns the pod, or None if there is none."""
    try:
        return call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    except Refused as refused:
        if refused.status == 404:
            return None
        raise


def make(pod, namespace="default"):
    return call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def annotate(name, values, user=None, namespace="default"):
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    return call("PATCH", path, {"metadata": {"annotations": values}}, "application/merge-patch+json", user)


def delete(name, namespace="default", grace=0):
    """Ends a pod. It is no error if there is none. A grace of 0 removes the pod before it has ended."""
    try:
        call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": grace})
    except Refused as refused:
        if refused.status != 404:
            raise


def log(name, namespace="default"):
    return call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log")


def events(name, namespace="default"):
    """Returns the messages about a pod."""
    path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{name}"
    return [event["message"] for event in call("GET", path)["items"]]
