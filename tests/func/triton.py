"""A real Triton server (its Python backend on the CPU, out of the nvidia-pytriton wheel) with a small model repository.

Models: `fmnist` (versions 1, 2, 3: the networks that the build trained), `slow` (sleeps as told, notices a cancel),
`tokens` (decoupled: a stream of text pieces), `bigid` (identity, for large messages).
"""
import pathlib
import shutil
import site

import fashion
import grpc
import numpy as np
import penstock
from tritonclient.grpc import service_pb2 as kserve
from tritonclient.grpc import service_pb2_grpc as kserve_grpc

SITE = pathlib.Path(site.getsitepackages()[0])
SERVER = SITE / "pytriton/tritonserver"
LIBPYTHON = "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"

FMNIST = '''
import os, numpy as np, triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        with np.load(os.path.join(args["model_repository"], args["model_version"], "net.npz")) as f:
            self.layers = [(f[f"w{i}"], f[f"b{i}"]) for i in range(len(f.files) // 2)]

    def execute(self, requests):
        out = []
        for r in requests:
            x = pb.get_input_tensor_by_name(r, "image").as_numpy()
            for i, (w, b) in enumerate(self.layers):
                x = x @ w + b
                if i + 1 < len(self.layers):
                    x = np.maximum(x, 0)
            p = np.exp(x - x.max(1, keepdims=True))
            out.append(pb.InferenceResponse([pb.Tensor("probs", (p / p.sum(1, keepdims=True)).astype(np.float32))]))
        return out
'''
FMNIST_CONFIG = '''
backend: "python"  max_batch_size: 64
input  [ { name: "image" data_type: TYPE_FP32 dims: [ 784 ] } ]
output [ { name: "probs" data_type: TYPE_FP32 dims: [ 10 ] } ]
version_policy: { all: {} }
instance_group [ { kind: KIND_CPU count: 1 } ]
'''
SLOW = '''
import time, numpy as np, triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            end = time.monotonic() + int(pb.get_input_tensor_by_name(r, "ms").as_numpy().reshape(-1)[0]) / 1000
            while time.monotonic() < end and not r.is_cancelled():
                time.sleep(0.005)
            cancelled = np.array([r.is_cancelled()], dtype=np.int32)
            out.append(pb.InferenceResponse([pb.Tensor("cancelled", cancelled)]))
        return out
'''
SLOW_CONFIG = '''
backend: "python"  max_batch_size: 0
input  [ { name: "ms" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "cancelled" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
'''
TOKENS = '''
import threading, time, numpy as np, triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            n = int(pb.get_input_tensor_by_name(r, "n").as_numpy().reshape(-1)[0])
            threading.Thread(target=self.speak, args=(r.get_response_sender(), n)).start()

    def speak(self, sender, n):
        for i in range(n):
            sender.send(pb.InferenceResponse([pb.Tensor("token", np.array([f"t{i}".encode()], dtype=object))]))
            time.sleep(0.01)
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
TOKENS_CONFIG = '''
backend: "python"  max_batch_size: 0
model_transaction_policy { decoupled: true }
input  [ { name: "n" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "token" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
'''
BIGID = '''
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy())]) for r in requests]
'''
BIGID_CONFIG = '''
backend: "python"  max_batch_size: 0
input  [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
'''


def why_not():
    """Why Triton can't run here; None when it can."""
    if not (SERVER / "bin/tritonserver").exists():
        return "no Triton server in .venv (its wheel could not be had: ./dev deps)"
    if not pathlib.Path(LIBPYTHON).exists():
        return "Triton's Python backend needs Debian's libpython3.11"
    if not list(penstock.BUILD.glob("loadtest/fashion-1.*")):
        return "no trained weights in the build (is dataset-fashion-mnist installed?)"
    return None


def make_repository(folder):
    repo = folder / "repository"
    for name, code, config in (("slow", SLOW, SLOW_CONFIG), ("tokens", TOKENS, TOKENS_CONFIG), ("bigid", BIGID, BIGID_CONFIG)):
        (repo / name / "1").mkdir(parents=True)
        (repo / name / "1/model.py").write_text(code)
        (repo / name / "config.pbtxt").write_text(config)
    for version in "123":
        (repo / "fmnist" / version).mkdir(parents=True)
        (repo / "fmnist" / version / "model.py").write_text(FMNIST)
        arrays = {}
        for i, (w, b) in enumerate(fashion.read_weights(penstock.weights_file(f"fashion-{version}"))):
            arrays[f"w{i}"], arrays[f"b{i}"] = w, b
        np.savez(repo / "fmnist" / version / "net.npz", **arrays)
    (repo / "fmnist/config.pbtxt").write_text(FMNIST_CONFIG)
    backend = folder / "backends/python"
    shutil.copytree(SERVER / "backends/python", backend)
    shutil.copy(SERVER / "python_backend_stubs/3.11/triton_python_backend_stub", backend)
    for package in ("numpy", "numpy.libs"):  # the stub is isolated: it sees this folder only
        (backend / package).symlink_to(SITE / package)
    return repo


def start(programs, folder, repository):
    """One Triton server; ready when every model is."""
    grpc_port, http_port = penstock.free_port(), penstock.free_port()
    program = programs.start(
        SERVER / "bin/tritonserver", f"--model-repository={repository}", f"--backend-directory={folder / 'backends'}",
        "--grpc-address=127.0.0.1", "--http-address=127.0.0.1", f"--grpc-port={grpc_port}", f"--http-port={http_port}",
        "--allow-metrics=false", "--exit-timeout-secs=10",
        env={"LD_LIBRARY_PATH": str(SITE / "nvidia_pytriton.libs")}, ready=False, name="tritonserver")
    program.address = f"127.0.0.1:{grpc_port}"
    program.expect_exit = {0, 1}  # 1: a stub process was still busy at the end
    with penstock.channel(program.address) as ch:
        stub = kserve_grpc.GRPCInferenceServiceStub(ch)

        def ready():
            if program.process.poll() is not None:
                raise RuntimeError(f"Triton ended: {program}")
            try:
                return stub.ServerReady(kserve.ServerReadyRequest(), timeout=2).ready
            except grpc.RpcError:
                return False
        penstock.wait_for(ready, 120, "Triton ready", every=0.1)
    return program
