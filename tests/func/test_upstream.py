"""All rows of upstream_rows.py, with both engines: what the client sees, what is counted, and that nothing is left over."""
import collections
import concurrent.futures
import selectors
import socket
import threading

import frames
import grpc
import penstock
import pytest
import upstream_rows
from hyperframe.frame import PingFrame, RstStreamFrame

ENGINES = ["native", "session"]
AT_ONCE = 40  # calls in flight
NAMES = [c.name for c in sorted(grpc.StatusCode, key=lambda c: c.value[0])]  # by number

# What nghttp2 does in its own way: it takes 8 CONTINUATION frames in a block, and a stream error of it can't be told from
# a reset by the replica.
SESSION_SKIPS = {"a block in frames of 100 bytes"}


class Player(frames.Replica):
    """Plays one row; its listener is served by the Stage."""

    settings = {3: 1000, 4: 1 << 20}  # MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE

    def __init__(self, row):
        super().__init__()
        self.row = row
        self.tries = collections.Counter()

    def on_headers(self, stream):
        call = stream.headers.get("x-call", "")
        self.tries[call] += 1
        stream.try_no = self.tries[call]
        if self.row.early:
            self.row.act(stream)

    def on_request(self, stream):
        if not self.row.early:
            self.row.act(stream)


class Stage:
    """A player for each row, each with an address of its own, so that none can hurt another."""

    def __init__(self, rows):
        self.players = []
        self.selector = selectors.DefaultSelector()
        for row in rows:
            player = Player(row)
            player.listener = socket.create_server(("127.0.0.1", 0), backlog=16)
            player.address = "127.0.0.1:%d" % player.listener.getsockname()[1]
            self.selector.register(player.listener, selectors.EVENT_READ, player)
            self.players.append(player)
        self.stopping = False
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while not self.stopping:
            for key, _ in self.selector.select(0.1):
                player = key.data
                conn = frames.Connection(player.listener.accept()[0])
                conn.streams = {}
                player.connections.append(conn)
                threading.Thread(target=player._serve, args=(conn,), daemon=True).start()

    def stop(self):
        self.stopping = True
        self.thread.join()
        for player in self.players:
            player.stop()


def start(programs, folder, engine, stage):
    """A gateway with a service for each row: its counters are the row's."""
    models = {f"row{i}": {"protocol": "grpc", "dialect": "plain", "services": [f"row.N{i}"], "endpoints": [p.address],
                          "limits": {"idempotent": False, "message_mib": 4}} for i, p in enumerate(stage.players)}
    gateway = penstock.gateway(programs, folder, models, engine=engine)
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 30, "the gateway ready")
    return gateway


def wait_most(client, streams):
    """Until they have ended, or for so long that one never will."""
    try:
        client.wait(*streams, timeout=20)
    except TimeoutError:
        pass


def play_raw(gateway, stage):
    """One call of a raw client for each row, two where no stock client calls: the streams of the first."""
    client = frames.Client(gateway.grpc)
    streams = []
    for i, player in enumerate(stage.players):
        s = client.open(f"/row.N{i}/Call", ("x-call", "raw"), *player.row.metadata)
        client.send(s, frames.grpc_message(b"request")[:8 if player.row.early else None], end_stream=not player.row.early)
        streams.append(s)
        if not player.row.stock:
            client.wait(client.request(f"/row.N{i}/Call", b"request", ("x-call", "grpcio"), *player.row.metadata))
        if len(streams) % AT_ONCE == 0:
            wait_most(client, streams[-AT_ONCE:])
    wait_most(client, streams)
    client.conn.send(PingFrame(0, b"all came"))
    client.wait_frame(PingFrame, opaque_data=b"all came")
    assert client.goaway is None
    client.close()
    return streams


class Seen(Exception):
    """What is wrong with a row."""


def expect(true, what):
    if not true:
        raise Seen(what)


