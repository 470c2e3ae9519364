# SPDX-License-Identifier: Apache-2.0
"""A TCP server in the place of a broker: with a certificate or without, and never a real broker."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _frame(payload: bytes) -> bytes:
    """An AMQP method frame of channel 0."""
    return struct.pack(">BHI", 1, 0, len(payload)) + payload + b"\xce"


def _longstr(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


#: connection.start of AMQP 0-9-1: who reads it answers with user and password.
START = _frame(struct.pack(">HHBB", 10, 10, 0, 9) + _longstr(b"") + _longstr(b"PLAIN AMQPLAIN") + _longstr(b"en_US"))


class BrokerDoor:
    """Listens on ``port``; ``clients``: its connections, and ``heard``: the bytes that they sent."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.clients = 0
        self.heard = b""
        self.refusals: list[str] = []
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                self.clients += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._context is not None:
                client = self._context.wrap_socket(client, server_side=True)
                self._open.append(client)
            self.heard += client.recv(8)  # the protocol's header
            client.sendall(START)
            while said := client.recv(4096):
                self.heard += said
        except (OSError, ValueError) as error:
            self.refusals.append(str(error))

    def close(self) -> None:
        self._listener.close()
        for client in self._open:
            client.close()


@contextlib.contextmanager
def doors(number: int) -> Iterator[list[BrokerDoor]]:
    """Several of them."""
    opened = [BrokerDoor() for _ in range(number)]
    try:
        yield opened
    finally:
        for door in opened:
            door.close()


class Authority:
    """A certificate authority that lives as long as a test; its files are in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the test's authority")])
        self.file = directory / "ca.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        built = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        self._write(self.file, built)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )

    def _write(self, file: Path, built: x509.CertificateBuilder) -> None:
        signed = built.sign(self._key, hashes.SHA256())
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def server_of(self, host: str) -> ssl.SSLContext:
        """What a server needs that has this authority's certificate for ``host``."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
        certificate, private = self._directory / f"{host}.pem", self._directory / f"{host}.key"
        self._write(certificate, self._builder(name, key).add_extension(alternative, critical=False))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, private)
        return context
