#!/usr/bin/env python3
"""Writes docs/conformance.md from what all suites and our own rows say of both engines; exit 1 when something is bad.

usage: page.py [ROUNDS]        ROUNDS of h2spec and interop, default 3; Go is needed, other languages where they are
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

import suites  # noqa: I001  (it sets the path of the next)
import frames
import languages
import penstock
from suites import ENGINES, INTEROP, SESSION_MAY_FAIL, SESSION_MAY_IGNORE, failed

PAGE = suites.ROOT / "docs/conformance.md"
SOAK_CALLS, SOAK_ROUNDS = 100000, 10

# Our own rows: file, test, what it is called on the page.
OWN = [("test_h2_rows.py", "test_as_a_server", "rows: HTTP/2 and HPACK, as a server"),
       ("test_h2_rows.py", "test_as_a_client", "rows: HTTP/2, as a client"),
       ("test_negative.py", "test_what_grpcio_sees", "negative gRPC cases, seen by grpcio"),
       ("test_negative.py", "test_what_grpc_go_says", "negative gRPC cases, grpc-go's client"),
       ("test_frames.py", "", "rows: a call frame by frame"),
       ("test_peers.py", "", "what peers send, by a script"),
       ("test_real_servers.py", "", "what real servers do")]

# What real peers were seen to do, and the tests of it, as FILE::NAME below tests/; test_page.py looks whether they are there.
FACTS = [
    ("A message over the server's limit is refused while it is being sent, with the server's own words (grpc-core, grpc-go: 4 MiB)",
     "conform/test_real_servers.py::test_a_message_over_the_servers_limit_gets_its_own_refusal"),
    ("Errors are trailers-only, UNIMPLEMENTED with an empty message; MLServer's six `ce-*` trailers surround the status",
     "conform/test_peers.py::test_fields_of_an_answer_are_the_replicas"),
    ("`ModelStreamInfer` is two protocols (Triton, MLServer): no message of it is read or written anew; errors in band and empty final answers pass",
     "conform/test_peers.py::test_messages_of_a_stream_are_nobodys_business", "func/test_triton.py::test_an_error_inside_a_stream_stays_inside_it",
     "func/test_triton.py::test_a_decoupled_stream_of_tokens_comes_in_order_and_unbuffered"),
    ("A cancel frees the replica; the client's time-out is a deadline", "func/test_triton.py::test_a_cancelled_call_frees_the_replica",
     "func/test_triton.py::test_the_clients_timeout_is_a_deadline"),
    ("An early trailers-only answer on a stream that stays open comes before the reset, which is NO_ERROR",
     "conform/test_real_servers.py::test_an_early_refusal_on_a_stream_that_stays_open", "func/test_relay.py::test_an_early_answer_is_delivered_and_stops_the_upload"),
    ("Sequences are known by `sequence_id`, a number or a text, and flags: they pass; where there are several replicas nothing keeps a unary "
     "sequence on one of them", "conform/test_peers.py::test_a_sequences_parameters_pass_as_they_are"),
    ("grpc-core's preface: MAX_CONCURRENT_STREAMS 0, 4 MiB windows and frames, setting 0xfe03", "conform/test_frames.py::test_what_the_client_does",
     "conform/test_peers.py::test_settings_raised_by_a_client_open_its_answer"),
    ("Pseudo fields in the orders of grpc-core and grpc-go; `identity, deflate, gzip` with blanks, both ways",
     "conform/test_peers.py::test_fields_of_a_request_are_the_clients", "conform/test_peers.py::test_fields_of_an_answer_are_the_replicas"),
    ("`grpc-timeout` as `2510m`, `1M`, `19997923u`", "conform/test_frames.py::test_timeouts_of_real_clients_reach_the_replica_a_little_smaller"),
    ("A PING beside the first DATA measures the path: its ACK must not wait for the answer",
     "conform/test_peers.py::test_a_ping_with_the_first_data_is_answered_before_the_answer", "conform/test_frames.py::test_what_the_replica_does"),
    ("SETTINGS raise windows and frame sizes in mid-connection, DATA frames of 442,368 bytes",
     "conform/test_peers.py::test_settings_raised_in_mid_upload_open_the_running_stream", "conform/test_peers.py::test_a_frame_larger_than_we_announced_is_refused",
     "conform/test_real_servers.py::test_windows_and_frame_sizes_that_rise_with_the_traffic"),
    ("`too_many_pings`: clients that ping each second, servers that do not want it", "conform/test_real_servers.py::test_a_client_that_pings_each_second_is_served",
     "conform/test_frames.py::test_too_many_pings_costs_no_call_that_was_not_begun", "func/test_upstream_connection.py::test_no_ping_without_a_call"),
    ("max-connection-age: GOAWAY(2^31-1) and PING, behind the ACK GOAWAY(last id)", "conform/test_real_servers.py::test_connections_that_grow_old_cost_no_call",
     "conform/test_peers.py::test_our_own_end_is_told_as_the_real_servers_tell_it"),
    ("gzip and deflate both ways, unchanged", "conform/test_real_servers.py::test_compressed_answers_pass_as_they_are",
     "func/test_stock_clients.py::test_grpcio_sees_and_shows_the_same", "func/test_triton.py::test_compressed_requests_are_answered_alike"),
    ("Tensors raw and typed", "func/test_stock_clients.py::test_grpcio_sees_and_shows_the_same"),
    ("grpc-core redials by itself behind a GOAWAY", "conform/test_real_servers.py::test_a_channel_dials_again_by_itself"),
    ("64 MiB pass; an HTTP error page never reaches a client", "func/test_triton.py::test_64_mib_there_and_back",
     "func/test_relay.py::test_an_http_error_without_grpc_status_gets_one"),
    ("Nothing is added to an answer, `:authority` stays; frames late on a stream that was reset are ignored",
     "conform/test_peers.py::test_fields_of_an_answer_are_the_replicas", "conform/test_peers.py::test_late_frames_meet_a_stream_that_was_reset"),
    ("No replica: status 14 and a sentence of ours", "func/test_relay.py::test_no_replica_is_said_at_once"),
]

PEERS = """| server | h2spec: generic | http2 | hpack | all, strict off | h2specd, two runs |
| --- | --- | --- | --- | --- | --- |
| nghttpd 1.52 | 44/44 | 93/94 | 7/7 | 144/145 | |
| HAProxy 2.6.12 | 44/44 | 94/94 | 7/7 | 145/145 | 39, 48 of 57 |
| nghttpx 1.52 | 44/44 | 86-89/94 | 7/7 | 137-140/145 | 56, 57 of 57 |
| nginx 1.22 grpc_pass | 43/44 | 71/94 | 5/7 | 119/145 | 52, 45 of 57 |

