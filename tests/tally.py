#!/usr/bin/env python3
"""Adds up what the tests of one run said: what failed, what was skipped and why, and the total.

usage: tally.py RESULTS [--filtered] KIND...      KIND: unit, lint, func, conform; --filtered: a kind may have had nothing to run

RESULTS holds unit.json (meson's test log; each cmocka program wrote TAP), lint-*.tap, func.xml, func-session.xml (the
data plane on that engine) and conform.xml (JUnit, from pytest). The last line is `N passed, N failed, N skipped`; exit 1 when anything failed or a kind left no result.
"""
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

TAP_LINE = re.compile(r"^(not ok|ok)\b\s*\d*\s*-?\s*(.*?)(?:\s*#\s*skip\S*\s*(.*))?$", re.IGNORECASE)


class Tally:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    def add_tap(self, program, text):
        """Counts the cases of one program; how many there were."""
        n = 0
        for line in text.splitlines():
            m = TAP_LINE.match(line)
            if not m:
                continue
            n += 1
            name = f"{program}: {m[2]}"
            if m[3] is not None:  # cmocka says `not ok 3 # SKIP test_name`
                self.skipped.append(f"{name}: {m[3]}" if m[2] else f"{program}: {m[3]}")
            elif m[1] == "not ok":
                self.failed.append(name)
            else:
                self.passed += 1
        return n

    def add_unit(self, log):
        for line in log.read_text().splitlines():
            test = json.loads(line)
            name = test["name"]
            output = test.get("stdout", "") + "\n" + test.get("stderr", "")
            failed_before = len(self.failed)
            n = self.add_tap(name, output)
            if test["result"] in ("OK", "EXPECTEDFAIL") and n > 0:
                continue
            if test["result"] == "OK":  # a program without cases of its own is one case
                self.passed += 1
            elif test["result"] == "SKIP":
                self.skipped.append(f"{name}: {output.strip().splitlines()[-1] if output.strip() else 'no reason given'}")
            else:
                if len(self.failed) == failed_before:  # it died: a sanitizer, a signal, a leak at exit
                    self.failed.append(f"{name}: {test['result']} (exit {test.get('returncode')})")
                print(f"---- {name}\n" + "\n".join(output.strip().splitlines()[-60:]))

    def add_lint(self, log):
        text = log.read_text()
        if self.add_tap(log.stem.removeprefix("lint-"), text) == 0:
            self.failed.append(f"{log.stem}: it checked nothing (it died?)")
        notes = [line for line in text.splitlines() if line.startswith("# ")]
        if notes:
            print("\n".join(notes))

    def add_func(self, log):
        engine = log.stem.partition("-")[2]  # of func-session.xml
        for case in xml.parse(log).getroot().iter("testcase"):
            name = f"{case.get('classname', '').rsplit('.', 1)[-1]}: {case.get('name')}" + (f" ({engine})" if engine else "")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(name)
            elif case.find("skipped") is not None:
                self.skipped.append(f"{name}: {case.find('skipped').get('message')}")
            else:
                self.passed += 1


def main():
    results, kinds = pathlib.Path(sys.argv[1]), sys.argv[2:]
    filtered = kinds[0] == "--filtered"
    kinds = kinds[filtered:]
    tally = Tally()
    readers = {"unit": ("unit.json", tally.add_unit), "lint": ("lint-*.tap", tally.add_lint), "func": ("func*.xml", tally.add_func),
               "conform": ("conform.xml", tally.add_func)}
    for kind in kinds:
        pattern, read = readers[kind]
        logs = sorted(results.glob(pattern))
        if not logs and not filtered:
            tally.failed.append(f"{kind}: left no result")
        for log in logs:
            try:
                read(log)
            except (ValueError, xml.ParseError) as e:
                tally.failed.append(f"{log.name}: not readable: {e}")
    total = tally.passed + len(tally.failed) + len(tally.skipped)
    if total == 0:
        tally.failed.append("no test ran (a filter that fits nothing?)")
    for name in tally.skipped:
        print(f"skipped: {name}")
    for name in tally.failed:
        print(f"FAILED: {name}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
