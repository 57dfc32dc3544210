#!/usr/bin/env python3
"""See mutants.sh; with --stale only looks whether every entry still fits the sources. Entries of mutants.txt:

    == FILE TEST [TEST ...]      # what is wrong then
    - the line as it is (leading blanks do not matter)
    + the line with the fault
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TREE = os.path.join(ROOT, "build", "mutants", "tree")
BUILD = os.path.join(ROOT, "build", "mutants", "build")


def read_list(path):
    entries, entry = [], None
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        if line.startswith("== "):
            head, _, what = line[3:].partition("#")
            name, *tests = head.split()
            entry = {"file": name, "tests": tests, "what": what.strip(), "old": [], "new": [], "line": number}
            entries.append(entry)
        elif line.startswith("- "):
            entry["old"].append(line[2:].strip())
        elif line.startswith("+ "):
            entry["new"].append(line[2:].strip())
        elif line.strip() and not line.startswith("#"):
            sys.exit(f"mutants.txt:{number}: neither ==, - nor +")
    return entries


def copy_tree():
    """Brings the copy up to date without touching files that are the same, so builds stay incremental."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.split("\n")
    for name in filter(None, names):
        source, target = os.path.join(ROOT, name), os.path.join(TREE, name)
        if not os.path.isfile(source):
            continue
        if os.path.exists(target) and open(source, "rb").read() == open(target, "rb").read():
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)


def mutate(text, entry):
    """The text with the fault, or None when the place is not there exactly once."""
    pattern = r"^([ \t]*)" + r"\n[ \t]*".join(re.escape(line) for line in entry["old"]) + "$"
    if len(re.findall(pattern, text, re.M)) != 1:
        return None
    return re.sub(pattern, lambda m: m[1] + ("\n" + m[1]).join(entry["new"]), text, flags=re.M)


def run(command):
    return subprocess.run(command, capture_output=True, text=True)


def built(tests):
    """Tests without a source of their own are scripts around the command."""
    targets = {t if os.path.exists(os.path.join(TREE, "tests", t + ".c")) else "sonde" for t in tests}
    result = run(["cmake", "--build", BUILD, "--target"] + sorted(targets))
    return None if result.returncode == 0 else result.stdout[-2000:]


def caught(tests):
    wanted = "^(" + "|".join(tests) + ")$"
    return run(["ctest", "--test-dir", BUILD, "-R", wanted, "--timeout", "60", "--no-tests=error"]).returncode != 0


def try_one(entry):
    path = os.path.join(TREE, entry["file"])
    if not os.path.exists(path):
        return "no such file"
    text = open(path, encoding="utf-8").read()
    wrong = mutate(text, entry)
    if wrong is None:
        return "the line is not there exactly once"
    open(path, "w", encoding="utf-8").write(wrong)
    try:
        failure = built(entry["tests"])
        if failure:
            return "does not compile:\n" + failure
        return None if caught(entry["tests"]) else "SURVIVED"
    finally:
        open(path, "w", encoding="utf-8").write(text)


def stale(entries):
    """Entries whose text is gone: a quick check without building anything."""
    bad = 0
    for e in entries:
        path = os.path.join(ROOT, e["file"])
        if not os.path.exists(path) or mutate(open(path, encoding="utf-8").read(), e) is None:
            print(f"mutants.txt:{e['line']}: not exactly once in {e['file']}: {' / '.join(e['old'])}")
            bad += 1
    return 1 if bad else 0


def main():
    entries = read_list(os.path.join(ROOT, "tools", "mutants.txt"))
    words = sys.argv[1:]
    if words == ["--stale"]:
        return stale(entries)
    if words:
        entries = [e for e in entries if any(w in e["file"] or w in " ".join(e["tests"]) for w in words)]
    copy_tree()
    # No warnings as errors: a fault may leave something unused.
    setup = run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_COMPILER=gcc"])
    if setup.returncode:
        sys.exit(setup.stdout + setup.stderr)
    tests = sorted({t for e in entries for t in e["tests"]})
    failure = built(tests)
    if failure or not tests:
        sys.exit(failure or "mutants: nothing chosen")
    for t in tests:
        if caught([t]):
            sys.exit(f"mutants: {t} fails without any fault")
    bad = 0
    for e in entries:
        problem = try_one(e)
        bad += problem is not None
        print(f"{'ok      ' if problem is None else 'PROBLEM '} {e['file']}: {e['what']}" +
              (f" (mutants.txt:{e['line']}: {problem})" if problem else ""), flush=True)
    print(f"mutants: {len(entries) - bad} of {len(entries)} caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
