"""The commands and files of docs/tls.md do what the page says."""
import json
import os
import re

import penstock

PAGE = (penstock.ROOT / "docs/tls.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)


def test_the_commands_run(programs, stock, tmp_path):
    making, relay, load = blocks("sh")[0].split("\n\n")
    assert relay.rstrip().endswith("&") and load.startswith("penstock-load")
    env = {"PATH": f"{penstock.BUILD}/penstock:{penstock.BUILD}/loadtest:{os.environ['PATH']}"}
    assert programs.run("/bin/sh", "-ec", making, cwd=tmp_path, env=env).returncode == 0
    flags = relay.replace("\\\n", " ").rstrip("& \n").split()[1:]
    for old, new in (("127.0.0.1:8443", "127.0.0.1:0"), ("127.0.0.1:7080", "127.0.0.1:0"), ("127.0.0.1:9000", stock().address)):
        flags[flags.index(old)] = new
    gate = programs.start("penstock", *flags, cwd=tmp_path)
    argv = load.replace("127.0.0.1:8443", gate.grpc).replace("/any.Service/Method", "/test.Echo/Unary").split()
    r = programs.run(*argv, cwd=tmp_path)
    assert r.returncode == 0, r
    penstock.wait_for(lambda: gate.counter("penstock_tenant_calls_total", tenant="ads") == 10, what="ten calls of ads")


def test_the_files_pass_the_check(programs, tmp_path):
    making = blocks("sh")[0].split("\n\n")[0]
    assert programs.run("/bin/sh", "-ec", making, cwd=tmp_path).returncode == 0
    for kind in ("pem", "key"):
        (tmp_path / f"models.{kind}").write_bytes((tmp_path / f"gate.{kind}").read_bytes())
    process, model = map(json.loads, blocks("json"))
    (tmp_path / "penstock.json").write_text(json.dumps(process))
    tree = penstock.write_models(tmp_path / "config", {model["model"]: model})
    for what in ("penstock.json", tree):
        r = programs.run("penstock", "check", what, cwd=tmp_path)
        assert r.returncode == 0, r
