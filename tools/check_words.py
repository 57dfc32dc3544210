#!/usr/bin/env python3
"""Words that may not stand in src/ outside their one home.

  printing, exit, abort      only in cli/: the library returns a status and a message
  malloc and its kin         only in base/alloc.c: tests make the n-th allocation fail there
  %f %g %e in format texts   only in base/num.c: elsewhere they would print the locale's comma (%.0f prints none)
  atof, strtod, scanf        only in base/num.c, for the same reason
  setlocale, rand, strerror  only in cli/: global state
  static variables           only const, thread-local or filled once: no global mutable state outside cli/
Comments are not looked at. A line that must be an exception says so: "// allowed: reason", or "// written once" for
what pthread_once guards.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RULES = [
    (r"(?<![\w.>])(?:printf|puts|putchar|perror|vprintf|exit|_exit|abort|quick_exit)\s*\(", lambda p: p.startswith("cli/"),
     "printing and exiting belong to cli/"),
    (r"\bf(?:printf|puts|putc|write)\s*\(\s*(?:std(?:out|err)|.*,\s*std(?:out|err))", lambda p: p.startswith("cli/"),
     "printing belongs to cli/"),
    (r"(?<![\w.>])(?:malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|asprintf|vasprintf)\s*\(",
     lambda p: p == "base/alloc.c", "the heap's only door is base/alloc.c"),
    (r'"[^"]*%(?![-+ 0-9]*\.0f)[-+ #0-9.*]*(?:l|L)?[fFgGeEaA](?![a-z])[^"]*"', lambda p: p == "base/num.c",
     "numbers are printed by snd_format_num"),
    (r"(?<![\w.>])(?:atof|strtod|strtof|strtold|sscanf|fscanf|scanf)\s*\(", lambda p: p == "base/num.c",
     "numbers are parsed by snd_parse_num"),
    (r"(?<![\w.>])(?:setlocale|rand|srand|drand48|strtok|strerror)\s*\(", lambda p: p.startswith("cli/"),
     "not thread-safe"),
    (r"^\s*static (?!const\b|_Thread_local\b|inline\b|_Atomic\b|pthread_once_t\b|pthread_mutex_t\b)(?![^=;]*\*const \w+\[)[^()={]*(?:;|=|\[)",
     lambda p: p.startswith("cli/"), "no global mutable state"),
]


def strip_comments(text):
    """Comments become blanks; line breaks and string literals stay."""
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/'

    def blank(m):
        return m[0] if m[0][0] in "\"'" else re.sub(r"[^\n]", " ", m[0])

    return re.sub(pattern, blank, text, flags=re.S)


def main():
    bad = []
    src = os.path.join(ROOT, "src")
    for at, _, names in sorted(os.walk(src)):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(at, name), src)
            if not name.endswith((".c", ".h", ".inc")):
                continue
            text = open(os.path.join(at, name), encoding="utf-8").read()
            raw = text.splitlines()
            for number, line in enumerate(strip_comments(text).splitlines(), 1):
                if re.search("//.*(allowed:|written once)", raw[number - 1]):
                    continue
                for pattern, at_home, why in RULES:
                    if not at_home(path) and re.search(pattern, line):
                        bad.append(f"src/{path}:{number}: {why}: {line.strip()}")
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
