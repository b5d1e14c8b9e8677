"""A clock that jumps, for single processes: a library between them and the C library, which reads a file.

It shifts what ``time``, ``gettimeofday`` and ``clock_gettime(CLOCK_REALTIME)`` say, hence what Python, OpenSSL and
everything else in the process sees. The monotonic clock goes on, as it does when a machine's clock is set.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("cc")
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
    const char *name = getenv("CLOCK_SHIFT_FILE");
    FILE *file = name ? fopen(name, "r") : NULL;
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""


class JumpingClock:
    """Environment for processes, and how far their clocks are off."""

    def __init__(self, folder: Path) -> None:
        assert COMPILER is not None
        self.file = folder / "clock-shift"
        self.jump(0)
        (folder / "clock.c").write_text(SOURCE)
        library = folder / "clock.so"
        words = [COMPILER, "-shared", "-fPIC", "-O1", "-o", library, folder / "clock.c", "-ldl"]
        subprocess.run([str(word) for word in words], check=True, capture_output=True)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(self.file)}

    def jump(self, seconds: int) -> None:
        """From now on, all clocks are off by this much."""
        aside = self.file.with_suffix(".new")
        aside.write_text(str(seconds))
        aside.rename(self.file)
