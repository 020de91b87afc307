"""The real suites with the relay in between, with both engines; what they say must be what docs/conformance.md says."""
import frames
import page
import penstock
import pytest
import suites

pytestmark = pytest.mark.parametrize("engine", suites.ENGINES)
transports = pytest.mark.parametrize("tls", [False, True], ids=["cleartext", "TLS"])


def assert_on_page(row):
    assert row in page.PAGE.read_text().splitlines(), f"docs/conformance.md has no line {row!r}: run ./dev conform"


def flags(engine, tls, certificate):
    return ["--engine", engine, *(certificate.flags() if tls else [])]


@transports
def test_h2spec(programs, scripted, tools, certificate, tmp_path, engine, tls):
    relay = penstock.relay(programs, [scripted(frames.Replica()).address], *flags(engine, tls, certificate))
    cases = suites.h2spec(tools, relay.grpc, tmp_path, tls)
    may = suites.SESSION_MAY_FAIL if engine == "session" else set()
    assert {k: v for k, v in suites.failed(cases).items() if k not in may} == {}
    assert len(cases) == 146
    assert_on_page(page.h2spec_row(engine, tls, cases))


@pytest.mark.slow
def test_h2specd(tools, engine):
    cases = suites.h2specd(tools, engine)
    assert suites.failed(cases) == {}
    assert len(cases) == 57
    assert_on_page(page.h2specd_row(engine, cases))


@transports
def test_interop(programs, tools, certificate, engine, tls):
    server = suites.interop_server(programs, tools)
    relay = penstock.relay(programs, [server.grpc], *flags(engine, tls, certificate))
    wrong = [said for case in suites.INTEROP if (said := suites.interop(tools, relay.grpc, case, certificate if tls else None))]
    assert wrong == []
    assert_on_page(page.interop_row(engine, tls, wrong))
    if not tls:  # the soak has no byte too much in flight or lost: all that was counted has ended
        assert penstock.wait_for(lambda: relay.counter("penstock_streams_open") == 0, 10) is True


def test_replicas_over_tls(programs, tools, certificate, engine):
    """The hop to the replica, too."""
    server = suites.interop_server(programs, tools, certificate)
    relay = penstock.relay(programs, [server.grpc], "--to-tls", *flags(engine, True, certificate), env={"SSL_CERT_FILE": certificate.cert})
    for case in ("empty_unary", "large_unary", "ping_pong", "cancel_after_first_response", "status_code_and_message"):
        assert suites.interop(tools, relay.grpc, case, certificate) == ""


@transports
def test_rpc_soak_ten_times_in_a_row(programs, tools, certificate, engine, tls):
    """4 threads, 200 calls of 270 KB up and 314 KB down a round: other proxies stall in it, one run of three."""
    server = suites.interop_server(programs, tools)
    relay = penstock.relay(programs, [server.grpc], *flags(engine, tls, certificate))
    for _ in range(10):
        assert suites.interop(tools, relay.grpc, "rpc_soak", certificate if tls else None) == ""


@transports
def test_a_soak_of_small_calls(programs, tools, certificate, engine, tls):
    """2,000 of the 100,000 that ./dev conform makes: none fails, nothing is left open."""
    server = suites.interop_server(programs, tools)
    relay = penstock.relay(programs, [server.grpc], *flags(engine, tls, certificate))
    assert suites.soak(tools, relay.grpc, 2000, certificate if tls else None) == ""
    assert penstock.wait_for(lambda: relay.counter("penstock_streams_open") == 0, 10) is True
