#!/usr/bin/python3
"""The tag walker against the protobuf library: the same model and version, or a refusal.

usage: walker_oracle.py DRIVER PROTO_DIR PROTOC [N]

Makes N messages of every request type that names a model: valid ones, ones put together field by field as no encoder
would (any order, repeats, other wire types, groups, long varints), and damaged ones. The protobuf library (its C++
implementation, the one in Triton and TF-Serving) says what a server would read; the walker gets the same bytes in
random pieces, once to the end without a decision and once committed as early as the relay would.
"""
import collections
import contextlib
import importlib
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import warnings

try:
    import google.protobuf
    from google.protobuf.internal import api_implementation
    from google.protobuf.message import DecodeError
except ImportError:
    print("skipped: python3-protobuf is not installed")
    sys.exit(77)

NAME_VERSION, MODEL_SPEC, TASKS = 1, 2, 3  # enum walker_kind
ANY, VERSION, LABEL = 0, 1, 2  # enum walker_choice
NAME_MAX = 255

# Refusals of messages that the library reads; proto/walker.h lists them.
STRICT = re.compile("has a group|has a tag over 32 bits|has a length over 32 bits|over 64 bits|over the limit of 255")
DIFFERS = re.compile("one call, one model|names (version|label) |names no (model|version)")


def load(proto_dir, protoc, tmp):
    """The generated Python modules of our own .proto files."""
    names = ["kserve_v2", "tensorflow_serving", "tensorflow_tensor"]
    subprocess.run([protoc, "-I" + proto_dir, "--python_out=" + tmp, *[n + ".proto" for n in names]], check=True)
    sys.path.insert(0, tmp)
    return [importlib.import_module(n + "_pb2") for n in names]


# --- the wire, by hand ---

def varint(rng, n, odd):
    """n encoded; with some chance in more bytes than it needs, up to more than is allowed."""
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    if rng.random() < odd:
        for _ in range(rng.choice([1, 1, 2, 3, 4, 5, 9])):
            out[-1] |= 0x80
            out.append(0)
        if rng.random() < 0.1:
            out[-1] = rng.choice([1, 2, 0x10, 0x7F])
    return bytes(out)


def field(rng, number, wire, value, odd):
    """One field: value is bytes for wire types 1, 2, 5 and a list of fields for a group, else an int."""
    tag = varint(rng, number << 3 | wire, odd)
    if wire == 0:
        return tag + varint(rng, value, odd)
    if wire == 2:
        return tag + varint(rng, len(value), odd) + value
    if wire == 3:
        return tag + value + varint(rng, number << 3 | 4, odd)
    return tag + value


def junk(rng, odd, depth=0):
    """A field that is not ours: an unknown number, or one of ours with another wire type."""
    wire = rng.choice([0, 1, 5, 2])
    number = rng.choice([rng.randint(1, 8) if wire != 2 else 15, rng.randint(41, 2**29 - 1), 2**29 - 1])
    if odd and rng.random() < 0.1:
        inner = b"".join(junk(rng, odd, depth + 1) for _ in range(rng.randint(0, 2))) if depth < 3 else b""
        return field(rng, number, 3, inner, odd)
    value = {0: rng.getrandbits(64), 1: rng.randbytes(8), 5: rng.randbytes(4),
             2: rng.randbytes(rng.choice([0, 1, 5, 200]))}[wire]
    return field(rng, number, wire, value, odd)


def text(rng):
    roll = rng.random()
    if roll < 0.15:
        return b""
    if roll < 0.75:
        return rng.choice([b"m", b"n", b"1", b"2", b"stable", b"digits", b"17"])
    if roll < 0.9:
        return "".join(rng.choice("aé漢🐍\0\" %") for _ in range(rng.randint(1, 20))).encode()
    if roll < 0.96:
        return b"x" * rng.choice([127, 128, 254, 255, 256, 300])
    return rng.randbytes(rng.randint(1, 4))  # mostly not UTF-8