gRPC interop, 18 cases, three rounds plain and TLS: nginx and nghttpx 18; HAProxy 17 or 18 (`rpc_soak` stalls in one run of
three with its default buffers, and fails every time with `tune.bufsize 65536`).
"""


# ---- lines of the results table; tests compare theirs with the page ----

def row(engine, suite, tls, figure):
    return f"| {engine} | {suite} | {'TLS' if tls else 'cleartext'} | {figure} |"


def h2spec_row(engine, tls, cases):
    if engine == "session":
        return row(engine, "h2spec, strict", tls, f"all but at most the {len(SESSION_MAY_FAIL)} named below, of {len(cases)}")
    return row(engine, "h2spec, strict", tls, f"{len(cases) - len(failed(cases))}/{len(cases)}")


def h2specd_row(engine, cases):
    return row(engine, "h2specd", False, f"{len(cases) - len(failed(cases))}/{len(cases)}")


def interop_row(engine, tls, wrong):
    return row(engine, "gRPC interop", tls, f"{len(INTEROP) - len(wrong)}/{len(INTEROP)}")


def page(rows, notes, missing, rounds):
    pins = suites.versions()
    facts = "\n".join(f"| {fact} | " + ", ".join("`{1}` ({0})".format(*t.removesuffix(".py").replace(".py::", "::").split("::")) for t in tests) + " |"
                      for fact, *tests in FACTS)
    return f"""# Conformance

Written by `./dev conform` from what the suites said; `./dev test` runs them again, where there is Go {suites.needed_go()} or later, and
compares with this page. The suites come from pinned modules (`tests/conform/go/go.mod`): h2spec and h2specd
{pins["github.com/summerwind/h2spec"].split("+")[0]}, grpc-go {pins["google.golang.org/grpc"]}.

