"""What h2specd starts for each of its cases: a relay in front of its listener, and one gRPC call through the relay.

usage: h2specd_client.py PENSTOCK ENGINE URL      (h2specd appends http://127.0.0.1:PORT/)

h2specd takes the verdict of the last connection, and a relay whose connection is lost dials again at once. So a gate stands
between the two, which lets one connection through, with FIN as FIN and RST as RST.

Ends when the call has ended and the relay has had a moment to answer what h2specd sent last, and always within the three
seconds that h2specd gives a case.
"""
import select
import socket
import subprocess
import sys
import threading
import time

LIMIT_S, AFTER_CALL_S = 2.2, 0.4
NAMES = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/test.Echo/Unary"), (b":authority", b"test"), (b"te", b"trailers"),
         (b"content-type", b"application/grpc"))


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def call():
    """Preface, empty SETTINGS, HEADERS of plain literals (RFC 7541 6.2.2), DATA with an empty message."""
    block = b"".join(b"\0" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in NAMES)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block) + frame(0, 1, 1, bytes(5))


def call_has_ended(data):
    """Does a frame of stream 1 say so: END_STREAM on HEADERS or DATA, or RST_STREAM?"""
    while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
        if int.from_bytes(data[5:9], "big") == 1 and (data[3] == 3 or data[3] in (0, 1) and data[4] & 1):
            return True
        data = data[9 + int.from_bytes(data[:3], "big"):]
    return False


def reset(*sockets):
    for s in sockets:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()


def copy(a, b):
    """What comes from a goes to b, its end too."""
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        reset(a, b)


def gate(port):
    """Address of a listener for one connection to this port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        from_relay, _ = listener.accept()
        listener.close()
        to_suite = socket.create_connection(("127.0.0.1", port))
        for s in (from_relay, to_suite):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=copy, args=(from_relay, to_suite), daemon=True).start()
        copy(to_suite, from_relay)

    threading.Thread(target=serve, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1]


def main():
    until = time.monotonic() + LIMIT_S
    binary, engine, url = sys.argv[1:]
    relay = subprocess.Popen([binary, "relay", "--listen", "127.0.0.1:0", "--to", gate(int(url.split("/")[2].split(":")[1])),
                              "--engine", engine, "--probe", "off", "--workers", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        port = int(relay.stdout.readline().rsplit(b":", 1)[1])
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(call())
        data = b""
        while time.monotonic() < until and not call_has_ended(data):
            if select.select([client], [], [], max(0, until - time.monotonic()))[0]:
                more = client.recv(65536)
                if not more:
                    break
                data += more
        time.sleep(max(0, min(AFTER_CALL_S, until - time.monotonic())))
    finally:
        relay.kill()
        relay.wait()


main()