def int64_value(rng, odd):
    out = b""
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        out += field(rng, 1, 0, rng.choice([0, 1, 2, 3, 17, 2**63 - 1, 2**63, 2**64 - 1]), odd)
        if rng.random() < 0.1:
            out += junk(rng, odd)
        if rng.random() < 0.1:
            out += field(rng, 1, 2, b"\x05", odd)  # no varint: unknown
    return out


def model_spec(rng, odd):
    parts = []
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 5])):
        kind = rng.randint(0, 9)
        if kind < 4:
            parts.append(field(rng, 1, 2, text(rng), odd))
        elif kind < 6:
            parts.append(field(rng, 2, 2, int64_value(rng, odd), odd))
        elif kind < 8:
            parts.append(field(rng, 4, 2, text(rng), odd))
        elif kind < 9:
            parts.append(field(rng, 3, 2, b"serving_default", odd))
        else:
            parts.append(junk(rng, odd))
    return b"".join(parts)


def by_hand(rng, kind, odd):
    parts = []
    for _ in range(rng.choice([0, 1, 2, 3, 4, 6])):
        roll = rng.random()
        if roll < 0.25:
            parts.append(junk(rng, odd))
        elif kind == NAME_VERSION:
            parts.append(field(rng, rng.choice([1, 1, 2]), 2, text(rng), odd))
        elif kind == MODEL_SPEC:
            parts.append(field(rng, 1, 2, model_spec(rng, odd), odd))
        else:
            specs = b"".join(field(rng, 1, 2, model_spec(rng, odd), odd) for _ in range(rng.choice([0, 1, 1, 1, 2])))
            if rng.random() < 0.5:
                specs += field(rng, 2, 2, b"tensorflow/serving/classify", odd)
            parts.append(field(rng, 1, 2, specs, odd))
            if rng.random() < 0.4:
                parts.append(parts[-1])  # agreeing tasks
    return b"".join(parts)


# --- messages as an encoder makes them ---

def fill_spec(rng, spec):
    spec.name = rng.choice(["m", "digits", "größe", "x" * 255])
    choice = rng.randint(0, 2)
    if choice == 1:
        spec.version.value = rng.choice([0, 1, -1, 17, 2**62])
    elif choice == 2:
        spec.version_label = rng.choice(["stable", "canary"])
    if rng.random() < 0.5:
        spec.signature_name = "serving_default"


def valid(rng, cls, tensor_pb):
    m = cls()
    fields = m.DESCRIPTOR.fields_by_name
    if "tasks" in fields:
        fill_spec(rng, m.tasks.add().model_spec)
        for _ in range(rng.randint(0, 2)):
            m.tasks.add().CopyFrom(m.tasks[0])
            m.tasks[-1].method_name = "tensorflow/serving/classify"
        m.input = rng.randbytes(rng.randint(0, 2000))
        return m
    if "model_spec" in fields:
        fill_spec(rng, m.model_spec)
        if "inputs" in fields:
            for i in range(rng.randint(0, 3)):
                t = m.inputs[f"input_{i}"]
                t.dtype = tensor_pb.DT_FLOAT
                t.tensor_shape.dim.add(size=rng.randint(1, 9))
                t.tensor_content = rng.randbytes(rng.randint(0, 3000))
        return m
    name, version = rng.choice(["m", "digits", "größe", "x" * 255]), rng.choice(["", "1", "17", "stable"])
    if "model_name" not in fields:
        m.name, m.version = name, version
        return m
    m.model_name, m.model_version, m.id = name, version, rng.choice(["", "req-1"])
    if rng.random() < 0.3:
        m.parameters["sequence_id"].int64_param = rng.getrandbits(40)
    for i in range(rng.randint(0, 3)):
        t = m.inputs.add(name=f"in{i}", datatype="FP32", shape=[1, rng.randint(1, 9)])
        if rng.random() < 0.5:
            t.contents.fp32_contents.extend([rng.random() for _ in range(rng.randint(1, 50))])
        else:
            m.raw_input_contents.append(rng.randbytes(rng.randint(0, 3000)))
    return m


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randint(0, max(0, min(len(data), 60) - 1))
        how = rng.randint(0, 5)
        if how == 0 and data:
            data[at] ^= 1 << rng.randint(0, 7)
        elif how == 1 and data:
            data[at] = rng.choice([0, 1, 0x0A, 0x12, 0x22, 0x7F, 0x80, 0xFF])
        elif how == 2:
            del data[at:at + rng.randint(1, 3)]
        elif how == 3:
            data[at:at] = rng.randbytes(rng.randint(1, 3))
        elif how == 4:
            del data[rng.randint(0, len(data)):]
        else:
            part = data[at:at + rng.randint(1, 12)]
            data += part
    return bytes(data)


