"""Bad config: `penstock check` names the file, the JSON pointer, the value and the rule, finds everything at once, exits 78.

Each row changes one thing in a config that is fine, and says the one line that must come out of it."""
import copy
import json

import pytest

GOOD = {
    "models/ctr.json": {
        "model": "ctr", "protocol": "kserve", "description": "click rate", "policy": "p2c", "dialect": "auto",
        "versions": {
            "16": {"command": ["serve", "--listen", "{address}"], "cpu_milli": 500, "memory_mib": 256, "slots": 4},
            "17": {"command": ["serve", "--listen", "{address}"], "gpu": {"milli": 250, "memory_mib": 2048, "models": ["T4"]}}},
        "labels": {"stable": "16", "canary": "17"},
        "traffic": {"16": 9900, "17": 100},
        "scaling": {"min": 1, "max": 4, "target_inflight": 8},
        "limits": {"message_mib": 64, "deadline_ms": 300, "idempotent": True},
        "x-owner": "ads team"},
    "models/rank.json": {"model": "rank", "protocol": "tensorflow", "versions": {"3": {"endpoints": ["10.0.0.1:8500", "[::1]:8500"]}}},
    "models/echo.json": {"model": "echo", "protocol": "grpc", "services": ["test.Echo"],
                         "versions": {"1": {"endpoints": ["unix:/run/echo.sock"]}}},
    "models/triton.json": {"model": "resnet", "endpoints": ["gpu-1:8001"], "versions": {"1": {}, "2": {}}, "traffic": {"2": 10000}},
    "nodes.json": {"a": {"cpu_milli": 4000, "memory_mib": 8192, "cards": [{"id": "0", "model": "T4", "memory_mib": 15360},
                                                                          {"id": "1", "model": "T4", "memory_mib": 15360}]}},
    "queues.json": {"default": {"weight": 1}, "research": {"weight": 2, "gpu_milli_cap": 4000}},
}

GONE = object()


def row(pointer, value, says, at=None):
    """pointer: file#/json/pointer of what is changed (GONE: removed); says: the message; at: where it points if elsewhere."""
    return pytest.param(pointer, value, f"{at or pointer}: {says}", id=pointer.replace("models/", "") + "=" + repr(value)[:40] if value is not GONE
                        else pointer.replace("models/", "") + " removed")


