"""Replicas die by kill -9, one after the other, twice each, under 2,000 calls/s for a minute, and come back: who may
notice?"""
import collections
import json
import time

import penstock
import pytest

RATE, SECONDS, ROUNDS = 2000, 60, 2
N_REPLICAS = 3


class Replica:
    """A penstock-model on a fixed port, with one log of events over all its lives."""

    def __init__(self, programs, folder, index):
        self.programs, self.address = programs, f"127.0.0.1:{penstock.free_port()}"
        self.events_file = folder / f"events-{index}"
        self.in_flight = 0  # as the gateway saw it just before each kill
        self.start()

    def start(self):
        self.program = penstock.model_server(self.programs, "--events", self.events_file, "--service-ms", 5, listen=self.address,
                                             name="fashion", weights="fashion-1")

    def events(self):
        """All whole lines; kill -9 may have cut the last one of a life."""
        out = []
        for line in self.events_file.read_text().splitlines():
            try:
                out.append(json.loads(line))
            except ValueError:
                pass
        return out

    def unfinished(self):
        """Calls that began here and did not end, over all lives: those that a kill cut off."""
        open_calls, n = set(), 0
        for e in self.events():
            if e["ev"] == "start":  # a new life
                n, open_calls = n + len(open_calls), set()
            elif e["ev"] == "call_start" and e["path"].endswith("/ModelInfer"):
                open_calls.add(e["call"])
            elif e["ev"] in ("call_finish", "call_done"):
                open_calls.discard(e["call"])
        return n + len(open_calls)


def kill_in_turn(programs, tmp_path, idempotent):
    """The load's report, the replicas and the gateway, after each of them was killed and started again."""
    group = [Replica(programs, tmp_path, i) for i in range(N_REPLICAS)]
    gateway = penstock.gateway(programs, tmp_path, {"fashion": {
        "protocol": "kserve", "versions": {"1": {"endpoints": [r.address for r in group]}}, "limits": {"idempotent": idempotent}}})
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20, "the gateway ready")
    load = programs.start("penstock-load", "--to", gateway.grpc, "--model", "fashion", "--rate", RATE, "--duration", SECONDS,
                          "--connections", 8, "--request-ids", "--json", "--allow-fail", ready=False)
    begun = time.monotonic()
    for i in range(N_REPLICAS * ROUNDS):
        # Spread over the run; the next one dies only when this one takes calls again.
        time.sleep(max(0, begun + (i + 0.5) * SECONDS / (N_REPLICAS * ROUNDS) - time.monotonic()))
        victim = group[i % N_REPLICAS]
        victim.in_flight += gateway.counter("penstock_endpoint_in_flight", address=victim.address)
        victim.program.kill()
        time.sleep(0.2)
        seen = len(victim.events())
        victim.start()
        penstock.wait_for(lambda: len(victim.events()) > seen + 20, 20, "calls at the replica that came back", every=0.1)
    load.wait_exit(SECONDS + 60)
    return json.loads("\n".join(load.lines)), group, gateway


def starts_by_id(group):
    return collections.Counter(e["request_id"] for r in group for e in r.events()
                               if e["ev"] == "call_start" and e["path"].endswith("/ModelInfer"))


@pytest.mark.slow
def test_of_an_idempotent_model_no_call_fails(programs, tmp_path):
    report, group, _ = kill_in_turn(programs, tmp_path, idempotent=True)
    assert report["started"] == RATE * SECONDS
    assert (report["failed"], report["wrong"], report["unfinished"]) == (0, 0, 0), report["errors"]
    assert report["ok"] == report["started"]
    print(f"cut off by kills: {sum(r.unfinished() for r in group)}, max latency {report['latency_ms']['max']:.0f} ms")


@pytest.mark.slow
def test_of_another_only_calls_in_flight_on_the_victim_fail(programs, tmp_path):
    """UNAVAILABLE, each with the victim's name; as many as the gateway lost on a broken connection; none started twice."""
    report, group, gateway = kill_in_turn(programs, tmp_path, idempotent=False)
    assert report["started"] == RATE * SECONDS and report["wrong"] == 0
    assert set(report["status"]) <= {"OK", "UNAVAILABLE"}, report["status"]
    assert all("broke its connection under the call" in e["message"] for e in report["errors"]), report["errors"]
    penstock.wait_for(lambda: gateway.counter("penstock_ended_upstream_lost_total") == report["failed"], 5, "the same count")
    # In flight: begun and cut off as the victims' logs say, what the gateway had sent and they never read, and what came
    # between its count and the kill (a count is 250 ms old; a second on a machine that is starved).
    in_flight = sum(r.unfinished() + r.in_flight for r in group) + ROUNDS * RATE
    assert report["failed"] <= in_flight, (report["failed"], in_flight)
    starts = starts_by_id(group)
    assert [i for i, n in starts.items() if n > 1] == []
    assert sum(starts.values()) >= report["ok"]
