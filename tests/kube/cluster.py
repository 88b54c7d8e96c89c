"""The processes of a cluster with one node. Each can be killed and started again alone."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import api

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "tests/kube/config"
RUN, BIN, NODE = (os.environ[name] for name in ("RUN", "BIN", "NODE"))
CERTIFICATES = f"{RUN}/certificates"
ADDRESS = "10.98.0.1"
ETCD = "http://127.0.0.1:2379"
# Names in the manifests of the images that ci/kube.sh makes.
IMAGES = {
    1: ("docker.io/library/python:3.12-slim-bookworm", "localhost/with-gpuslice:1", "localhost/kube-scheduler:1"),
    2: ("localhost/with-gpuslice:2",),
    3: ("localhost/kueue:1",),
}


# Lines of checks that a scenario leaves out.
skipped = []


def skip(check, elsewhere):
    """Prints a check that a scenario leaves out, with the reason, and the place where it can run."""
    skipped.append(f"SKIP {check}; elsewhere: {elsewhere}")
    print(skipped[-1], flush=True)


def until(what, look, seconds=60, pause=0.2):
    """Waits until `look` returns something true, and returns it. Failures of the apiserver count as not yet."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except (api.Refused, OSError) as error:
            last = error
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {what}" + (f" ({last})" if last else ""))


class Process:
    """A daemon. Its output goes to a file of its name."""

    def __init__(self, name, *arguments):
        self.name, self.arguments, self.running = name, arguments, None

    def start(self):
        path = f"{NODE}/usr/bin:{NODE}/usr/sbin:{os.environ['PATH']}"
        with open(f"{RUN}/{self.name}.log", "ab") as log:
            program = shutil.which(self.name, path=f"{BIN}:{path}")
            environment = {**os.environ, "PATH": path}
            self.running = subprocess.Popen(
                [program, *self.arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def kill(self):
        self.running.kill()
        self.running.wait()

    def stop(self):
        """Ends the process, and waits until it has ended."""
        if self.running and self.running.poll() is None:
            self.running.terminate()
            try:
                self.running.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def check(self):
        assert self.running.poll() is None, f"{self.name} has ended: see {RUN}/{self.name}.log"


def fill(name, place, **values):
    """Writes a file of the configuration with the values of this run."""
    text = (CONFIG / name).read_text()
    for key, value in {"run": RUN, "root": NODE, "token": api.TOKEN, **values}.items():
        text = text.replace("{" + key + "}", value)
    pathlib.Path(place).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(place).write_text(text)
    return place


def keys():
    """Makes the key of service accounts' tokens, and the administrator's token."""
    os.makedirs(CERTIFICATES)
    subprocess.run(
        ["openssl", "genrsa", "-out", f"{CERTIFICATES}/accounts.key", "2048"], check=True, capture_output=True
    )
    with open(f"{RUN}/tokens", "w") as tokens:
        tokens.write(f'{api.TOKEN},administrator,administrator,"system:masters"\n')


def processes():
    kubeconfig = fill("kubeconfig", f"{RUN}/kubeconfig")
    return [
        Process("etcd", f"--data-dir={RUN}/etcd", f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}",
                "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync"),
        Process("containerd", "--config", fill("containerd.toml", f"{RUN}/containerd.toml")),
        Process("kube-apiserver", f"--etcd-servers={ETCD}", "--secure-port=443", "--bind-address=0.0.0.0",
                f"--advertise-address={ADDRESS}", f"--cert-dir={CERTIFICATES}", f"--token-auth-file={RUN}/tokens",
                "--authorization-mode=RBAC", f"--service-account-key-file={CERTIFICATES}/accounts.key",
                f"--service-account-signing-key-file={CERTIFICATES}/accounts.key",
                "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.99.0.0/24",
                "--allow-privileged=true", "--anonymous-auth=false", "--kubelet-preferred-address-types=InternalIP",
                # Without a kube-proxy, nothing else finds the pod behind a webhook's service.
                "--shutdown-delay-duration=0s", "--enable-aggregator-routing=true"),
        Process("kube-controller-manager", f"--kubeconfig={kubeconfig}", "--leader-elect=false",
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={CERTIFICATES}/accounts.key",
                f"--root-ca-file={CERTIFICATES}/apiserver.crt"),
        Process("kube-scheduler", "--config", fill("scheduler.yaml", f"{RUN}/scheduler.yaml")),
        Process("kubelet", "--config", fill("kubelet.yaml", f"{RUN}/kubelet.yaml"), f"--kubeconfig={kubeconfig}",
                "--hostname-override=node1", "--root-dir=/var/lib/kubelet", f"--node-ip={ADDRESS}"),
    ]


class Cluster:
    def __init__(self):
        self.all = {}

    def __getitem__(self, name):
        return self.all[name]

    def start(self):
        """Starts everything, and returns when the node is ready."""
        keys()
        fill("cni.conflist", f"{RUN}/cni/pods.conflist")
        for process in processes():
            self.all[process.name] = process
        for name in ("etcd", "containerd", "kube-apiserver"):
            self.all[name].start()
        until("the apiserver answers", lambda: self.alive() and self.ready(), 120)
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.all[name].start()
        self.images()
        self.all["kubelet"].start()
        until("the node is ready", lambda: self.alive() and is_ready("node1"), 120)

    def alive(self):
        for process in self.all.values():
            if process.running:
                process.check()
        return True

    def ready(self):
        return os.path.exists(f"{CERTIFICATES}/apiserver.crt") and api.call("GET", "/readyz") == "ok"

    def images(self):
        """Imports the images of all pods into containerd."""
        ctr = [f"{NODE}/usr/bin/ctr", "--namespace", "k8s.io", "images"]
        until("containerd answers", lambda: subprocess.run([*ctr, "list"], capture_output=True).returncode == 0)
        for number, names in IMAGES.items():
            subprocess.run([*ctr, "import", f"{ROOT}/build/kube/image{number}.tar"], check=True, capture_output=True)
            for name in names:
                words = [*ctr, "tag", f"localhost/pause:{number}", name]
                subprocess.run(words, check=True, capture_output=True)

    def restart(self, name):
        """Kills a process as if it had crashed, and starts it again."""
        self.all[name].kill()
        self.all[name].start()

    def stop(self):
        for name in reversed(self.all):
            if name != "containerd":
                self.all[name].stop()
        shims = shims_of_containers()
        for pid in shims:
            os.kill(pid, signal.SIGKILL)
        if "containerd" in self.all:
            self.all["containerd"].stop()


def is_ready(node):
    status = api.call("GET", f"/api/v1/nodes/{node}")["status"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def programs(name):
    """Returns the processes of this namespace that run a program, by number."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.path.basename(words[0]) == name.encode():
            found.append((int(folder.name), [word.decode() for word in words]))
    return found


def shims_of_containers():
    return [pid for pid, _ in programs("containerd-shim-runc-v2")]


def kubectl(*arguments):
    return client(f"{BIN}/kubectl", arguments)


def helm(*arguments):
    return client(f"{ROOT}/build/charts/helm", arguments)


def client(program, arguments):
    """Runs a client of the apiserver in the repository's root. Returns its output."""
    words = [program, f"--kubeconfig={RUN}/kubeconfig", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, f"{os.path.basename(program)} {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout
