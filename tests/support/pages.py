"""What the tests of the page share: runs made without a model, and a client that sends exactly what it is told."""

import http.client
import json
import math
from urllib.parse import urlsplit

import numpy as np

import hookline
from tests.support.rows import row

NASTY = '<img src=x onerror="document.title=`hit`"></script><script>document.title="hit"</script>'


def store(folder, rows, sites=(), *, resume=False, **meta):
    """A run of these rows, closed as a training run closes it."""
    kept = hookline.RunStore(folder, resume=resume)
    kept.open({"model": "Net", "backend": "torch", "sites": [list(site) for site in sites], **meta})
    kept.write(list(rows))
    kept.close()
    return folder


def layers(folder, names=("a.fc", "a.act", "b.fc"), steps=12, **meta):
    """A small healthy run with outputs, gradients, parameters and updates."""
    random = np.random.default_rng(0)
    rows = []
    for step in range(steps):
        for name in names:
            for kind in ("output", "grad_output"):
                rows.append(row(name, step, kind, random.standard_normal(50)))
        for name in names:
            rows.append(row(f"{name}.weight", step, "param_grad", random.standard_normal(20) / 10))
            rows.append(row(f"{name}.weight", step, "update", random.standard_normal(20) / 1000, ratio=0.01))
    groups = dict.fromkeys(name.partition(".")[0] for name in names)
    sites = [("", "Net"), *((name, "Block") for name in groups), *((name, "Linear") for name in names)]
    return store(folder, rows, sites, **meta)


def scalar(name, step, value):
    """A row of a number of the training."""
    numbers = {"count": 1, "mean": value, "min": value, "max": value}
    return {"site": name, "kind": "scalar", "step": step, "call": 0, "rank": 0, "mode": "train", **numbers}


class Client:
    """Speaks HTTP to a server, with its cookie unless told otherwise."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.host, self.port, self.token = parts.hostname, parts.port, parts.query.removeprefix("token=")
        self.cookie = f"hookline-{self.port}={self.token}"

    def send(self, method, target, body=None, **headers):
        """(status, headers, body); header names with underscores, None leaves one out."""
        usual = {"Host": f"{self.host}:{self.port}", "Cookie": self.cookie}
        named = {name.replace("_", "-").title(): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in {**usual, **named}.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, answer.headers, data

    def get(self, target):
        status, _, body = self.send("GET", target)
        return status, json.loads(body)

    def ask(self, what, **question):
        body = json.dumps(question).encode()
        status, _, answer = self.send("POST", f"/api/{what}", body, content_type="application/json")
        return status, json.loads(answer)


NAN = math.nan
