"""What the checks of this folder share: the files of the repository, and TAP lines."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATED = (".venv", "build", ".git", ".cache", "__pycache__")


def files(*suffixes):
    """Paths relative to ROOT of all files under version control (all files at all without git), sorted."""
    git = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z", "--cached", "--others",
                          "--exclude-standard"], capture_output=True, text=True)
    if git.returncode == 0:
        found = [pathlib.Path(p) for p in git.stdout.split("\0") if p]
    else:
        found = []
        for top, folders, names in os.walk(ROOT):
            folders[:] = [f for f in folders if not f.startswith(GENERATED)]
            found += [pathlib.Path(top, n).relative_to(ROOT) for n in names]
    return sorted(p for p in found if (not suffixes or p.suffix in suffixes) and (ROOT / p).is_file())


def report(name, problems):
    """One TAP case: ok, or not ok with each problem on a line of its own."""
    print(f"{'not ok' if problems else 'ok'} - {name}")
    for p in problems:
        print(f"# {p}")
