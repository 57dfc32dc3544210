#!/usr/bin/env python3
"""Writes tests/golden/bleu.json: corpora with what sacreBLEU (pip install sacrebleu) says of them.

Usage: golden_bleu.py >tests/golden/bleu.json
Segments are sentences of Pride and Prejudice, damaged at random, and hand-made ones that touch every rule of the 13a
tokenizer; small corpora without matches of some order show the smoothing.
"""
import json
import os
import random
import re

import sacrebleu

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HARD = [
    "Don't pay $3,000.50 (or 1.5%), e.g. at 10:30-11:45!", "a.b.c ... ,., 1.a a.1 .5 5. ,", "x-y 3-4 3-\nfour 3--4 -",
    "&quot;AT&amp;T&quot; &lt;b&gt; &amp;lt; & alone", "<skipped>gone <skipped> twice", "  blanks   and\ttabs \n",
    "Größe: 3,5 m² – „Zitat“, l'été, naïve…", "日本語、テスト。 full　width", "no\u00a0break\u2003em", "{curly} [square] ~`^_@#%*/\\|<>=+;:?",
    "", " ", "A", "the the the the the the the", "100,000.00", "Ünï.cödé,ä.1ß", "end with dot.", "3.", "-5 -- 7-", "e\u0301.\u0301,",
]


def damaged(rng, s, rate):
    words = s.split()
    for i in range(len(words)):
        u = rng.random()
        if u < rate:
            words[i] = rng.choice(words)
        elif u < 1.5 * rate:
            words[i] = ""
        elif u < 2 * rate:
            j = rng.randrange(len(words))
            words[i], words[j] = words[j], words[i]
    return " ".join(words)


def sentences():
    text = open(os.path.join(ROOT, "data/austen/austen.txt"), encoding="utf-8").read()
    found = re.findall(r"[A-Z\"][^.!?]{30,160}[.!?]\"?", re.sub(r"\s+", " ", text[2000:200000]))
    return found


def case(name, hyp, ref):
    b = sacrebleu.metrics.BLEU(tokenize="13a", smooth_method="exp")
    r = b.corpus_score(hyp, [ref])
    tok = sacrebleu.tokenizers.tokenizer_13a.Tokenizer13a()
    return {"name": name, "hyp": hyp, "ref": ref, "tokens": [tok(h.rstrip()) for h in hyp], "score": r.score,
            "precisions": r.precisions, "bp": r.bp, "counts": r.counts, "totals": r.totals, "sys_len": r.sys_len,
            "ref_len": r.ref_len}


def main():
    rng, s = random.Random(1), sentences()
    cases = [case("hard, itself", HARD, HARD), case("hard, reversed", HARD[::-1], HARD)]
    for rate in (0.02, 0.1, 0.3):
        ref = rng.sample(s, 25)
        cases.append(case(f"damaged {rate}", [damaged(rng, r, rate) for r in ref], ref))
    ref = rng.sample(s, 10)
    cases.append(case("cut short", [" ".join(r.split()[: len(r.split()) // 2]) for r in ref], ref))
    cases.append(case("too long", [r + " and so on and so on" for r in ref], ref))
    cases.append(case("no four in a row", ["the cat sat on mats", "a b"], ["the cat lay on mats", "a c"]))
    cases.append(case("only single words", ["d c b a e"], ["a b c d f"]))
    cases.append(case("nothing right", ["x y z w"], ["a b c d"]))
    cases.append(case("too short for four", ["a b c"], ["a b c"]))
    cases.append(case("empty output", ["", ""], ["a b c d", "e f"]))
    cases.append(case("repeated words", ["the the the the the the the"], ["the cat is on the mat"]))
    print(json.dumps(cases, ensure_ascii=True, indent=0))


if __name__ == "__main__":
    main()