* **h2spec** plays a client that breaks rules before `penstock relay`; **h2specd** a server that breaks rules behind it.
* **gRPC interop** is the client and the server of the gRPC project with the relay in between: {len(INTEROP)} cases, all but
  `pick_first_unary`, which no server of that module answers as its client wants. `rpc_soak` and `channel_soak` make 200 calls of
  270 KB up and 314 KB down on 4 threads; `rpc_soak` also runs {SOAK_ROUNDS} times in a row, and once with {SOAK_CALLS:,} calls of 16 bytes.
* **Interop between languages**: {len(languages.CASES)} of these cases with clients and servers of our own in Python (grpcio), C++ (libgrpc++ of
  Debian 12) and JavaScript (@grpc/grpc-js), each client before each server (`tests/conform/interop/`).
* **Rows** are cases of our own (`tests/conform/`): h2spec's and h2specd's lists in bytes, the negative cases of the gRPC project, calls
  frame by frame. They need no Go, but for the client of grpc-go, which must say of us what it says of the server itself (of
  `rst_during_data` it wants another code than it gives).
* One worker, the sanitized build, {time.strftime("%Y-%m-%d")}, {rounds} round{"s" if rounds > 1 else ""} of h2spec and interop: a case counts as passed when it passed in
  each. A section of h2specd with a failure is run again, up to three times, as its own time limits break on a busy machine.

| engine | suite | | passed |
| --- | --- | --- | --- |
{chr(10).join(rows)}
{"".join(f"{chr(10)}Not run: {m}{chr(10)}" for m in missing)}
{chr(10).join(notes)}
## What real peers do

Seen on the wire of grpc-core, grpc-go, Triton and MLServer, and of proxies before them; each with its tests; those in `conform/` run on both engines.

| fact | tests |
| --- | --- |
{facts}

## Others, with the same suites

On Debian 12, each before nghttpd 1.52 (h2spec), cleartext; TLS gave the same.