C = "models/ctr.json#"
ROWS = [
    # keys
    row(f"{C}/trafic", {"16": 10000}, "unknown key; nearest: traffic"),
    row(f"{C}/versions/16/slot", 4, "unknown key; nearest: slots"),
    row(f"{C}/scaling/maximum", 4, "unknown key; nearest: max"),
    row(f"{C}/limits/deadline", 300, "unknown key; nearest: deadline_ms"),
    row(f"{C}/qqqqqqqq", 1, "unknown key"),
    row(f"{C}/sticky", {}, "unknown key"),  # of the design, not built yet
    row(f"{C}/model", GONE, "is missing; it is required"),
    row("nodes.json#/a/memory_mib", GONE, "is missing; it is required"),
    # kinds
    row(f"{C}/model", 7, "7 is not a string"),
    row(f"{C}/versions", [], "an array is not an object"),
    row(f"{C}/versions/16", "serve", '"serve" is not an object'),
    row(f"{C}/versions/16/command", "serve --listen", '"serve --listen" is not an array'),
    row(f"{C}/versions/16/command/1", True, "true is not a string"),
    row(f"{C}/versions/16/slots", "4", '"4" is not a whole number of calls'),
    row(f"{C}/versions/16/slots", 1.5, "1.5 is not a whole number of calls"),
    row(f"{C}/limits/idempotent", "yes", '"yes" is neither true nor false'),
    row(f"{C}/limits/idempotent", None, "null is neither true nor false"),
    row("nodes.json#/a/cards", {}, "an object is not an array"),
    # values
    row(f"{C}/limits/deadline_ms", 3600001, "3600001 is over the limit of 3600000 ms"),
    row(f"{C}/limits/attempts", 0, "0 is under the limit of 1"),
    row(f"{C}/versions/16/slots", -1, "-1 is under the limit of 0 calls"),
    row(f"{C}/scaling/max", 1001, "1001 is over the limit of 1000 replicas"),
    row(f"{C}/versions/16/memory_mib", 2**40, "1099511627776 is over the limit of 67108864 MiB"),
    row(f"{C}/model", "", '"" is shorter than the limit of 1 byte'),
    row(f"{C}/model", "n" * 129, '"' + "n" * 88 + '..." has 129 bytes, over the limit of 128 bytes'),
    row(f"{C}/model", "-ctr", '"-ctr" does not begin with a letter or digit'),
    row(f"{C}/model", "a/b", '"a/b" has a character that is not a letter, a digit or one of . _ -'),
    row(f"{C}/protocol", "kserv", '"kserv" is not one of: kserve, tensorflow, grpc; nearest: kserve'),
    row(f"{C}/policy", "random", '"random" is not one of: p2c, least_inflight, round_robin'),
    row(f"{C}/versions/16/command/2", "{adress}", '"{adress}" has a {word} that is not one of {address} {host} {port} {model} '
                                                  "{version} {replica} {node} {cards}"),
    row(f"{C}/versions/16/command/0", "", '"" is shorter than the limit of 1 byte'),
    row(f"{C}/versions/16/command", ["a"] * 257, "257 entries is over the limit of 256"),
    row("models/rank.json#/versions/3/endpoints/0", "10.0.0.1", '"10.0.0.1" is not host:port'),
    row("models/rank.json#/versions/3/endpoints/0", "10.0.0.256:1", '"10.0.0.256:1" has a host that is not an IPv4 address'),
    row("models/rank.json#/versions/3/endpoints/0", "a:0", '"a:0" has a port that is not a number from 1 to 65535'),
    row("models/rank.json#/versions/3/endpoints/1", "a:65536", '"a:65536" has a port that is not a number from 1 to 65535'),
    row("models/rank.json#/versions/3/endpoints/1", "[::g]:1", '"[::g]:1" has a host that is not an IPv6 address'),
    row("models/rank.json#/versions/3/endpoints/1", "http://a:1", '"http://a:1" has a host with a character that host names do not have'),
    row("models/echo.json#/versions/1/endpoints/0", "unix:run", '"unix:run" is not unix:/path with an absolute path'),
    row("models/echo.json#/services/0", "/test.Echo", '"/test.Echo" is not the full name of a gRPC service, package.Service, or "*"'),
    # between keys
    row(f"{C}/traffic/17", 99, "the weights sum to 9999, not to 10000 parts", at=f"{C}/traffic"),
    row(f"{C}/traffic/17", 10001, "10001 is over the limit of 10000 parts of 10000"),
    row(f"{C}/traffic/18", 1, '"18" is not a version of this model; nearest: 16'),
    row(f"{C}/traffic", GONE, "is missing; with 2 versions it is required: parts of 10000"),
    row(f"{C}/labels/canary", "1z", '"1z" is not a version of this model; nearest: 16'),
    row(f"{C}/labels/18", "17", "a label must not be a number or the name of a version"),
    row(f"{C}/versions/16/command", GONE, "has neither command nor endpoints: nobody would serve it", at=f"{C}/versions/16"),
    row(f"{C}/versions/16/command", [], "is empty"),
    row(f"{C}/versions/16/endpoints", ["a:1"], "it has a command too; penstock starts its replicas or somebody else does"),
    row(f"{C}/versions/17/gpu/milli", 1500, "1500 is over one card and not whole cards: up to 1000, or a multiple of it"),
    row(f"{C}/versions/17/gpu/memory_mib", GONE, "is missing; a share of a card (gpu.milli 250) needs its memory in MiB"),
    row(f"{C}/versions/17/gpu/milli", 0, "0 with gpu.memory_mib: a replica on a card needs 1 to 1000 thousandths of it"),
    row(f"{C}/scaling/min", 5, "5 is over scaling.max, which is 4 replicas"),
    row(f"{C}/scaling/burst_window_s", 90, "90 is over scaling.stable_window_s, which is 60 s"),
    row(f"{C}/endpoints", ["a:1"], "these serve every version, but version 17 has its own command or endpoints"),
    row("models/rank.json#/versions", {"v3": {"endpoints": ["b:1"]}}, "versions of protocol tensorflow are numbers of at most 18 digits",
        at="models/rank.json#/versions/v3"),
    row("models/rank.json#/versions/3/endpoints/1", "10.0.0.1:8500", '"10.0.0.1:8500" is listed twice'),
    row("models/triton.json#/versions", GONE, '"2" is not a version of this model', at="models/triton.json#/traffic/2"),
    row("models/triton.json#/endpoints", [], "is empty"),
    row("models/echo.json#/services", GONE, "is missing; protocol grpc is routed by service"),
    row(f"{C}/services", ["a.B"], "only protocol grpc is routed by service"),
    row("models/echo.json#/services/0", "grpc.health.v1.Health", '"grpc.health.v1.Health" is answered by the gateway'),
    row("nodes.json#/a/cards/1/id", "0", '"0" is the id of card 0 too'),
    # between files
    row("models/rank.json#/model", "ctr", '"ctr" is the model of models/ctr.json too'),
    row("models/b.json", {"model": "b", "protocol": "grpc", "services": ["test.Echo"], "versions": {"1": {"endpoints": ["a:1"]}}},
        '"test.Echo" belongs to model b (models/b.json) too', at="models/echo.json#/services/0"),
]


