"""TLS and identity, from outside: openssl s_client, sslscan, Python's ssl and grpcio against the real binaries.

What a peer in memory can show better (floods of key updates, endless hellos, deep chains, ticket keys) is in
tests/unit/test_tls_rules.c.
"""
import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time

import grpc
import pytest

import penstock
from certs import Certs, openssl

UNARY = "/test.Echo/Unary"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")  # and empty SETTINGS


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return Certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def server(certs):
    return certs.make("server", "DNS:gate.test,DNS:localhost,IP:127.0.0.1")


@pytest.fixture(scope="module")
def team_a(certs):
    return certs.make("team-a", "URI:spiffe://test/team-a,DNS:team-a.test")


@contextlib.contextmanager
def secure(address, certs, pair=None, name="gate.test"):
    """A grpcio channel with a connection of its own."""
    key, chain = pair.read() if pair else (None, None)
    creds = grpc.ssl_channel_credentials(certs.ca.read_bytes(), key, chain)
    with grpc.secure_channel(address, creds, [*penstock.CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name)]) as channel:
        yield channel


def call(address, certs, pair=None, metadata=(), message=b"hello", timeout=30):
    with secure(address, certs, pair) as channel:
        return penstock.call(channel, UNARY, message, metadata=metadata, timeout=timeout)


def s_client(address, *args, alpn="h2"):
    """What openssl s_client says of one handshake."""
    r = subprocess.run(["openssl", "s_client", "-connect", address, *(["-alpn", alpn] if alpn else []), *map(str, args)], input=b"",
                       capture_output=True, timeout=20)
    return r.stdout.decode(errors="replace") + r.stderr.decode(errors="replace")


