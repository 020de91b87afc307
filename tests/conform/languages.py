"""The interoperability cases in other languages than Go: clients and servers with grpcio, libgrpc++ and @grpc/grpc-js, each with any other.

A language that this machine lacks is told by Missing, with what to install; nothing else of the suites needs it.
"""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import suites

HERE = pathlib.Path(__file__).resolve().parent / "interop"
PROTOS = pathlib.Path("/usr/share/grpc-proto")
GENERATED = [f"grpc/testing/{name}.proto" for name in ("test", "messages", "empty")]
CASES = [c for c in suites.INTEROP if c not in ("channel_soak", "orca_per_rpc", "orca_oob")]  # what each of the three has
NAMES = ["grpcio", "libgrpc++", "grpc-js"]


class Missing(Exception):
    """A language's tools are not here; the message says what to install."""


def need(*programs, package):
    for p in programs:
        if shutil.which(p) is None:
            raise Missing(f"no {p}: apt-get install {package}")


def locked(build):
    suites.BUILT.mkdir(parents=True, exist_ok=True)
    with open(suites.BUILT / "languages.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build()


def is_newer(target, *sources):
    return target.exists() and target.stat().st_mtime >= max(s.stat().st_mtime for s in sources)


def grpcio():
    need("protoc", package="protobuf-compiler")
    if not PROTOS.exists():
        raise Missing("no gRPC test protos: apt-get install grpc-proto")
    return [sys.executable, str(HERE / "interop_py.py")]


def libgrpcxx():
    need("g++", "protoc", "grpc_cpp_plugin", "pkg-config", package="g++ libgrpc++-dev protobuf-compiler-grpc grpc-proto")
    source, program, folder = HERE / "interop_cxx.cc", suites.BUILT / "interop_cxx", suites.BUILT / "cxx"

    def run(*argv):
        r = subprocess.run([str(a) for a in argv], cwd=folder, capture_output=True, text=True)
        if r.returncode != 0:
            raise RuntimeError(f"{argv[0]}: {r.stderr[-2000:]}")
        return r.stdout.split()

    def build():
        if is_newer(program, source):
            return
        folder.mkdir(exist_ok=True)
        run("protoc", "-I", PROTOS, "--cpp_out=.", "--grpc_out=.", f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}", *GENERATED)
        run("g++", "-O1", "-std=c++17", "-I.", source, *sorted(str(f) for f in folder.glob("grpc/testing/*.cc")), "-o", program,
            *run("pkg-config", "--libs", "grpc++", "protobuf"))

    locked(build)
    return [str(program)]


def grpc_js():
    need("node", "npm", package="nodejs npm")
    source, folder = HERE / "js", suites.BUILT / "js"
    files = sorted(source.glob("*.js*"))

    def build():
        if is_newer(folder / "built", *files):
            return
        folder.mkdir(exist_ok=True)
        for f in files:
            shutil.copy(f, folder)
        r = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True)
        if r.returncode != 0:
            raise Missing(f"@grpc/grpc-js cannot be had from the npm registry: {r.stderr.strip().splitlines()[-1:]}")
        (folder / "built").touch()

    locked(build)
    return ["node", str(folder / "interop.js")]


COMMANDS = dict(zip(NAMES, (grpcio, libgrpcxx, grpc_js)))


def start_server(programs, language, certificate=None):
    argv = [*COMMANDS[language](), "server", "-listen", "127.0.0.1:0", *(["-cert", certificate.cert, "-key", certificate.key] if certificate else [])]
    server = programs.start(*([shutil.which(argv[0])] + argv[1:]), name=language)
    server.expect_exit = {-15, 143, 0}
    return server


def run_client(language, address, certificate=None, cases=CASES, soak=200, threads=4):
    """[what was wrong] of these cases; each is told by the client with `ok` or `bad`."""
    argv = [*COMMANDS[language](), "client", "-address", address, "-cases", ",".join(cases), "-soak", str(soak), "-threads", str(threads)]
    env = {**os.environ, "GRPC_VERBOSITY": "NONE", "no_proxy": "127.0.0.1,localhost"}
    try:
        r = subprocess.run([*argv, *(["-ca", certificate.cert] if certificate else [])], capture_output=True, text=True, timeout=300, env=env)
    except subprocess.TimeoutExpired as e:
        return [f"no end after {e.timeout} s: {e.stdout}"]
    lines = r.stdout.splitlines()
    silent = [c for c in cases if not any(line.split(" ", 2)[1:2] == [c] for line in lines)]
    return [line for line in lines if not line.startswith("ok ")] + [f"bad {c} said nothing: {r.stderr[-300:]}" for c in silent]
