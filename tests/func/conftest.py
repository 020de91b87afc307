"""Fixtures of all functional tests; what they give is in penstock.py, frames.py and replicas.py."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1")
os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:abort_on_error=1:print_stacktrace=1")
os.environ.update(GRPC_VERBOSITY="NONE", no_proxy="127.0.0.1,localhost", PYTHONUNBUFFERED="1")

import penstock  # noqa: E402  (after the path and the environment)
import replicas  # noqa: E402


@pytest.fixture
def programs():
    """Starts binaries; stops and examines them at the end of the test."""
    p = penstock.Programs()
    yield p
    p.stop_all()


@pytest.fixture(scope="module")
def module_programs():
    """The same for what the tests of one file share."""
    p = penstock.Programs()
    yield p
    p.stop_all()


@pytest.fixture
def stock():
    """Starts stock grpcio replicas (replicas.Stock): stock() -> one more."""
    started = []

    def start(**kw):
        started.append(replicas.Stock(**kw))
        return started[-1]

    yield start
    for s in started:
        s.stop()


@pytest.fixture
def scripted():
    """Starts scripted replicas at frame level: scripted(frames.Replica subclass or instance) -> it, listening."""
    started = []

    def start(replica):
        replica.start()
        started.append(replica)
        return replica

    yield start
    for s in started:
        s.stop()


def pytest_collection_modifyitems(items):
    if os.environ.get("PENSTOCK_QUICK"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow, and PENSTOCK_QUICK is set"))