def judge_raw(row, s):
    """The rules of every answer, then those of the row."""
    tokens = s.shape.split()
    expect(tokens and tokens[0] in ("H", "H$"), f"begins with {s.shape}")
    expect(sum(t.endswith("$") for t in tokens) == 1, f"ends not once: {s.shape}")
    expect(tokens[-1].endswith("$") or (tokens[-1] == "R0" and tokens[-2].endswith("$")), f"frames behind the end: {s.shape}")
    expect("D$" not in tokens, "ends without trailers")
    blocks = [fields for kind, fields, _ in s.trace if kind == "H"]
    expect(blocks[0][0] == (":status", "200") or any(k == "grpc-status" for k, _ in blocks[0]), f"headers {blocks[0]}")
    last = [v for k, v in blocks[-1] if k == "grpc-status"]
    expect(len(last) == 1 and last[0].isdecimal() and last[0] == str(int(last[0])) and int(last[0]) <= 16, f"grpc-status {last}")
    expect(all(k == k.lower() and not k.startswith(":") for b in blocks[1:] for k, _ in b), f"trailers {blocks[1:]}")
    expect(int(last[0]) in row.status, f"status {last[0]}, {s.message!r}")
    expect(row.shape in (None, s.shape), f"frames {s.shape}")
    expect(s.messages == row.messages, f"messages {s.messages}")
    expect(row.check is None or row.check(s), f"not as the row says: {s.headers} {s.trailers}")


def play_grpcio(to, path, row, call):
    """(code number, messages) that a stock client sees."""
    done = threading.Event()

    def requests():
        yield b"request"
        if row.early:
            done.wait(20)

    with penstock.channel(to) as channel:
        rpc = channel.stream_stream(path)(requests(), timeout=20, metadata=(("x-call", call), *row.metadata))
        got = []
        try:
            got.extend(rpc)
        except grpc.RpcError:
            pass
        done.set()
        return rpc.code().value[0], got


def play_all_grpcio(gateway, stage):
    """[(through the gateway, direct or None)] for each row."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        through = [p.row.stock and pool.submit(play_grpcio, gateway.grpc, f"/row.N{i}/Call", p.row, "grpcio") for i, p in enumerate(stage.players)]
        direct = [p.row.direct and pool.submit(play_grpcio, p.address, f"/row.N{i}/Call", p.row, "direct") for i, p in enumerate(stage.players)]
        return [(t and t.result(), d and d.result()) for t, d in zip(through, direct)]


def judge_grpcio(row, through, direct):
    if not through:
        return
    code, messages = through
    expect(code in row.status, f"grpcio sees {NAMES[code]}")
    expect(messages == row.messages or row.status == {upstream_rows.EXHAUSTED}, f"grpcio gets {messages}")
    expect(not direct or direct[0] == code, f"grpcio sees {direct and NAMES[direct[0]]} without a gateway")


def judge_counts(gateway, stage):
    """Per row: each of its two calls under the code that the client saw; in all, each call under its cause."""
    metrics = gateway.metrics()
    wrong, causes = {}, collections.Counter()
    for i, player in enumerate(stage.players):
        row = player.row
        got = {dict(labels)["code"]: v for (name, labels), v in metrics.items()
               if name == "penstock_calls_total" and ("model", f"row{i}") in labels and v}
        if sum(got.values()) != 2 or not set(got) <= {NAMES[c] for c in row.status}:
            wrong[row.name] = f"counted {got}"
        if row.tries is not None and (player.tries["raw"], player.tries["grpcio"]) != (row.tries, row.tries):
            wrong[row.name] = f"tries {player.tries}"
        causes[row.cause] += 2
    have = {name[len("penstock_ended_"):-len("_total")]: v for (name, _), v in metrics.items() if name.startswith("penstock_ended_") and v}
    return wrong, dict(causes), have


@pytest.mark.parametrize("engine", ENGINES)
def test_every_row(programs, tmp_path, engine):
    stage = Stage([r for r in upstream_rows.ROWS if engine == "native" or r.name not in SESSION_SKIPS])
    wrong = {}
    try:
        gateway = start(programs, tmp_path, engine, stage)
        streams = play_raw(gateway, stage)
        seen = play_all_grpcio(gateway, stage)
        for player, stream, (through, direct) in zip(stage.players, streams, seen):
            try:
                judge_raw(player.row, stream)
                judge_grpcio(player.row, through, direct)
            except Seen as e:
                wrong[player.row.name] = f"{e} ({player.row.source})"
        penstock.wait_for(lambda: gateway.counter("penstock_calls_total") == 2 * len(stage.players), 10, "every call's end")
        assert gateway.counter("penstock_streams_open") == 0
        counts, causes, have = judge_counts(gateway, stage)
        assert not wrong and not counts, "\n".join(f"{name}: {what}" for name, what in {**counts, **wrong}.items())
        assert have == causes
        assert [p.errors for p in stage.players if p.errors] == []
    finally:
        stage.stop()
