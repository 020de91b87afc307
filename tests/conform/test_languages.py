"""gRPC clients and servers of other languages with the relay in between: each client with each server on the native engine in
cleartext, each with its neighbour the other ways; the page has what ./dev conform ran, all of them all ways."""
import languages
import penstock
import pytest
import suites

ALL = [(c, s) for c in languages.NAMES for s in languages.NAMES]
RING = [(c, languages.NAMES[(i + 1) % len(languages.NAMES)]) for i, c in enumerate(languages.NAMES)]
WAYS = [("native", False, ALL), ("native", True, RING), ("session", False, RING), ("session", True, RING)]


@pytest.mark.parametrize("engine, tls, client, server", [(e, t, c, s) for e, t, pairs in WAYS for c, s in pairs],
                         ids=lambda v: {True: "TLS", False: "cleartext"}.get(v, v))
def test_interop(programs, certificate, engine, tls, client, server):
    try:
        for language in (client, server):
            languages.COMMANDS[language]()
        replica = languages.start_server(programs, server)
    except languages.Missing as e:
        pytest.skip(str(e))
    relay = penstock.relay(programs, [replica.grpc], "--engine", engine, "--probe", "connect", *(certificate.flags() if tls else []))
    assert languages.run_client(client, relay.grpc, certificate if tls else None, soak=40) == []
    assert penstock.wait_for(lambda: relay.counter("penstock_streams_open") == 0, 10) is True


@pytest.mark.parametrize("engine", suites.ENGINES)
def test_servers_over_tls(programs, certificate, engine):
    """The hop to the replica, too: C++ in front, Python behind."""
    try:
        for language in ("libgrpc++", "grpcio"):
            languages.COMMANDS[language]()
    except languages.Missing as e:
        pytest.skip(str(e))
    replica = languages.start_server(programs, "grpcio", certificate)
    relay = penstock.relay(programs, [replica.grpc], "--to-tls", "--engine", engine, *certificate.flags(), env={"SSL_CERT_FILE": certificate.cert})
    assert languages.run_client("libgrpc++", relay.grpc, certificate, soak=40) == []