{PEERS}"""


def notes_of(titles):
    out = ["The session engine is the reference on nghttp2, which drops what comes for a stream that it has forgotten where RFC 9113",
           "section 5.1 asks for STREAM_CLOSED, and takes an id below the last for such a stream (5.1.1). Which of these cases fail depends",
           "on whether the answer overtakes the next frame; in our rows as a client they are " + ", ".join(f"`{n}`" for n in sorted(SESSION_MAY_IGNORE)) + ":", ""]
    return out + [f"* `{name}` {titles[name]}" for name in sorted(SESSION_MAY_FAIL)] + [""]


# ---- the runs ----

class Run:
    """All of it once: rows for the page, and what is wrong or missing."""

    def __init__(self, rounds, folder):
        self.tools, self.rounds, self.folder = suites.build(), rounds, folder
        self.certificate = suites.Certificate(folder)
        self.rows, self.wrong, self.missing, self.titles = [], [], [], {}

    def add(self, line, wrong):
        self.rows.append(line)
        self.wrong += [f"{line} {w}" for w in wrong]
        print(line, *wrong, sep="\n    ", flush=True)

    def relay(self, programs, to, engine, tls):
        return penstock.relay(programs, [to], "--engine", engine, "--probe", "connect", *(self.certificate.flags() if tls else []))

    def h2spec(self, engine, tls):
        programs, replica, cases = penstock.Programs(), frames.Replica().start(), {}
        try:
            relay = self.relay(programs, replica.address, engine, tls)
            for _ in range(self.rounds):
                for name, (title, passed) in suites.h2spec(self.tools, relay.grpc, self.folder, tls).items():
                    cases[name] = (title, passed and cases.get(name, (title, True))[1])
        finally:
            replica.stop()
            programs.stop_all()
        self.titles.update({name: title for name, (title, _) in cases.items()})
        may = SESSION_MAY_FAIL if engine == "session" else set()
        self.add(h2spec_row(engine, tls, cases), [f"{n} {t}" for n, t in failed(cases).items() if n not in may])

    def h2specd(self, engine):
        cases = suites.h2specd(self.tools, engine)
        self.add(h2specd_row(engine, cases), [f"{n} {t}" for n, t in failed(cases).items()])

    def interop(self, engine, tls):
        programs, bad, certificate = penstock.Programs(), {}, self.certificate if tls else None
        try:
            relay = self.relay(programs, suites.interop_server(programs, self.tools).grpc, engine, tls)
            for _ in range(self.rounds):
                bad.update({case: said for case in INTEROP if (said := suites.interop(self.tools, relay.grpc, case, certificate))})
            self.add(interop_row(engine, tls, bad), bad.values())
            stalls = [said for _ in range(SOAK_ROUNDS) if (said := suites.interop(self.tools, relay.grpc, "rpc_soak", certificate))]
            self.add(row(engine, "`rpc_soak` in a row", tls, f"{SOAK_ROUNDS - len(stalls)}/{SOAK_ROUNDS}"), stalls)
            start, said = time.monotonic(), suites.soak(self.tools, relay.grpc, SOAK_CALLS, certificate)
            print(f"    {SOAK_CALLS} calls in {time.monotonic() - start:.0f} s")
            self.add(row(engine, "soak of small calls", tls, f"{'not ' if said else ''}{SOAK_CALLS:,} of {SOAK_CALLS:,}"), [said] if said else [])
        finally:
            programs.stop_all()

    def languages(self, engine, tls):
        here, wrong, runs = [], [], 0
        for name in languages.NAMES:
            try:
                languages.COMMANDS[name]()
                here.append(name)
            except languages.Missing as e:
                self.missing += [f"{name}: {e}"] if f"{name}: {e}" not in self.missing else []
        for server in here:
            programs = penstock.Programs()
            try:
                replica = languages.start_server(programs, server)
                relay = self.relay(programs, replica.grpc, engine, tls)
                for client in here:
                    said = languages.run_client(client, relay.grpc, self.certificate if tls else None)
                    wrong += [f"{client} before {server}: {s}" for s in said]
                    runs += len(languages.CASES)
            finally:
                programs.stop_all()
        self.add(row(engine, f"interop, {len(here)} x {len(here)} languages", tls, f"{runs - len(wrong)}/{runs}"), wrong)

    def own(self):
        """{engine: {label: (passed, all)}} of our rows, by the tests themselves."""
        counts = {e: {label: [0, 0] for _, _, label in OWN} for e in ENGINES}
        for file in dict.fromkeys(file for file, _, _ in OWN):
            report = pathlib.Path(self.folder) / "own.xml"
            subprocess.run([sys.executable, "-m", "pytest", str(suites.HERE / file), "-c", str(suites.HERE.parent / "func/pytest.ini"), "-q",
                            f"--junitxml={report}"], capture_output=True, timeout=600)
            for case in xml.parse(report).getroot().iter("testcase"):
                engine = next((e for e in ENGINES if re.search(rf"[\[-]{e}\b", case.get("name"))), None)
                label = next((n for f, test, n in OWN if f == file and case.get("name").startswith(test)), None)
                if engine and label and case.find("skipped") is None:
                    good = case.find("failure") is None and case.find("error") is None
                    counts[engine][label][0] += good
                    counts[engine][label][1] += 1
                    self.wrong += [] if good else [f"{file}: {case.get('name')}"]
        for engine in ENGINES:
            for label, (passed, n) in counts[engine].items():
                named = ", the named ones may be ignored" if engine == "session" and label.startswith("rows: HTTP/2") else ""
                self.add(row(engine, label, False, f"{passed}/{n}{named}"), [])

    def all(self):
        for engine in ENGINES:
            for tls in (False, True):
                self.h2spec(engine, tls)
            self.h2specd(engine)
            for tls in (False, True):
                self.interop(engine, tls)
            for tls in (False, True):
                self.languages(engine, tls)
        self.own()
        self.rows.sort(key=lambda r: r.split("|")[1])  # by engine; else as they came


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = Run(rounds, pathlib.Path(folder))
        except suites.NoGo as e:
            sys.exit(str(e))
        run.all()
    PAGE.write_text(page(run.rows, notes_of(run.titles), run.missing, rounds))
    if run.wrong:
        sys.exit("\n".join(run.wrong))


if __name__ == "__main__":
    main()
