#!/usr/bin/env python3
"""Every row of a .def table has its code, and every such piece of code has its row.

ROWS says, for the tables that promise more than a list, what a row's name stands for: a function or another symbol
defined in the folder. For all tables: row names are unique, and the table is included by some source.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# table -> (row macro, index of the argument that names the code, "function" or "symbol", pattern, {} being that name)
# symbol: a definition "const ... NAME =", function: "TYPE NAME(", at the start of a line in some .c of the folder.
ROWS = {
    "cli/verbs.def": ("SND_VERB", 0, "function", "snd_verb_{}"),
    "ops/ops.def": ("SND_OP_ROW", 1, "symbol", "snd_op_{}"),
    "report/sections.def": ("SND_SECTION", 0, "function", "snd_section_{}"),
}


def rows_of(path):
    """[(macro, [arguments], line)] of one table."""
    text = open(path, encoding="utf-8").read()
    text = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), text)
    found = []
    for m in re.finditer(r"^([A-Z][A-Z0-9_]+)\(", text, re.M):
        depth, start, args, i, quoted = 1, m.end(), [], m.end(), False
        while depth and i < len(text):
            c = text[i]
            if c == '"' and text[i - 1] != "\\":
                quoted = not quoted
            elif not quoted and c in "([{":
                depth += 1
            elif not quoted and c in ")]}":
                depth -= 1
            if not quoted and ((c == "," and depth == 1) or depth == 0):
                args.append(text[start:i].strip())
                start = i + 1
            i += 1
        found.append((m[1], args, text.count("\n", 0, m.start()) + 1))
    return found


def sources_in(folder):
    return glob.glob(os.path.join(folder, "**", "*.c"), recursive=True)


def check_functions(table, folder, names, pattern):
    """A row's function is defined in the folder; a function of that shape has a row."""
    shape = re.compile(r"^(?!static)[a-z][\w ]*[ *](" + pattern.replace("{}", r"\w+") + r")\(", re.M)
    want = {pattern.format(n) for n in names}
    have = {m for p in sources_in(folder) for m in shape.findall(open(p, encoding="utf-8").read())}
    have -= {pattern.format(word) for word in ("at", "count", "find", "name")}  # the table's own access
    for f in sorted(want - have):
        yield f"src/{table}: a row without its function {f}"
    for f in sorted(have - want):
        yield f"src/{table}: no row for {f}"


def check_symbols(table, folder, names, pattern):
    """A row's symbol is defined once; a definition of that shape in the folder has a row."""
    shape = pattern.replace("{}", r"(\w+)")
    defined = {}
    for path in sources_in(folder):
        for m in re.finditer(r"^const [\w ]*\b(" + shape + r")\s*=", open(path, encoding="utf-8").read(), re.M):
            defined.setdefault(m[1], []).append(os.path.basename(path))
    for n in sorted(set(names) - set(defined)):
        yield f"src/{table}: {n} is not defined in the folder"
    for n in sorted(set(defined) - set(names)):
        yield f"src/{table}: no row for {n} of {defined[n][0]}"


def main():
    bad = []
    src = os.path.join(ROOT, "src")
    all_text = "".join(open(p, encoding="utf-8").read() for p in glob.glob(src + "/**/*.[ch]", recursive=True))
    for path in sorted(glob.glob(src + "/**/*.def", recursive=True)):
        table = os.path.relpath(path, src)
        rows = rows_of(path)
        if f'"{table}"' not in all_text and f'"{os.path.basename(table)}"' not in all_text:
            bad.append(f"src/{table}: nobody includes this table")
        seen = {}
        for macro, args, line in rows:
            # an option may have a row of its own for some verbs
            verbs = args[6].strip('"').split() if macro.startswith("SND_OPTION") else [""]
            for key in [(macro.removesuffix("_FOR"), args[0], v) for v in verbs]:
                if key in seen:
                    bad.append(f"src/{table}:{line}: {args[0]} is already in line {seen[key]}")
                seen[key] = line
        if table in ROWS:
            macro, index, kind, pattern = ROWS[table]
            names = [a[index] for m, a, _ in rows if m == macro]
            if not names:
                bad.append(f"src/{table}: no row {macro}(...)")
            check = {"function": check_functions, "symbol": check_symbols}.get(kind)
            if check:
                bad += check(table, os.path.dirname(path), names, pattern)
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
