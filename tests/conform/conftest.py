"""The fixtures of tests/func, and the suites built from pinned Go modules (suites.py)."""
import importlib.util
import pathlib
import sys

import pytest

FUNC = pathlib.Path(__file__).resolve().parents[1] / "func"
sys.path[:0] = [str(FUNC), str(pathlib.Path(__file__).resolve().parent)]
_spec = importlib.util.spec_from_file_location("func_conftest", FUNC / "conftest.py")
_func = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_func)
module_programs, programs, scripted, stock = _func.module_programs, _func.programs, _func.scripted, _func.stock
pytest_collection_modifyitems = _func.pytest_collection_modifyitems

import suites  # noqa: E402  (after the path)


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """{name: path} of the suites' programs; skips where there is no Go of the age that they need."""
    try:
        return suites.build()
    except suites.NoGo as e:
        pytest.skip(str(e))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """suites.Certificate of localhost."""
    return suites.Certificate(tmp_path_factory.mktemp("tls"))