def client_context(pair=None, alpn=("h2",), ca=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if pair:
        context.load_cert_chain(pair.pem, pair.key)
    return context


def connect(address, context, name="gate.test", session=None):
    """A TLS socket that is through the server's side of the handshake: its SETTINGS have come."""
    host, port = address.rsplit(":", 1)
    sock = context.wrap_socket(socket.create_connection((host, int(port)), timeout=10), server_hostname=name, session=session)
    sock.sendall(PREFACE)
    if not sock.recv(1000):
        raise ConnectionError("closed")
    return sock


def serial_shown(address, context=None, name="gate.test"):
    with connect(address, context or client_context(), name) as sock:
        return openssl("x509", "-inform", "der", "-noout", "-serial", input=sock.getpeercert(True)).stdout


def serial_of(pair):
    return openssl("x509", "-in", pair.pem, "-noout", "-serial").stdout


# ---- T1, T2: versions, suites, ALPN ----

@pytest.fixture(scope="module")
def open_relay(module_programs, certs, server):
    """TLS for whoever comes, before nothing: for handshakes alone."""
    rsa = certs.make("rsa", "DNS:rsa.test", rsa=True)
    return penstock.relay(module_programs, ["127.0.0.1:1"], *server.flags(), *rsa.flags(), "--probe", "off")


@pytest.mark.parametrize("args", [["-tls1_3"], ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
                                  *[["-tls1_2", "-cipher", c] for c in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
                                                                        "ECDHE-ECDSA-CHACHA20-POLY1305")],
                                  ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256", "-servername", "rsa.test"]], ids=" ".join)
def test_good_suites_are_spoken(open_relay, args):
    said = s_client(open_relay.grpc, *args)
    assert "ALPN protocol: h2" in said and re.search(r"New, TLSv1\.[23], Cipher is [^(]", said), said


@pytest.mark.parametrize("args", [["-tls1"], ["-tls1_1"],
                                  *[["-tls1_2", "-servername", "rsa.test", "-cipher", c + ":@SECLEVEL=0"]
                                    for c in ("ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES128-SHA256", "AES128-GCM-SHA256", "AES128-SHA",
                                              "DHE-RSA-AES128-GCM-SHA256", "ALL:!kECDHE", "ALL:!AESGCM:!CHACHA20:!AESCCM:!ARIAGCM", "aNULL", "eNULL")],
                                  ["-tls1_2", "-groups", "P-521"], ["-tls1_3", "-groups", "ffdhe2048"]], ids=" ".join)
def test_what_rfc_9113_forbids_is_refused(open_relay, args):
    """Old versions, suites without forward secrecy or without AEAD (RFC 9113 appendix A), costly groups."""
    said = s_client(open_relay.grpc, *(["-cipher", "ALL:@SECLEVEL=0"] if len(args) == 1 else []), *args)
    assert "Cipher is (NONE)" in said or "Cipher    : 0000" in said, said


def test_sslscan_finds_nothing_weak(open_relay):
    """It offers no ALPN, so it must not get anywhere at all: no version, no suite, no heartbeat, no compression."""
    if not shutil.which("sslscan"):
        pytest.skip("no sslscan: apt-get install sslscan")
    said = subprocess.run(["sslscan", "--no-colour", open_relay.grpc], capture_output=True, text=True, timeout=60).stdout
    assert "SSL/TLS Protocols" in said, said
    assert not re.search(r"^(SSLv|TLSv)\S+\s+enabled|Accepted|vulnerable to heartbleed$|Compression enabled", said.replace("not vulnerable to heartbleed", ""), re.M), said


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("alpn", [None, "http/1.1", "h2c", "x" * 255, "h", "http/1.1,h2c,h3"])
def test_no_h2_in_alpn_gets_the_alert(open_relay, version, alpn):
    said = s_client(open_relay.grpc, version, alpn=alpn)
    assert "SSL alert number 120" in said, said  # no_application_protocol, RFC 7301 3.2


@pytest.mark.parametrize("alpn", ["h2,http/1.1", "http/1.1,h2", "x" * 255 + ",h2"])
def test_h2_among_others_is_chosen(open_relay, alpn):
    assert "ALPN protocol: h2" in s_client(open_relay.grpc, alpn=alpn)


def test_cleartext_and_renegotiation_end_there(programs, server):
    open_relay = penstock.relay(programs, ["127.0.0.1:1"], *server.flags(), "--probe", "off")
    host, port = open_relay.grpc.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(PREFACE)
        assert sock.recv(100) == b""
    open_relay.wait_event("tls_handshake_failed", msg="the client speaks cleartext to a TLS port")
    r = subprocess.Popen(["openssl", "s_client", "-connect", open_relay.grpc, "-alpn", "h2", "-tls1_2"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = r.communicate(b"R\n", timeout=20)[0].decode(errors="replace")
    assert "no renegotiation" in said, said


# ---- names: SNI, min_tls, client_auth ----

def test_names_choose_certificates_and_1_3_can_be_the_least(programs, certs, server, tmp_path):
    exact, wild = certs.make("exact", "DNS:a.models.test"), certs.make("wild", "DNS:*.models.test")
    files = [{"cert": str(p.pem), "key": str(p.key)} for p in (wild, exact)]
    gateway = penstock.gateway(programs, tmp_path, {"m": {"endpoints": ["127.0.0.1:1"]}}, listeners=[
        {"address": "127.0.0.1:0", "cert": str(server.pem), "key": str(server.key), "certificates": files, "min_tls": "1.3"}])
    for name, pair in (("a.models.test", exact), ("b.models.test", wild), ("gate.test", server), ("c.b.models.test", server)):
        assert serial_shown(gateway.grpc, name=name) == serial_of(pair), name
    assert "Cipher is TLS_AES_128_GCM_SHA256" in s_client(gateway.grpc, "-tls1_3")
    assert "SSL alert number 70" in s_client(gateway.grpc, "-tls1_2")  # protocol_version


# ---- T4: who a client is ----

@pytest.fixture(scope="module")
def mtls(module_programs, certs, server, module_replica):
    return penstock.relay(module_programs, [module_replica.address], *server.flags(), "--client-ca", certs.ca, "--tenant",
                          "team-a=spiffe://test/team-a", "--tenant", "team-b=team-b.test", "--tenants-only", "--log-level", "debug")


@pytest.fixture(scope="module")
def module_replica():
    import replicas
    replica = replicas.Stock()
    yield replica
    replica.stop()


def test_a_tenant_is_named_to_the_replica_and_counted(mtls, module_replica, certs, team_a):
    spoofed = (("penstock-tenant", "team-b"), ("x-forwarded-client-cert", "By=x;Hash=y"), ("x-other", "stays"))
    for _ in range(3):  # the first is read field by field, later ones come from tables
        assert call(mtls.grpc, certs, team_a, spoofed).code == "OK"
        path, metadata = module_replica.calls[-1]
        assert metadata["penstock-tenant"] == "team-a" and metadata["x-other"] == "stays"
        assert "x-forwarded-client-cert" not in metadata
    penstock.wait_for(lambda: mtls.counter("penstock_tenant_calls_total", tenant="team-a") == 3, what="3 calls of team-a")
    assert mtls.counter("penstock_tenant_calls_total", tenant="team-b") == 0
    assert mtls.events("stream_end", tenant="team-a")
    b = certs.make("team-b", "DNS:x.test,DNS:team-b.test", common_name="spiffe://test/team-a")  # a common name is no name
    assert call(mtls.grpc, certs, b).code == "OK"
    assert module_replica.calls[-1][1]["penstock-tenant"] == "team-b"


def test_without_tls_nobody_is_a_tenant(programs, stock):
    replica = stock()
    relay = penstock.relay(programs, [replica.address])
    for _ in range(3):
        answer = penstock.call(relay.grpc, UNARY, b"x", metadata=(("penstock-tenant", "a"), ("x-forwarded-client-cert", "b")))
        assert answer.code == "OK"
        assert not {"penstock-tenant", "x-forwarded-client-cert"} & set(replica.calls[-1][1])


@pytest.mark.parametrize("who", ["nobody", "expired", "stranger", "unlisted", "common name"])
def test_others_are_refused_before_any_http(mtls, module_replica, certs, team_a, who, tmp_path):
    pair, why = {
        "nobody": lambda: (None, "did not return a certificate"),
        "expired": lambda: (certs.make("expired", "URI:spiffe://test/team-a", expired=True), "certificate has expired"),
        "stranger": lambda: (Certs(tmp_path / "other", "other").make("stranger", "URI:spiffe://test/team-a"), "unable to get local issuer"),
        "unlisted": lambda: (certs.make("unlisted", "DNS:team-b.test.evil.test"), "none of its subject alternative names"),
        "common name": lambda: (certs.make("cn", "DNS:nobody.test", common_name="team-b.test"), "none of its subject alternative names"),
    }[who]()
    before, failed = len(module_replica.calls), mtls.counter("penstock_tls_handshakes_failed_total")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context(pair)
        context.maximum_version = version
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connect(mtls.grpc, context)
    assert call(mtls.grpc, certs, pair, timeout=2).code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    assert any(why in e["msg"] for e in mtls.events("tls_handshake_failed")), (why, mtls.events("tls_handshake_failed"))
    penstock.wait_for(lambda: mtls.counter("penstock_tls_handshakes_failed_total") >= failed + 2, what="counted failures")
    assert len(module_replica.calls) == before
    assert call(mtls.grpc, certs, team_a).code == "OK"


# ---- T5: sessions ----

def test_sessions_stay_with_their_listener(programs, certs, server, team_a, tmp_path):
    """CVE-2025-23419: what an open listener handed out must not open one that asks for certificates."""
    tls = {"address": "127.0.0.1:0", "cert": str(server.pem), "key": str(server.key)}
    gateway = penstock.gateway(programs, tmp_path, {"m": {"endpoints": ["127.0.0.1:1"]}},
                               listeners=[tls, {**tls, "address": "localhost:0", "client_ca": str(certs.ca)}])
    free, closed = gateway.listening("grpc", 0), gateway.listening("grpc", 1)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        nobody, somebody = client_context(), client_context(team_a)
        nobody.maximum_version = somebody.maximum_version = version
        with connect(free, nobody) as first:
            session = first.session
        with connect(free, nobody, session=session) as second:
            assert second.session_reused
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connect(closed, nobody, session=session)
        with connect(free, somebody) as first:
            session = first.session
        with connect(closed, somebody, session=session) as second:
            assert not second.session_reused
            session = second.session
        with connect(closed, somebody, session=session) as third:
            assert third.session_reused
    penstock.wait_for(lambda: gateway.counter("penstock_tls_resumed_total") == 4, what="4 resumed sessions")


# ---- T6: stapling ----

def test_a_given_ocsp_response_is_stapled(programs, certs, server, tmp_path):
    serial = serial_of(server).decode().split("=")[1].strip()
    (tmp_path / "index.txt").write_text(f"V\t350101000000Z\t\t{serial}\tunknown\t/CN=server\n")
    openssl("ocsp", "-index", "index.txt", "-CA", certs.ca, "-rsigner", certs.ca, "-rkey", certs.folder / "ca.key", "-issuer", certs.ca,
            "-cert", server.pem, "-ndays", 1, "-respout", "staple.der", cwd=tmp_path)
    plain = {"address": "localhost:0", "cert": str(server.pem), "key": str(server.key)}
    gateway = penstock.gateway(programs, tmp_path, {"m": {"endpoints": ["127.0.0.1:1"]}},
                               listeners=[{**plain, "address": "127.0.0.1:0", "ocsp": str(tmp_path / "staple.der")}, plain])
    said = s_client(gateway.listening("grpc", 0), "-status")
    assert "OCSP Response Status: successful" in said and "Cert Status: good" in said, said
    assert "OCSP response: no response sent" in s_client(gateway.listening("grpc", 1), "-status")
    (tmp_path / "staple.der").write_bytes(b"0\x82")
    r = programs.run("penstock", "check", tmp_path / "penstock.json")
    assert "#/listeners/0/ocsp: " in r.stdout + r.stderr and "is not an OCSP response" in r.stdout + r.stderr


# ---- T7: files that change ----

def replace(pair, by):
    for new, old in ((by.pem, pair.pem), (by.key, pair.key)):
        staged = old.with_suffix(".next")
        shutil.copy(new, staged)
        os.replace(staged, old)


def shown_within(address, pair, seconds=5):
    want = serial_of(pair)
    begin = time.monotonic()
    penstock.wait_for(lambda: serial_shown(address) == want, seconds, "the new certificate")
    return time.monotonic() - begin


def test_a_new_certificate_is_taken_over_and_calls_live_on(programs, stock, certs, tmp_path):
    own = Certs(tmp_path / "own")
    live, first = own.make("live", "DNS:gate.test"), own.make("first", "DNS:gate.test")
    shutil.copy(live.pem, first.pem), shutil.copy(live.key, first.key)
    gateway = penstock.gateway(programs, tmp_path, {"e": {"protocol": "grpc", "services": ["*"], "endpoints": [stock().address]}}, listeners=[
        {"address": a, "cert": str(live.pem), "key": str(live.key)} for a in ("127.0.0.1:0", "localhost:0")])
    with secure(gateway.grpc, own) as channel:
        stream = penstock.Bidi(channel, "/test.Echo/Bidi")
        stream.send(b"before")
        assert stream.receive() == b"before"
        second = own.make("second", "DNS:gate.test")
        replace(live, second)
        took = shown_within(gateway.grpc, second)
        assert took < (5 if penstock.SANITIZED else 1.5), f"{took:.2f} s"
        shown_within(gateway.listening("grpc", 1), second)  # each listener
        stream.send(b"after")
        assert stream.receive() == b"after"
        assert stream.end() == ([], "OK")
    assert gateway.counter("penstock_tls_reload_total", result="ok") == 2

    third = own.make("third", "DNS:gate.test")
    key = third.key.read_bytes()
    for what, pem, half in (("half a key", third.pem.read_bytes(), key[:60]), ("half a certificate", third.pem.read_bytes()[:300], key),
                            ("another's key", second.pem.read_bytes(), key)):
        refused = gateway.counter("penstock_tls_reload_total", result="refused")
        live.pem.write_bytes(pem), live.key.write_bytes(half)
        penstock.wait_for(lambda: gateway.counter("penstock_tls_reload_total", result="refused") >= refused + 2, what=what)
        assert serial_shown(gateway.grpc) == serial_of(second), what
        assert gateway.events("tls_reload_refused", lvl="error"), what
    stale = own.make("stale", "DNS:gate.test", expired=True)
    replace(live, stale)
    penstock.wait_for(lambda: any("expired on" in e["msg"] for e in gateway.events("tls_reload_refused")), what="the expired one refused")
    live.key.unlink()
    penstock.wait_for(lambda: any("No such file" in e["msg"] for e in gateway.events("tls_reload_refused")), what="the missing key refused")
    assert serial_shown(gateway.grpc) == serial_of(second)
    replace(live, third)
    gateway.signal(signal.SIGHUP)
    shown_within(gateway.grpc, third)
    text = openssl("x509", "-in", third.pem, "-noout", "-enddate").stdout.decode().split("=")[1].strip()
    assert gateway.counter("penstock_tls_cert_not_after_seconds", cert=str(live.pem)) == 2 * ssl.cert_time_to_seconds(text)


def test_a_new_client_authority_is_taken_over(programs, stock, certs, server, team_a, tmp_path):
    """A session of a client that the old authority let in counts no more."""
    ca, other = tmp_path / "ca.pem", Certs(tmp_path / "other", "other")
    shutil.copy(certs.ca, ca)
    relay = penstock.relay(programs, [stock().address], *server.flags(), "--client-ca", ca)
    context = client_context(team_a)
    with connect(relay.grpc, context) as sock:
        session = sock.session
    shutil.copy(other.ca, ca)
    relay.wait_event("tls_reload")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(relay.grpc, context, session=session)
    newcomer = other.make("newcomer", "DNS:new.test")
    assert call(relay.grpc, certs, newcomer).code == "OK"


# ---- T8: TLS to replicas ----

def replica_credentials(pair, client_ca=None):
    key, chain = pair.read()
    return grpc.ssl_server_credentials([(key, chain)], client_ca.read_bytes() if client_ca else None, client_ca is not None)


@pytest.mark.parametrize("kind,why", [("good", None), ("name", "IP address mismatch"), ("self-signed", "self-signed certificate"),
                                      ("expired", "certificate has expired"), ("stranger", "unable to get local issuer"),
                                      ("cleartext", "wrong version number")])
def test_a_replica_must_prove_its_name(programs, stock, certs, kind, why, tmp_path):
    if kind == "cleartext":
        replica = stock()
    else:
        pair = {"good": lambda: certs.make("replica", "IP:127.0.0.1"), "name": lambda: certs.make("replica-other", "DNS:other.test,IP:127.0.0.2"),
                "self-signed": lambda: Certs(tmp_path / "self", "self").pair(), "expired": lambda: certs.make("replica-old", "IP:127.0.0.1", expired=True),
                "stranger": lambda: Certs(tmp_path / "other", "other").make("replica", "IP:127.0.0.1")}[kind]()
        replica = stock(credentials=replica_credentials(pair))
    relay = penstock.relay(programs, [replica.address], "--to-ca", certs.ca)
    answer = penstock.call(relay.grpc, UNARY, b"hello")
    if why is None:
        assert answer.code == "OK" and answer.messages == [b"hello"]
        return
    assert answer.code == "UNAVAILABLE"
    assert replica.address in answer.details and why in answer.details, answer.details
    assert any(why in e["msg"] and replica.address in e["msg"] + e.get("address", "") for e in relay.events("endpoint_unhealthy")), relay
    assert replica.calls == []
    if kind != "cleartext":
        trusting = penstock.relay(programs, [replica.address], "--to-no-verify")
        assert penstock.call(trusting.grpc, UNARY, b"x").code == "OK"


def test_a_replica_that_speaks_no_h2_is_refused(programs, certs, server):
    """TLS is fine, ALPN picks nothing: HTTP/2 is not what would follow."""
    port = penstock.free_port()
    replica = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", server.pem, "-key", server.key, "-quiet"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        relay = penstock.relay(programs, [f"127.0.0.1:{port}"], "--to-ca", certs.ca)
        answer = penstock.call(relay.grpc, UNARY, b"x")
        assert answer.code == "UNAVAILABLE" and f"127.0.0.1:{port}" in answer.details and "ALPN" in answer.details, answer
    finally:
        replica.kill()
        replica.wait()


def test_a_replica_that_asks_gets_our_certificate(programs, stock, certs, team_a):
    pair = certs.make("replica-mtls", "DNS:replica.test")
    replica = stock(credentials=replica_credentials(pair, certs.ca))
    flags = ["--to-ca", certs.ca, "--to-name", "replica.test"]
    relay = penstock.relay(programs, [replica.address], *flags, *team_a.flags("to-"))
    answer = penstock.call(relay.grpc, UNARY, b"x" * 3_000_000)
    assert answer.code == "OK" and answer.messages == [b"x" * 3_000_000]
    assert relay.events("endpoint_ready"), relay  # the prober shows it, too
    bare = penstock.relay(programs, [replica.address], *flags)
    answer = penstock.call(bare.grpc, UNARY, b"x")
    assert answer.code == "UNAVAILABLE" and replica.address in answer.details, answer


def test_models_say_how_their_endpoints_are_reached(programs, stock, certs, tmp_path):
    """Cleartext, TLS by one name and by another, in one gateway; then one of them changes under calls."""
    by_name = stock(credentials=replica_credentials(certs.make("named", "DNS:replica.test")))
    by_address = stock(credentials=replica_credentials(certs.make("addressed", "IP:127.0.0.1")))
    plain = stock()
    tls = {"mode": "verify", "ca": str(certs.ca)}
    models = {"a": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [by_name.address], "tls": {**tls, "name": "replica.test"}},
              "b": {"protocol": "kserve", "endpoints": [by_address.address], "tls": tls},
              "c": {"protocol": "tensorflow", "endpoints": [plain.address]}}
    gateway = penstock.gateway(programs, tmp_path, models)
    for name in "abc":
        gateway.wait_event("endpoint_ready", address={"a": by_name, "b": by_address, "c": plain}[name].address)
    assert penstock.call(gateway.grpc, UNARY, b"x").code == "OK"
    models["a"]["tls"]["name"] = "other.test"
    penstock.write_models(tmp_path / "config", models)
    gateway.signal(signal.SIGHUP)
    gateway.wait_event("reload")

    def refused():
        answer = penstock.call(gateway.grpc, UNARY, b"x")
        return answer.code == "UNAVAILABLE" and "Hostname mismatch" in answer.details.replace("hostname", "Hostname")
    penstock.wait_for(refused, what="the other name refused")
    models["a"]["tls"]["name"] = "replica.test"
    penstock.write_models(tmp_path / "config", models)
    gateway.signal(signal.SIGHUP)
    penstock.wait_for(lambda: penstock.call(gateway.grpc, UNARY, b"x").code == "OK", what="the right name again")


def test_up_reaches_its_endpoints_over_tls_too(programs, stock, certs, tmp_path):
    replica = stock(credentials=replica_credentials(certs.make("for-up", "IP:127.0.0.1")))
    model = {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [replica.address], "tls": {"mode": "verify", "ca": str(certs.ca)}}
    up = penstock.up(programs, tmp_path, {"a": model})
    penstock.wait_for(lambda: penstock.call(up.grpc, UNARY, b"x").code == "OK", what="an answer")
    states = {e["state"] for m in up.json("/v1/status")["models"] for v in m["versions"] for e in v["endpoints"]}
    assert states == {"ready"}, states


# ---- T9, T10: bytes, and crowds ----

def test_large_messages_pass_both_ways_over_tls_on_both_sides(programs, stock, certs, server):
    replica = stock(credentials=replica_credentials(server))
    relay = penstock.relay(programs, [replica.address], *server.flags(), "--to-ca", certs.ca)
    message = os.urandom(1 << 16) * 80
    with secure(relay.grpc, certs) as channel, concurrent.futures.ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: penstock.call(channel, UNARY, message), range(6)):
            assert answer.code == "OK" and answer.messages == [message]


@pytest.mark.parametrize("workers", [1, 2])
def test_slow_handshakes_do_not_keep_others_out(programs, stock, certs, server, tmp_path, workers):
    """12 clients a worker that connect and say nothing, where 4 may shake hands: others wait seconds, not for ever, and calls
    that run do not notice."""
    gateway = penstock.gateway(programs, tmp_path, {"e": {"protocol": "grpc", "services": ["*"], "endpoints": [stock().address]}},
                               listeners=[{"address": "127.0.0.1:0", "cert": str(server.pem), "key": str(server.key)}], max_handshakes=4, handshake_s=2,
                               workers=workers)
    host, port = gateway.grpc.rsplit(":", 1)
    with secure(gateway.grpc, certs) as channel:
        assert penstock.call(channel, UNARY, b"x").code == "OK"
        silent = [socket.create_connection((host, int(port))) for _ in range(12 * workers)]
        penstock.wait_for(lambda: gateway.counter("penstock_tls_handshakes_open") == 4 * workers, what="4 handshakes a worker")
        for _ in range(50):
            assert penstock.call(channel, UNARY, b"x", timeout=10).code == "OK"
        begin = time.monotonic()
        assert call(gateway.grpc, certs).code == "OK"
        assert time.monotonic() - begin < 12
        assert gateway.counter("penstock_tls_handshakes_evicted_total") >= 1
        penstock.wait_for(lambda: gateway.counter("penstock_tls_handshakes_failed_total") >= 12 * workers, 20, "all silent ones cut off")
        for s in silent:
            s.close()


def test_unusable_files_are_named_with_their_field(programs, certs, server, tmp_path):
    other = certs.make("other-key", "DNS:x.test")
    half = tmp_path / "half.pem"
    half.write_bytes(server.pem.read_bytes()[:200])
    good = {"address": "127.0.0.1:0", "cert": str(server.pem), "key": str(server.key)}
    for change, said in (({"cert": "/none.pem"}, "#/listeners/0/cert: /none.pem: No such file"),
                         ({"key": str(other.key)}, f"#/listeners/0/key: {other.key}: the key does not belong to {server.pem}"),
                         ({"cert": str(half)}, f"#/listeners/0/cert: {half}: "),
                         ({"key": str(server.pem)}, f"#/listeners/0/key: {server.pem}: there is no whole private key in PEM form"),
                         ({"client_ca": str(server.key)}, f"#/listeners/0/client_ca: {server.key}: there is no whole certificate"),
                         ({"certificates": [{"cert": "/none.pem", "key": "/none.key"}]}, "#/listeners/0/certificates/0/cert: /none.pem"),
                         ({"tenants_only": True}, "#/listeners/0/tenants_only: without client_ca"),
                         ({"client_auth": "optional"}, "#/listeners/0/client_auth: without client_ca"),
                         ({"min_tls": "1.1"}, "#/listeners/0/min_tls")):
        path = penstock.write_config(tmp_path, listeners=[{**good, **change}])
        r = programs.run("penstock", "check", path)
        assert r.returncode == 78 and said in r.stdout + r.stderr, (change, r.stdout, r.stderr)
    tenants = [{"name": "a", "san": ["x.test"]}, {"name": "a", "san": ["y.test", "x.test"]}]
    r = programs.run("penstock", "check", penstock.write_config(tmp_path, tenants=tenants))
    assert "#/tenants/1/name" in r.stdout + r.stderr and "#/tenants/1/san" in r.stdout + r.stderr
    for flags, said in ((["--cert", server.pem], "go together"), ([*server.flags(), "--tenants-only"], "without --client-ca"),
                        (["--to-cert", server.pem], "go together"), (["--to-name", "a b"], "--to-name"), (["--to-no-verify", "--to-ca", certs.ca], "--to-ca"),
                        ([*server.flags(), "--min-tls", "1.1"], "--min-tls 1.1")):
        r = programs.run("penstock", "relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", *flags)
        assert r.returncode == 64 and said in r.stderr, (flags, r)


def test_an_expired_certificate_is_a_warning_at_the_start(programs, certs):
    old = certs.make("old", "DNS:gate.test", expired=True)
    relay = penstock.relay(programs, ["127.0.0.1:1"], *old.flags(), "--probe", "off")
    relay.wait_event("certificate_expired", lvl="warn")
