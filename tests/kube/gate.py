"""Webhook between the extender's patch and its binding: the apiserver asks it about each binding, and waits for its answer."""

import base64
import http.server
import json
import os
import ssl
import subprocess
import threading

import api

PORT = 9443
ADDRESS = "10.98.0.1"
PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Gate:
    """Calls `act` with the pod's name at each binding. The pod is bound after `act` has returned."""

    def __init__(self, act):
        self.act, self.seen = act, []

    def __enter__(self):
        certificate, key = (f"{api.RUN}/gate.{name}" for name in ("crt", "key"))
        if not os.path.exists(certificate):
            words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=gate"]
            names = ["-addext", f"subjectAltName=IP:{ADDRESS}", "-keyout", key, "-out", certificate]
            subprocess.run([*words, *names], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server = http.server.ThreadingHTTPServer((ADDRESS, PORT), self.handler())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        with open(certificate) as file:
            self.register(file.read())
        return self

    def __exit__(self, *_):
        api.call("DELETE", f"{PATH}/gate")
        self.server.shutdown()
        self.server.server_close()

    def register(self, certificate):
        hook = {
            "name": "gate.gpuslice.dev",
            "clientConfig": {
                "url": f"https://{ADDRESS}:{PORT}/",
                "caBundle": base64.b64encode(certificate.encode()).decode(),
            },
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "timeoutSeconds": 10,
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        api.call("POST", PATH, {**kind, "metadata": {"name": "gate"}, "webhooks": [hook]})

    def handler(gate):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                request = review["request"]
                gate.seen.append(request["name"])
                gate.act(request["name"])
                response = {"uid": request["uid"], "allowed": True}
                text = json.dumps({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.end_headers()
                    self.wfile.write(text.encode())
                except OSError:
                    pass  # the apiserver was killed

            def log_message(self, *_):
                pass

        return Handler
