"""The tours of README.md and docs/start.md, command by command: what they show is what the programs print, numbers apart."""
import re
import subprocess

import pytest

import penstock


MARK = "--8<--"


def files(text):
    """{name: contents} of the blocks that are introduced by "`name`:"."""
    return dict(re.findall(r"`([\w/.]+)`:\n\n```json\n(.*?)```", text, re.S))


def tour(text):
    """[(command, lines shown)] of the first console block."""
    block = re.search(r"```console\n(.*?)```", text, re.S)[1]
    steps = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def shape(line):
    """A line with its numbers and blanks levelled, so that two runs compare."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.]*", "N", line)).strip()


def adapted(command, ports):
    """The command with free ports, and the build under test; `./dev build` is done already."""
    command = re.sub(r"127\.0\.0\.1:(\d+)", lambda m: f"127.0.0.1:{ports.setdefault(m[1], penstock.free_port())}", command)
    command = command.replace("build/loadtest/", f"{penstock.BUILD}/loadtest/").replace("$PWD/build", str(penstock.BUILD))
    return "true" if command == "./dev build" else command


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_tour_of(page, tmp_path):
    text = (penstock.ROOT / page).read_text()
    steps = tour(text)
    ports = {}
    for name, contents in files(text).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(contents.replace("build/loadtest/", f"{penstock.BUILD}/loadtest/"))
    script = ["set -m", "exec 2>errors"]
    for command, shown in steps:
        command = adapted(command, ports)
        script += [f"echo '{MARK}'", command]
        if command.endswith("&"):  # what it prints belongs to this step
            script += ["sleep 1.5"]
    admin = ports.get("7080")
    script.insert(0, f"export PENSTOCK_ADMIN=127.0.0.1:{admin} PATH={penstock.BUILD}/penstock:{penstock.BUILD}/loadtest:$PATH")
    script.append("wait")
    r = subprocess.run(["bash", "-c", "\n".join(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    parts = r.stdout.split(MARK + "\n")[1:]
    assert len(parts) == len(steps), r.stdout
    for (command, shown), got in zip(steps, parts):
        if not shown:
            continue
        # What the prober has not seen yet is not told yet.
        lines, want = ([shape(x) for x in some if not x.endswith(" is unhealthy")] for some in (got.splitlines(), shown))
        # Replicas are listed in the order of their first answer, and a slow machine shows other columns of zeros.
        assert sorted(want) == sorted(lines), f"{command}: {got}"
