"""Calls that look like calls before them: what the gateway remembers of their fields and messages never outlives its snapshot."""
import signal

import frames
import penstock
import pytest
from test_relay import ECHO, INFER, Scripted, start_gateway

NOT_FOUND = 5
WARM = 20  # calls after which fields are a set and the message's shape is known


def kserve(name, version=None):
    text = b"\x0a" + bytes([len(name)]) + name.encode()
    if version:
        text += b"\x12" + bytes([len(version)]) + version.encode()
    return text + b"\x3a\x28" + bytes(40)


class Site:
    """A gateway over two scripted replicas, whose config changes between two calls with the same bytes."""

    def __init__(self, programs, scripted, folder, conf):
        self.a, self.b = scripted(Scripted(lambda s: s.respond(b"a"))), scripted(Scripted(lambda s: s.respond(b"b")))
        self.tree, self.generation = folder / "config", 1
        self.gateway = start_gateway(programs, folder, self.models(conf))
        self.client = frames.Client(self.gateway.grpc)

    def models(self, conf):
        at = {"A": self.a.address, "B": self.b.address}

        def put(x):
            if isinstance(x, dict):
                return {k: put(v) for k, v in x.items()}
            return [put(v) for v in x] if isinstance(x, list) else at.get(x, x)
        return put(conf)

    def apply(self, conf):
        penstock.write_models(self.tree, self.models(conf))
        self.generation += 1
        self.gateway.signal(signal.SIGHUP)
        self.gateway.wait_event("reload", generation=self.generation)
        want = self.gateway.json("/v1/status")["generation"]
        penstock.wait_for(lambda: self.gateway.json("/v1/status")["generation"] == want == self.generation, 10, "the reload")
        penstock.wait_for(lambda: self.gateway.counter("penstock_snapshots_applied_total") >= self.generation, 10, "the worker's turn")

    def ask(self, path, message, *more):
        s = self.client.wait(self.client.request(path, message, *more))
        self.client.streams.clear()
        return s.messages[0].decode() if s.status == 0 else s.status

    def warm(self, path, message, *more):
        return {self.ask(path, message, *more) for _ in range(WARM)}


def two(traffic, **more):
    return {"m": {"protocol": "kserve", "versions": {"1": {"endpoints": ["A"]}, "2": {"endpoints": ["B"]}}, "traffic": traffic, **more}}


@pytest.mark.parametrize("more", [(), (("grpc-timeout", "20S"),), (("x-request-id", "0"),)])
def test_a_rollout_takes_the_next_call(programs, scripted, tmp_path, more):
    site = Site(programs, scripted, tmp_path, two({"1": 10000}))
    assert site.warm(INFER, kserve("m"), *more) == {"a"}
    site.apply(two({"2": 10000}))
    assert site.ask(INFER, kserve("m"), *more) == "b"
    assert site.warm(INFER, kserve("m"), *more) == {"b"}
    site.apply(two({"1": 10000}))
    assert site.ask(INFER, kserve("m"), *more) == "a"


def test_a_split_is_exact_for_calls_with_the_same_bytes(programs, scripted, tmp_path):
    site = Site(programs, scripted, tmp_path, two({"1": 10000}))
    assert site.warm(INFER, kserve("m")) == {"a"}
    site.apply(two({"1": 7500, "2": 2500}))
    answers = [site.ask(INFER, kserve("m")) for _ in range(200)]
    assert answers.count("b") == 50
    assert all(answers[i:i + 4].count("b") == 1 for i in range(0, 200, 4))


def test_a_label_that_moves_takes_the_next_call(programs, scripted, tmp_path):
    site = Site(programs, scripted, tmp_path, two({"1": 10000}, labels={"stable": "1"}))
    named = kserve("m", "stable")
    assert site.warm(INFER, named) == {"a"}
    assert site.a.executions[-1].messages == [named + b"\x12\x011"]  # the server is told the number
    site.apply(two({"1": 10000}, labels={"stable": "2"}))
    assert site.ask(INFER, named) == "b"
    assert site.b.executions[-1].messages == [named + b"\x12\x012"]
    site.apply(two({"1": 10000}))
    assert site.ask(INFER, named) == NOT_FOUND


def test_a_model_that_goes_takes_no_call_more(programs, scripted, tmp_path):
    other = {"n": {"protocol": "kserve", "versions": {"1": {"endpoints": ["B"]}}, "traffic": {"1": 10000}}}
    site = Site(programs, scripted, tmp_path, {**two({"1": 10000}), **other})
    assert site.warm(INFER, kserve("m")) == {"a"} and site.warm(INFER, kserve("n")) == {"b"}
    site.apply(other)
    assert site.ask(INFER, kserve("m")) == NOT_FOUND
    assert site.ask(INFER, kserve("n")) == "b"
    site.apply({**two({"1": 10000}), **other})
    assert site.ask(INFER, kserve("m")) == "a"


def test_a_service_that_moves_takes_the_next_call(programs, scripted, tmp_path):
    def echo(at):
        return {"echo": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [at]}}

    site = Site(programs, scripted, tmp_path, echo("A"))
    assert site.warm(ECHO, b"x") == {"a"}
    site.apply(echo("B"))  # A drains: it gets no call more
    assert site.warm(ECHO, b"x") == {"b"}
    assert len(site.a.executions) == WARM
    site.apply({**two({"1": 10000}), **echo("A")})
    assert site.ask(ECHO, b"x") == "a" and site.ask(INFER, kserve("m")) == "a"


def test_what_differs_from_call_to_call_is_passed_on_as_it_came(programs, scripted, tmp_path):
    site = Site(programs, scripted, tmp_path, two({"1": 10000}))
    for i in range(WARM):
        id, timeout = ("x-request-id", f"id-{i}"), ("grpc-timeout", f"{20000 + i}m")
        assert site.ask(INFER, kserve("m"), id, timeout, ("te", "trailers"), ("x-last", "same")) == "a"
        got = site.a.executions[-1].fields
        assert got.count(id) == 1 and got.count(("x-last", "same")) == 1 and got.count(("te", "trailers")) == 1
        sent = [v for k, v in got if k == "grpc-timeout"]
        assert len(sent) == 1 and 15_000_000 < int(sent[0][:-1]) * {"u": 1, "m": 1000, "S": 1000000}[sent[0][-1]] <= 20_020_000
    assert site.ask(INFER, kserve("m"), ("grpc-timeout", "soon")) == 3  # INVALID_ARGUMENT
