"""Checks of ports and addresses of this machine, and of connections to a server."""

import errno
import socket
import ssl
from pathlib import Path

from fedsim.deploy.finding import Finding, Level, ok, problem, warning

PATIENCE = 5.0  # seconds for a connection


def free_port(what: str, port: int, address: str = "", taken: Level = "problem") -> Finding:
    """Whether a server can listen on this port of an address of this machine; without an address: of all of them.

    `taken` is the level of the finding if the port is in use.
    """
    what = f"{what} {port}"
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            probe.listen()
    except OverflowError:
        return problem(what, f"{port} is not a port", "choose one from 1024 to 65535")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Finding(
                taken,
                what,
                f"port {port} of this machine is in use",
                f"stop what listens there (`ss -ltnp 'sport = :{port}'` names it) or choose another port",
            )
        told = f"nothing can listen at {address}:{port}: {error.strerror}"
        return problem(what, told, "choose an address of this machine and a port from 1024 to 65535")
    return ok(what, f"port {port} is free")


def own_address(host: str) -> Finding:
    """Whether `host` is an address of this machine; behind NAT or in a container it is none, so that is a warning."""
    what = f"host {host}"
    try:
        address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        return problem(what, f"{host} cannot be resolved: {error.strerror}", "correct host, or add it to the DNS")
    try:
        with socket.socket(address[0]) as probe:
            probe.bind(address[4])
    except OSError:
        remedy = "correct host, unless this machine is reached through a NAT or a container's address"
        return warning(what, f"{host} ({address[4][0]}) is not an address of this machine", remedy)
    return ok(what, f"{host} is this machine")


def reachable(address: str, ca: Path | None = None) -> Finding:
    """Connects to HOST:PORT; with a CA certificate also checks the server's certificate in a TLS handshake."""
    what = f"server {address}"
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        return problem(what, f"{address!r} is not an address", "write it as HOST:PORT")
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as connection:
            if ca is None:
                return ok(what, f"{address} answers")
            return _handshake(what, address, host, connection, ca)
    except socket.gaierror as error:
        return problem(what, f"{host} cannot be resolved: {error.strerror}", f"correct the host name {host}")
    except TimeoutError:
        return problem(
            what, f"{address} did not answer within {PATIENCE:.0f} s", f"let firewalls pass TCP port {port} to {host}"
        )
    except ConnectionRefusedError:
        return problem(what, f"nothing listens at {address}", "start the server, or correct its address or port")
    except (OSError, OverflowError) as error:
        return problem(what, f"{address} cannot be reached: {error}", "correct the address, or the network's routes")


def _handshake(what: str, address: str, host: str, connection: socket.socket, ca: Path) -> Finding:
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:  # SSLError is one
        return problem(what, f"the CA certificate {ca} cannot be used: {error}", f"copy the federation's CA to {ca}")
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # default of newer Pythons, stricter than gRPC
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC does: an intermediate may be trusted by itself
    context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC closes connections that do not offer HTTP/2
    try:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            return ok(what, f"{address} answers with {secured.version()}, and its certificate is signed by {ca}")
    except ssl.SSLCertVerificationError as error:
        told = f"the certificate of {address} is refused: {error.verify_message}"
        return problem(
            what, told, f"give this machine the CA that signed it as {ca}, or the server a valid certificate"
        )
    except OSError as error:
        told = f"{address} does not speak TLS: {error.strerror or error}"
        return problem(what, told, "start the server with its certificate, or correct the port")
