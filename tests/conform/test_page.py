"""docs/conformance.md names tests: they must be there."""
import re

import page
import suites


def test_the_page_names_tests_that_exist():
    for fact, *tests in page.FACTS:
        for t in tests:
            file, name = t.split("::")
            assert re.search(rf"^def {name}\(", (suites.ROOT / "tests" / file).read_text(), re.M), f"{fact}: no {t}"