# --- what a server reads ---

def of_spec(spec):
    choice = {None: ANY, "version": VERSION, "version_label": LABEL}[spec.WhichOneof("version_choice")]
    version = {ANY: "", VERSION: str(spec.version.value), LABEL: spec.version_label}[choice]
    return spec.name, choice, version


@contextlib.contextmanager
def quiet():
    """Standard error closed: the library writes a line there for each name that is not UTF-8."""
    stderr = os.dup(2)
    with open(os.devnull, "w", encoding="ascii") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def oracle(cls, data):
    """(name, choice, version), or None when the library, or the server right after it, refuses the message."""
    m, warned = cls(), []
    warnings.showwarning = lambda *_args: warned.append(1)
    try:
        m.ParseFromString(data)
    except DecodeError:
        return None
    if warned:  # "Not all data was converted": tag 0 or a stray end of a group, where C++ programs see a failure
        return None
    fields = m.DESCRIPTOR.fields_by_name
    if "tasks" in fields:
        if not m.tasks:
            return "", ANY, ""
        if len({t.model_spec.name for t in m.tasks}) > 1:
            return None  # "All ModelSpecs in a MultiInferenceRequest must access the same model name."
        return of_spec(m.tasks[0].model_spec)
    if "model_spec" in fields:
        return of_spec(m.model_spec)
    name, version = (m.model_name, m.model_version) if "model_name" in fields else (m.name, m.version)
    return name, VERSION if version else ANY, version


def judges_all(cls, data):
    """True when a message of this type, damaged or not, has nothing that the walker skips and the library checks."""
    fields = cls.DESCRIPTOR.fields_by_name
    if "model_spec" in fields:
        return len(fields) == 1 and b"\x1a" not in data  # signature_name must be UTF-8
    return set(fields) == {"name", "version"}


def pieces(rng, data):
    style = rng.randint(0, 3)
    if style == 0 or not data:
        return [data]
    if style == 1 and len(data) < 2000:
        return [data[i:i + 1] for i in range(len(data))]
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 8)))
    return [data[a:b] for a, b in zip([0] + cuts, cuts + [len(data)])]


def record(kind, commit, look_bytes, parts):
    head = b"W" + struct.pack(">BBIH", kind, commit, look_bytes, len(parts))
    return head + b"".join(struct.pack(">I", len(p)) + p for p in parts)


def parse_line(line):
    word, _, rest = line.partition(" ")
    if word == "refused":
        return None, rest
    name, choice, version = rest.split(" ")
    return tuple([*(lambda n, c, v: (n.decode(), c, v.decode()))(
        b"" if name == "-" else bytes.fromhex(name), int(choice), b"" if version == "-" else bytes.fromhex(version))]), ""