def write(folder, tree):
    (folder / "models").mkdir(exist_ok=True)
    for name, content in tree.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return folder


def changed(pointer, value):
    tree = copy.deepcopy(GOOD)
    file, _, path = pointer.partition("#")
    if not path:
        tree[file] = value
        return tree
    *down, last = path[1:].split("/")
    at = tree[file]
    for key in down:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    if isinstance(at, list):
        at[int(last)] = value
    elif value is GONE:
        del at[last]
    else:
        at[last] = value
    return tree


def check(programs, folder):
    return programs.run("penstock", "check", folder)


def test_the_config_that_the_rows_change_is_fine(programs, tmp_path):
    r = check(programs, write(tmp_path, GOOD))
    assert r.returncode == 0, r.stdout
    assert r.stdout == "ok: 4 models, 6 versions, 1 node, 2 queues\n"


@pytest.mark.parametrize("pointer, value, line", ROWS)
def test_one_mistake_makes_one_message(programs, tmp_path, pointer, value, line):
    r = check(programs, write(tmp_path, changed(pointer, value)))
    assert r.stdout.splitlines()[:-1] == [line]
    assert r.stdout.splitlines()[-1] == f"1 problem in {tmp_path}"
    assert r.returncode == 78


TEXTS = [
    ("syntax", '{"model": "ctr",\n "versions": }', "models/ctr.json:2:14: not JSON: unexpected token near '}'"),
    ("duplicate key", '{"model": "a",\n "model": "b"}', "models/ctr.json:2:8: duplicate object key near '\"model\"'"),
    ("deep", "[" * 33 + "]" * 33, "models/ctr.json:1:33: brackets nest deeper than the limit of 32"),
    ("large", '{"x-notes": "' + "a" * (4 << 20) + '"}', "models/ctr.json: is over the limit of 4194304 bytes"),
    ("empty", "", "models/ctr.json:1:0: not JSON: '[' or '{' expected near end of file"),
    ("number past 64 bits", '{"model": 99999999999999999999}', "models/ctr.json:1:30: not JSON: too big integer near '99999999999999999999'"),
    ("not UTF-8", '{"model": "\udcff"}', "models/ctr.json:1:11: not JSON: unable to decode byte 0xff near '\"'"),
    ("an array", "[]", "models/ctr.json#: an array is not an object"),
]


