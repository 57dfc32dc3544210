"""What the benches share: running and timing commands, a Python that has PyTorch, medians."""
import glob
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
median = statistics.median


def spread(v):
    return f"{min(v):.4g} .. {max(v):.4g}"


def timed(command, env=None, stdin=b""):
    """-> (seconds, peak MiB, stdout)"""
    before = time.perf_counter()
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    p.stdin.write(stdin)
    p.stdin.close()
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {' '.join(command)} failed with {p.returncode}")
    return time.perf_counter() - before, usage.ru_maxrss / 1024, out


def torch_python():
    """A Python that imports torch, Debian's first; None."""
    return next((p for p in ("/usr/bin/python3", sys.executable)
                 if subprocess.run([p, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0), None)


# PyTorch as apt installs it, or with one thread in OpenBLAS (its threads and OpenMP's get into each other's way).
PLAIN_SETTINGS = [{}, {"OPENBLAS_NUM_THREADS": "1"}]


def tuned_settings():
    """The plain ones; OpenBLAS for OpenMP where it is installed, with bound threads; and the last of these with AVX-512 kernels
    where the processor has them and a malloc that gives nothing back to the system."""
    openmp = glob.glob("/usr/lib/*/openblas-openmp")
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        wide = "avx512f" in f.read()
    blas = [{"LD_LIBRARY_PATH": openmp[0]}] if openmp else []
    keep = {k: str(4 << 30) for k in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}
    # OpenBLAS' own threads would all inherit one processor from a bound caller
    best = {**blas[0], "OMP_PROC_BIND": "true"} if openmp else PLAIN_SETTINGS[-1]
    # OpenBLAS takes a processor that is newer than itself for an old one: four times slower
    kernels = {"ATEN_CPU_CAPABILITY": "avx512", "OPENBLAS_CORETYPE": "SkylakeX"} if wide else {}
    tuned = {**best, **keep, "MALLOC_TOP_PAD_": str(256 << 20), **kernels}
    return [*PLAIN_SETTINGS, *blas, tuned]


def fastest_setting(seconds, tuned):
    """The setting in which seconds(setting) is least; `tuned`: the last one, without trying."""
    settings = tuned_settings()
    return settings[-1] if tuned else min(settings, key=seconds)


def show_setting(setting):
    return " ".join(f"{k}={v}" for k, v in setting.items())


def blas():
    """File of the BLAS that PyTorch runs on: Debian's alternatives decide, and it matters by a factor of ten."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        names = {os.path.realpath(m.group(0)) for m in re.finditer(r"/\S*lib(open)?blas\S*\.so\S*", f.read())}
    return ", ".join(sorted(names)) or "built in"