def main():
    driver, proto_dir, protoc = sys.argv[1:4]
    warnings.simplefilter("always")
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 20000
    seed = int(os.environ.get("PENSTOCK_SEED", "1"))
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as tmp:
        kserve, serving, tensor = load(proto_dir, protoc, tmp)
    types = [(NAME_VERSION, c) for c in (kserve.ModelInferRequest, kserve.ModelReadyRequest, kserve.ModelMetadataRequest,
                                         kserve.ModelConfigRequest, kserve.ModelStatisticsRequest)]
    types += [(MODEL_SPEC, c) for c in (serving.PredictRequest, serving.ClassificationRequest, serving.RegressionRequest,
                                        serving.GetModelMetadataRequest, serving.GetModelStatusRequest,
                                        serving.SessionRunRequest)]
    types += [(TASKS, serving.MultiInferenceRequest)] * 3

    cases, stdin = [], bytearray()
    for i in range(n):
        kind, cls = types[i % len(types)]
        how = rng.choice(["valid", "merged", "by hand", "odd", "damaged", "damaged"])
        if how == "valid":
            data = valid(rng, cls, tensor).SerializeToString()
        elif how == "merged":
            data = valid(rng, cls, tensor).SerializeToString() + valid(rng, cls, tensor).SerializeToString()
        elif how == "by hand":
            data = by_hand(rng, kind, 0)
        elif how == "odd":
            data = by_hand(rng, kind, 0.15)
        else:
            data = damaged(rng, rng.choice([lambda: valid(rng, cls, tensor).SerializeToString(),
                                            lambda: by_hand(rng, kind, 0.02)])())
        cases.append((kind, cls, how, data))
        stdin += record(kind, 0, 0, pieces(rng, data))
        stdin += record(kind, 1, rng.choice([0, 0, 0, 1, 10, 100]), pieces(rng, data))
        version = str(rng.choice([0, 1, 7, 2**63 - 1, -1]))
        stdin += b"O" + struct.pack(">BB", kind, len(version)) + version.encode()
        cases[-1] += (version,)
    run = subprocess.run([driver], input=bytes(stdin), stdout=subprocess.PIPE, check=True)
    lines = run.stdout.decode("utf-8", "replace").split("\n")

    with quiet():
        wants = [oracle(cls, data) for _, cls, _, data, _ in cases]
    tally, problems = collections.Counter(), []
    for i, (kind, cls, how, data, version) in enumerate(cases):
        want = wants[i]
        whole, why = parse_line(lines[3 * i])
        early, why_early = parse_line(lines[3 * i + 1])
        fault = None
        if want is None:
            tally["both refuse" if whole is None else "left to the server"] += 1
            if whole is not None and (how != "damaged" or judges_all(cls, data)):
                fault = f"says {whole}"
        elif whole is None:
            tally["only the walker refuses"] += 1
            if not (STRICT.search(why) or kind == TASKS and DIFFERS.search(why)):
                fault = f"refused a message that servers read: {why}"
        elif whole != want:
            fault = f"says {whole}"
        else:
            tally["same"] += 1
        if early is not None:
            if want is not None and early != want:
                fault = f"routed early by {early}"
            tally["same, early"] += want is not None
        elif whole is not None:
            tally["early decision withdrawn"] += 1
            if not DIFFERS.search(why_early):
                fault = f"refused when committed, but not before: {why_early}"
            if how == "valid" and not DIFFERS.search(why_early):
                fault = f"refused a valid message early: {why_early}"
        if how == "valid" and whole is None:
            fault = f"refused a valid message: {why}"
        patch = lines[3 * i + 2].split(" ")[1]
        if want is not None and kind != TASKS:
            got = oracle(cls, data + bytes.fromhex(patch))
            tally["overridden"] += 1
            if got != (want[0], VERSION, version):
                fault = f"override by {version} gives {got}"
        elif kind == TASKS and patch != "-":
            fault = "an override for MultiInference adds a task"
        if fault:
            problems.append(f"{cls.__name__} ({how}) {data[:200].hex()}: the library says {want}, the walker {fault}")

    print(f"protobuf {google.protobuf.__version__} ({api_implementation.Type()}), seed {seed}, {n} messages: "
          + ", ".join(f"{count} {what}" for what, count in sorted(tally.items())))
    for problem in problems[:20]:
        print(problem)
    for what in ("same", "same, early", "both refuse", "only the walker refuses", "early decision withdrawn", "overridden"):
        if tally[what] < n // 200:
            problems.append(what)
            print(f"only {tally[what]} cases of '{what}': the generator does not reach it")
    sys.exit(1 if problems else 0)


main()