@pytest.mark.parametrize("text, line", [pytest.param(t, m, id=i) for i, t, m in TEXTS])
def test_a_file_that_is_no_json_object_is_refused_with_its_place(programs, tmp_path, text, line):
    write(tmp_path, {k: v for k, v in GOOD.items() if k != "models/ctr.json"})
    (tmp_path / "models/ctr.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    r = check(programs, tmp_path)
    assert (r.returncode, r.stdout.splitlines()[0]) == (78, line)


def test_all_mistakes_of_all_files_come_at_once(programs, tmp_path):
    tree = copy.deepcopy(GOOD)
    tree["models/ctr.json"].update(protocol="http", trafic={})
    tree["models/ctr.json"]["versions"]["17"]["slots"] = -1
    tree["models/rank.json"]["model"] = ""
    tree["nodes.json"]["a"]["cpu_milli"] = "4"
    tree["queues.json"]["research"]["wieght"] = 1
    tree["models/bad.json"] = "{"
    r = check(programs, write(tmp_path, tree))
    places = [line.split(": ")[0] for line in r.stdout.splitlines()[:-1]]
    assert sorted(places) == sorted(["models/bad.json:1:1", f"{C}/protocol", f"{C}/trafic", f"{C}/versions/17/slots", "models/rank.json#/model",
                                     "nodes.json#/a/cpu_milli", "queues.json#/research/wieght"])
    assert r.returncode == 78


def test_a_folder_without_models_is_refused(programs, tmp_path):
    r = check(programs, tmp_path)
    assert r.returncode == 78
    assert f"models: can't read the folder {tmp_path}/models: No such file or directory" in r.stdout
    (tmp_path / "models").mkdir()
    r = check(programs, tmp_path)
    assert r.returncode == 78
    assert f"models: the folder {tmp_path}/models has no *.json file" in r.stdout


PROCESS = [
    ({"listeners": [{"address": "127.0.0.1"}]}, "#/listeners/0/address: \"127.0.0.1\" is not host:port"),
    ({"listeners": [{"address": "127.0.0.1:1", "cert": "a.pem"}]}, "#/listeners/0/key: is missing; a certificate needs its key"),
    ({"listeners": [{"address": "a:1"}, {"address": "a:1"}]}, "#/listeners/1/address: \"a:1\" is the address of listener 0 too"),
    ({"listener": []}, "#/listener: unknown key; nearest: listeners"),
    ({"workers": 257}, "#/workers: 257 is over the limit of 256 threads"),
    ({"log_level": "trace"}, "#/log_level: \"trace\" is not one of: error, warn, info, debug"),
    ({"state": ""}, "#/state: \"\" is shorter than the limit of 1 byte"),
    ({"models": "m", "catalogue": {"models": {}}}, "#/catalogue: stands beside \"models\": give one of them"),
]


@pytest.mark.parametrize("content, says", PROCESS)
def test_penstock_json_is_checked_alike(programs, tmp_path, content, says):
    file = tmp_path / "penstock.json"
    file.write_text(json.dumps(content))
    r = check(programs, file)
    assert (r.returncode, r.stdout.splitlines()[0]) == (78, f"{file}{says}")


def test_a_catalogue_in_penstock_json_is_checked_and_served(programs, tmp_path):
    """One file is enough for a gateway; its mistakes are told as those of a folder's files."""
    file = tmp_path / "penstock.json"
    model = {"model": "m", "versions": {"1": {"endpoints": ["127.0.0.1:1"]}}}
    content = {"listeners": [{"address": "127.0.0.1:0"}], "admin": "", "catalogue": {"models": {"m.json": model}}}
    file.write_text(json.dumps(content))
    assert check(programs, file).returncode == 0
    programs.start("penstock", "gateway", "--config", str(file)).wait_ready()
    r = programs.run("penstock", "up", "--config", str(file))
    assert r.returncode == 64 and "#/catalogue is for penstock gateway" in r.stderr
    model["polcy"] = "p2c"
    file.write_text(json.dumps(content))
    for r in (check(programs, file), programs.run("penstock", "gateway", "--config", str(file))):
        assert r.returncode == 78 and "models/m.json#/polcy: unknown key; nearest: policy" in r.stdout + r.stderr


def test_print_config_shows_defaults_and_is_itself_a_config(programs, tmp_path):
    r = programs.run("penstock", "check", "--print-config", write(tmp_path, GOOD))
    assert r.returncode == 0
    whole = json.loads(r.stdout)
    assert whole["models"]["rank.json"]["scaling"]["max"] == 4
    assert whole["models"]["rank.json"]["limits"]["attempts"] == 3
    assert whole["models"]["ctr.json"]["limits"]["deadline_ms"] == 300


def test_schema_is_json_and_knows_every_file(programs):
    r = programs.run("penstock", "check", "--print-schema")
    defs = json.loads(r.stdout)["$defs"]
    assert set(defs) == {"model", "nodes", "queues", "process"}
    assert defs["model"]["required"] == ["model"]
    assert defs["model"]["properties"]["limits"]["properties"]["attempts"]["maximum"] == 10


JOB = {"job": "train", "tasks": [{"role": "worker", "command": ["true"]}]}


@pytest.mark.parametrize("contents, status, says", [
    pytest.param(JOB, 0, "ok: job train\n", id="a job"),
    pytest.param({**JOB, "retrie": 2}, 78, "#/retrie: unknown key; nearest: retries\n1 problem in ", id="a job with a wrong key"),
    pytest.param(GOOD["models/echo.json"], 64, " is one model: check the config folder, which holds models/\n", id="a model"),
    pytest.param({"workers": 2}, 0, "ok: 1 listener, admin 127.0.0.1:7080\n", id="a process"),
])
def test_a_file_alone_is_checked_as_what_it_is(programs, tmp_path, contents, status, says):
    (tmp_path / "file.json").write_text(json.dumps(contents))
    r = check(programs, tmp_path / "file.json")
    assert r.returncode == status, r.stdout + r.stderr
    assert says in r.stdout + r.stderr


@pytest.mark.parametrize("flags, status, says", [
    pytest.param(["--cert", "/nope.pem", "--key", "/nope.pem"], 1, "/nope.pem: No such file or directory\n", id="no certificate"),
    pytest.param(["--engine", "steam"], 64, "penstock relay: --engine steam: not an HTTP/2 engine of this build\n", id="engine"),
    pytest.param(["word"], 64, 'penstock relay: what is "word"? it takes no arguments\n', id="a word"),
])
def test_a_relay_that_cannot_start_says_why(programs, flags, status, says):
    r = programs.run("penstock", "relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", *flags)
    assert r.returncode == status and says in r.stderr, r.stderr
