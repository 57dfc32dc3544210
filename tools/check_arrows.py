#!/usr/bin/env python3
"""Compares the arrows of docs/architecture.md with the #include lines of src/.

The block after the line that begins with "Arrows" holds chains such as "a, b < c < d": c may include the front
headers (c/c.h) of a and b and of whatever those may include. A line "also front: x/y.h, ..." names further headers
that other folders may include. Fails on a folder that is not drawn, an arrow that is not drawn, a cycle, an include of
another folder's inner header, and on a foreign library outside the folder that owns it.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Libraries with one home: header prefix -> folders that may include it.
OWNED = {"mpi.h": {"dist"}, "oneapi/": {"kernels"}, "cblas.h": {"kernels"}, "yaml.h": {"spec"}, "omp.h": {"base", "kernels"},
         "dlfcn.h": {"kernels"}}


def read_arrows(path):
    """-> {folder: set of folders it may include directly}, {extra front headers}."""
    direct, extra = {}, set()
    lines = iter(open(path, encoding="utf-8").read().splitlines())
    for line in lines:
        if line.startswith("Arrows"):
            break
    for line in lines:
        if line and not line.startswith("    "):
            break
        if line.strip().startswith("also front:"):
            extra |= {h.strip() for h in line.split(":", 1)[1].split(",")}
            continue
        for chain in re.split(r" {2,}", line.strip()):
            links = [[n.strip() for n in part.split(",")] for part in chain.split("<")] if chain else []
            for group in links:
                for name in group:
                    direct.setdefault(name, set())
            for below, above in zip(links, links[1:]):
                for name in above:
                    direct[name] |= set(below)
    return direct, extra


def close(direct):
    """Transitive closure; exits on a cycle."""
    reach = {}

    def visit(name, path):
        if name in path:
            sys.exit("arrows: a cycle: " + " < ".join(path + [name]))
        if name not in reach:
            found = set()
            for below in direct[name]:
                found |= {below} | visit(below, path + [name])
            reach[name] = found
        return reach[name]

    for name in direct:
        visit(name, [])
    return reach


def complaints_of(path, folder, allowed, extra, folders):
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        quoted = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        angled = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        where = f"{os.path.relpath(path, ROOT)}:{number}"
        if angled:
            for prefix, homes in OWNED.items():
                if angled[1].startswith(prefix) and folder not in homes:
                    yield f"{where}: <{angled[1]}> belongs to {', '.join(sorted(homes))}"
        if not quoted or "/" not in quoted[1]:
            continue  # a neighbour in the same folder
        other = quoted[1].split("/")[0]
        if other == folder or other not in folders:
            continue
        if other not in allowed:
            yield f"{where}: {folder} may not include {other} (no arrow {other} < {folder})"
        elif quoted[1] != f"{other}/{other}.h" and quoted[1] not in extra:
            yield f"{where}: {quoted[1]} is not the front header of {other}"


def main():
    direct, extra = read_arrows(os.path.join(ROOT, "docs", "architecture.md"))
    reach = close(direct)
    src = os.path.join(ROOT, "src")
    folders = {d for d in os.listdir(src) if os.path.isdir(os.path.join(src, d))}
    bad = []
    for folder in sorted(folders):
        sources = [os.path.join(at, f) for at, _, names in os.walk(os.path.join(src, folder)) for f in sorted(names)
                   if f.endswith((".c", ".h", ".inc"))]
        if sources and folder not in reach:
            bad.append(f"src/{folder}: not in the arrows of docs/architecture.md")
            continue
        for path in sources:
            bad += complaints_of(path, folder, reach.get(folder, set()), extra, folders)
    for name in extra:
        if not os.path.exists(os.path.join(src, name)):
            bad.append(f"docs/architecture.md: also front: {name} does not exist")
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
