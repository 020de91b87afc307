"""The suite of connectrpc.com/conformance with the relay in between: 1,182 gRPC cases of its reference client (all stream
types, six compressions, proto and JSON, timeouts, cancels, size limits, raw malformed requests and responses) against its
reference server, and 152 of a grpc-go client against two servers."""
import pathlib
import re
import subprocess
import sys

import penstock
import pytest
import suites

MODULE = pathlib.Path(__file__).resolve().parent / "connect"
PACKAGES = [f"connectrpc.com/conformance/cmd/{p}" for p in ("connectconformance", "grpcclient", "grpcserver", "referenceserver")]
COMPRESSIONS = ["IDENTITY", "GZIP", "BR", "ZSTD", "DEFLATE", "SNAPPY"]
FEATURES = """features:
  versions: [HTTP_VERSION_2]
  protocols: [PROTOCOL_GRPC]
  codecs: [%s]
  compressions: [%s]
  stream_types: [STREAM_TYPE_UNARY, STREAM_TYPE_CLIENT_STREAM, STREAM_TYPE_SERVER_STREAM, STREAM_TYPE_HALF_DUPLEX_BIDI_STREAM,
                 STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM]
  supports_h2c: true
  supports_tls: false
  supports_trailers: true
  supports_half_duplex_bidi_over_http1: false
  supports_connect_get: false
  supports_message_receive_limit: true
"""


@pytest.fixture(scope="module")
def connect():
    """{name: path} of the suite's programs."""
    try:
        return suites.build(MODULE, PACKAGES)
    except suites.NoGo as e:
        pytest.skip(str(e))


def run(connect, folder, engine, *, client=None, server="referenceserver", codecs=("PROTO",), compressions=("IDENTITY", "GZIP")):
    """(passed, failed, the runner's words); every relay must have ended well."""
    (folder / "features.yaml").write_text(FEATURES % (", ".join(f"CODEC_{c}" for c in codecs), ", ".join(f"COMPRESSION_{c}" for c in compressions)))
    relay = [penstock.binary("penstock"), "relay", "--listen", "127.0.0.1:0", "--probe", "off", "--workers", "1", "--engine", engine]
    ours = [sys.executable, str(pathlib.Path(__file__).with_name("connect_server.py")), connect[server], *relay]
    mode = ["--mode", "both", "--", connect[client], "----"] if client else ["--mode", "server", "-p", "4", "--"]
    r = subprocess.run([connect["connectconformance"], "--conf", "features.yaml", "--max-servers", "2", *mode, *ours],
                       cwd=folder, capture_output=True, text=True, timeout=300)
    said = re.search(r"(\d+) passed, (\d+) failed", r.stdout + r.stderr)
    assert said, r.stdout[-3000:] + r.stderr[-3000:]
    logs = [p.read_text() for p in folder.glob("relay-*.log")]
    assert logs and not [line for log in logs for line in log.splitlines() if penstock.SANITIZER_REPORT.search(line)], logs
    return int(said[1]), int(said[2]), (r.stdout + r.stderr)[-3000:]


@pytest.mark.parametrize("engine", [suites.ENGINES[0], pytest.param(suites.ENGINES[1], marks=pytest.mark.slow)])
def test_the_reference_client(connect, tmp_path, engine):
    passed, failed, said = run(connect, tmp_path, engine, codecs=("PROTO", "JSON"), compressions=COMPRESSIONS)
    assert (passed, failed) == (1182, 0), said


@pytest.mark.parametrize("engine", suites.ENGINES)
@pytest.mark.parametrize("server", ["grpcserver", "referenceserver"])
def test_a_grpc_go_client(connect, tmp_path, engine, server):
    passed, failed, said = run(connect, tmp_path, engine, client="grpcclient", server=server)
    assert (passed, failed) == (152, 0), said
