#!/usr/bin/env python3
"""A "server under test" of connectrpc.com/conformance: one of its own servers, with our relay in front of it.

usage: connect_server.py SERVER RELAY_COMMAND...     RELAY_COMMAND is completed by --to ADDRESS

The runner writes a ServerCompatRequest to our stdin and reads a ServerCompatResponse from our stdout, each behind its
length in four bytes; it ends us with SIGTERM. RELAY_COMMAND "none": without a relay.
"""
import re
import signal
import subprocess
import sys
import tempfile


def read_sized(file):
    return file.read(int.from_bytes(file.read(4), "big"))


def sized(message):
    return len(message).to_bytes(4, "big") + message


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def port_of(response):
    """Field 2 of ServerCompatResponse{host = 1, port = 2, pem_cert = 3}."""
    at = 0
    while at < len(response):
        tag, at = varint(response, at)
        value, at = varint(response, at)
        if tag == 2 << 3:
            return value
        at += value if tag & 7 == 2 else 0
    raise ValueError("the server names no port")


def response_of(port):
    return b"\x0a\x09127.0.0.1\x10" + bytes([port & 127 | 128, port >> 7 & 127 | 128, port >> 14])


def start_relay(command, port):
    """(process, its port); its log is left in a file beside those of other relays."""
    log = tempfile.NamedTemporaryFile("wb", prefix="relay-", suffix=".log", dir=".", delete=False)
    relay = subprocess.Popen([*command, "--to", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, stderr=log, text=True)
    for line in relay.stdout:
        m = re.match(r"listening grpc \S+:(\d+)", line)
        if m:
            return relay, int(m[1])
    raise RuntimeError(f"the relay ended: {open(log.name).read()}")


def main():
    server_command, relay_command = sys.argv[1], sys.argv[2:]
    server = subprocess.Popen([server_command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    server.stdin.write(sized(read_sized(sys.stdin.buffer)))
    server.stdin.flush()
    started, port = [server], port_of(read_sized(server.stdout))
    if relay_command != ["none"]:
        relay, port = start_relay(relay_command, port)
        started.insert(0, relay)

    def stop(*_):
        for p in started:
            p.terminate()
            p.wait(20)
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sys.stdout.buffer.write(sized(response_of(port)))
    sys.stdout.buffer.flush()
    server.wait()
    stop()


if __name__ == "__main__":
    main()
