#!/usr/bin/env python3
"""What `sonde train` draws on a terminal, played back on a small one: a block that stays in its place, gone at the end, with
the lines of validations left. A pipe gets those lines and no control character.

  SONDE_BIN=build/sonde tests/train_view_test.py
"""
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios

BIN = os.environ["SONDE_BIN"]
BLOCK = ["[", "loss ", "lr ", "stream ", "gradient ", "update "]


def check(ok, what):
    if not ok:
        sys.exit("train_view_test: " + what)


def play(text):
    """The screen after `text`: CR, LF, up (A), erase to the end of the line (K) and of the screen (J)."""
    screen, row, col = [[]], 0, 0
    for m in re.finditer(r"\x1b\[(\??)(\d*)([A-Za-z])|(.)", text, re.S):
        if m[3] == "A":
            row -= int(m[2] or 1)
            check(row >= 0, "the block climbs off the screen")
        elif m[3] in ("K", "J"):
            screen[row] = screen[row][:col]
            if m[3] == "J":
                del screen[row + 1:]
        elif m[4] == "\r":
            col = 0
        elif m[4] == "\n":
            row += 1
            screen += [[] for _ in range(row + 1 - len(screen))]
        elif m[4]:
            line = screen[row]
            line += " " * (col + 1 - len(line))
            line[col] = m[4]
            col += 1
    return ["".join(l).rstrip() for l in screen]


def on_a_terminal(args):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    p = subprocess.Popen([BIN, *args], stdin=slave, stdout=slave, stderr=slave, close_fds=True,
                         env=dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8"))
    os.close(slave)
    raw = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        raw += piece
    check(p.wait() == 0, f"exit {p.returncode}: {raw[-300:]}")
    return raw.decode()


def main():
    top = tempfile.mkdtemp(prefix="train-view-")
    try:
        data = os.path.join(top, "text")
        open(data, "w").write("the sea of time was a door and we open it slowly. " * 800)
        args = ["train", "pre", "layers=3", "width=32", "--data", data, "--batch", "8", "--tokens", "32", "--steps", "1800",
                "--eval-every", "600", "--eval-batches", "1", "--threads", "1"]
        raw = on_a_terminal(args)
        frames = [m.end() for m in re.finditer(r"\x1b\[\?7h", raw)]
        check(len(frames) >= 2, f"{len(frames)} drawings")
        for end in [frames[0], frames[len(frames) // 2], frames[-1]]:
            screen = [l for l in play(raw[:end]) if l]
            check([b for b, l in zip(BLOCK, screen[-6:]) if l.lstrip().startswith(b)] == BLOCK, "not the block: " + "\n".join(screen[-8:]))
            check(sum(" of 1800, epoch" in l for l in screen) == 1, "the block is there twice")
            check(" left " in screen[-6] and "tokens/s" in screen[-6], screen[-6])
        end = play(raw)
        check(not any(" of 1800, epoch" in l for l in end), "the block stays behind")
        check(len([l for l in end if re.match(r" +(600|1200|1800) ", l)]) == 3, "validations: " + "\n".join(end[:12]))
        r = subprocess.run([BIN, *args], capture_output=True, text=True, timeout=300)
        check(r.returncode == 0 and "\x1b" not in r.stdout + r.stderr and "\r" not in r.stdout + r.stderr, "control characters in a pipe")
        check(len(re.findall(r"^ +(?:600|1200|1800) ", r.stdout, re.M)) == 3, "a pipe gets no lines")
        check("gradient  scale" not in r.stdout, "a loss scale where there is none")
        half = ["150" if a == "1800" else "50" if a == "600" else a for a in args] + ["--dtype", "f16", "--scale-every", "60"]
        raw = on_a_terminal(half)
        frames = [m.end() for m in re.finditer(r"\x1b\[\?7h", raw)]
        check(frames and re.search(r"lr .* gradient .* loss scale 2\^1[5-8]   \d+ skipped", "\n".join(play(raw[:frames[-1]]))), "no loss scale is drawn")
        lines = [l for l in play(raw) if re.match(r" +(step +epoch|50|100|150) ", l)]
        check(" gradient  scale " in lines[0] and all(re.search(r" 2\^1[4-8] ", l) for l in lines[1:]), "\n".join(lines))
        # numbers of any size keep the columns where they are
        r = subprocess.run([BIN, "train", "each: x = x + F(N(x))", "family=transformer", "layers=2", "width=32", "heads=2", "--data", data, "--batch", "4",
                            "--tokens", "32", "--steps", "10", "--optimizer", "sgd", "--lr", "1e6", "--clip", "0", "--warmup", "0", "--dtype", "f64"],
                           capture_output=True, text=True, timeout=300)
        lines = [l for l in r.stdout.splitlines() if re.match(r" +(step +epoch|[0-9]+ +[0-9.]+ )", l)]
        check(r.returncode == 4 and len(lines) == 4 and any("e+2" in l for l in lines), r.stdout[:900])
        for column in ("loss", "valid", "gradient"):
            end = lines[0].index(column) + len(column)
            check(all(l[end - 1] != " " and l[end] == " " for l in lines), f"{column} does not end at {end}:\n" + "\n".join(lines))
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
