#!/usr/bin/env python3
"""English-German sentence pairs from LibreOffice's help, to stdout: source tab target.

Usage: align_help.py ENGLISH_DIR GERMAN_DIR       (the folders .../help/en-US/text and .../help/de/text)
Both languages come from one source, so paragraphs have the same id in both: <p id="par_id3149..."> and headings. A pair of
paragraphs is cut into sentences where both sides have as many; then repetitions go, and what is no clean translation:
lengths of 3 to 60 words and a ratio of 0.5 to 2.2, three quarters letters, the same digits on both sides, a function word
of its language in each, no markup or placeholders left. The texts are MPL-2.0.
"""
import html
import os
import re
import sys
from html.parser import HTMLParser

BLOCKS = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}
ENGLISH = set("the a an of to in is are and or for with on by from you your if this that can be as not it when which".split())
GERMAN = set("der die das ein eine einen einem einer des dem den und oder zu in ist sind für mit auf von sie ihre wenn "
             "dieser diese dieses kann können als nicht es im am beim zum zur wird werden".split())


class Paragraphs(HTMLParser):
    """{id: text} of the blocks that have an id. Of words that differ by program or system the first stand."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.id, self.tag, self.text, self.skip = {}, None, None, [], 0
        self.spans = []  # open ones: [a choice?, choices seen, left out?]

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "style"):
            self.skip += 1
        if tag == "span":
            over = self.spans[-1] if self.spans else [False, 0, False]
            over[1] += 1
            left_out = over[0] and over[1] > 1
            self.spans.append(["switchinline" in (dict(attrs).get("class") or ""), 0, left_out])
            self.skip += left_out
        if tag in BLOCKS:
            self.finish()
            self.id, self.tag = dict(attrs).get("id"), tag

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.skip -= 1
        if tag == "span" and self.spans:
            self.skip -= self.spans.pop()[2]
        if tag == self.tag:
            self.finish()

    def handle_data(self, data):
        if self.id and not self.skip:
            self.text.append(data)

    def finish(self):
        text = re.sub(r"\s+", " ", "".join(self.text)).strip()
        if self.id and text:
            self.found[self.id] = text
        self.id, self.tag, self.text = None, None, []


def paragraphs(path):
    parser = Paragraphs()
    parser.feed(open(path, encoding="utf-8", errors="replace").read())
    parser.finish()
    return parser.found


def sentences(text):
    return re.split(r"(?<=[.!?])[\"”“)]? +(?=[A-ZÄÖÜ„\"“(])", text)


def is_clean(a, b):
    wa, wb = a.split(), b.split()
    if not (3 <= len(wa) <= 60 and 3 <= len(wb) <= 60 and 0.5 <= len(a) / len(b) <= 2.2) or a == b:
        return False
    if any(sum(c.isalpha() or c == " " for c in s) < 0.75 * len(s) for s in (a, b)):
        return False
    if any(re.search(r"[<>{}\\|$%�\t]|https?:", s) for s in (a, b)):
        return False
    if sorted(re.findall(r"\d+", a)) != sorted(re.findall(r"\d+", b)):
        return False
    return any(w.lower() in ENGLISH for w in wa) and any(w.lower().strip(",.") in GERMAN for w in wb)


def pairs(english, german):
    for folder, folders, files in os.walk(english):
        folders.sort()
        for name in sorted(files):
            other = os.path.join(german, os.path.relpath(folder, english), name)
            if not name.endswith(".html") or not os.path.exists(other):
                continue
            left, right = paragraphs(os.path.join(folder, name)), paragraphs(other)
            for key in left:
                if key not in right:
                    continue
                a, b = sentences(left[key]), sentences(right[key])
                yield from zip(a, b) if len(a) == len(b) else [(left[key], right[key])]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    seen, found = set(), 0
    for a, b in pairs(sys.argv[1], sys.argv[2]):
        a, b = html.unescape(a).strip(), html.unescape(b).strip()
        found += 1
        if a not in seen and is_clean(a, b):
            seen.add(a)
            print(f"{a}\t{b}")
    print(f"{len(seen)} of {found} pairs", file=sys.stderr)


if __name__ == "__main__":
    main()
