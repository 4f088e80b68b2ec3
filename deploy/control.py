"""Commands for the SuperLink, run on the server itself so that the control port need not be open to other machines.

    python -m fedsim.deploy.control [--token] VERB [ARGUMENT...]   in a folder with server.json and the CA's certificate;
                                                                   prints JSON, one value per line

With --token the first line of standard input is an operator's token for this verb (see `fedsim.deploy.operators`). Without
it the key of the server itself is used, which lies in its home folder and may only list and register nodes.

ready       waits until the SuperLink answers
register    reads public keys by node name (JSON, standard input); registers new keys, unregisters those not listed
nodes       registered nodes: name, id, status, online-since, last-seen
runs        every run: status, times, traffic
start       reads a request to start a run (standard input) and prints the run id
follow RUN [POSITION]   what the ServerApp prints while it runs, from a position on; then the status of the run, or an error
stop RUN    stops a run
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedsim.deploy import operators
from fedsim.deploy.machine_config import read_server
from fedsim.deploy.operators import SERVICE_KEY
from fedsim.errors import FedsimError
from fedsim.flower.control_api import ControlClient, SuperLinkUnreachable, to_pem

PATIENCE = 120.0  # seconds to wait for a SuperLink that starts or restarts
RETRY_WAIT = 0.2  # seconds between two attempts while it starts
Verb = Callable[[ControlClient, list[str]], Iterator[Any]]


def ready(superlink: ControlClient, arguments: list[str]) -> Iterator[Any]:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            superlink.nodes()
            yield "ready"
            return
        except SuperLinkUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_WAIT)


def register(superlink: ControlClient, arguments: list[str]) -> Iterator[Any]:
    wanted = {to_pem(key): name for name, key in json.load(sys.stdin.buffer).items()}
    known = {node["key"]: node for node in superlink.nodes()}
    for key, node in known.items():
        if key not in wanted:
            superlink.unregister(int(node["id"]))
            yield {"unregistered": node["name"]}
    for key, name in wanted.items():
        if key not in known:
            superlink.register(key, name)
            yield {"registered": name}


def nodes(superlink: ControlClient, arguments: list[str]) -> Iterator[Any]:
    for node in superlink.nodes():
        yield {name: value for name, value in node.items() if name != "key"}


def runs(superlink: ControlClient, arguments: list[str]) -> Iterator[Any]:
    yield from superlink.runs()


def start(superlink: ControlClient, arguments: list[str]) -> Iterator[Any]:
    yield str(superlink.start_run(sys.stdin.buffer.read()))


def follow(superlink: ControlClient, arguments: list[str]) -> Iterator[Any]:
    """Lines of text, after them their position (a number), at the end an object. Survives a restart of the SuperLink,
    during which the run goes on."""
    run_id, after, last_contact = int(arguments[0]), float(arguments[1]) if arguments[1:] else 0.0, time.monotonic()
    while True:
        try:
            for timestamp, text in superlink.stream_logs(run_id, after):
                after, last_contact = max(after, timestamp), time.monotonic()
                yield from text.splitlines()
                yield after
            status = superlink.status(run_id)
        except SuperLinkUnreachable as error:
            if time.monotonic() - last_contact > PATIENCE:
                yield {"error": f"the SuperLink does not answer ({error}): run `fedsim deploy up`"}
                return
            time.sleep(1)
            continue
        except FedsimError as error:
            yield {"error": f"the SuperLink refused to follow: {error}"}
            return
        last_contact = time.monotonic()
        if status.startswith("finished"):
            yield {"status": status}
            return


def stop(superlink: ControlClient, arguments: list[str]) -> Iterator[Any]:
    superlink.stop_run(int(arguments[0]))
    yield "stopped"


VERBS: dict[str, Verb] = {verb.__name__: verb for verb in (ready, register, nodes, runs, start, follow, stop)}


def main(words: list[str]) -> int:
    signed = words[:1] == ["--token"]
    verb, *arguments = words[1:] if signed else words
    config = read_server(Path())
    try:
        token = (
            sys.stdin.buffer.readline().decode().strip()
            if signed
            else operators.token(Path(SERVICE_KEY), config.name, verb)
        )
    except FedsimError as error:
        print(error, file=sys.stderr)
        return 1
    superlink = ControlClient(f"127.0.0.1:{config.control_port}", str(config.ca), token)
    try:
        for answer in VERBS[verb](superlink, arguments):
            print(json.dumps(answer), flush=True)
    except SuperLinkUnreachable as error:
        print(f"the SuperLink does not answer ({error}): run `fedsim deploy up`", file=sys.stderr)
        return 1
    except FedsimError as error:
        print(f"the SuperLink refused to {verb}: {error}", file=sys.stderr)
        return 1
    finally:
        superlink.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
