"""A wall clock that can be set for one process, by a small library before libc. Linux only.

    clock = WallClock(directory)
    Server(Options(env=clock.variables))
    clock.step(+40)

Only the wall clock is changed: monotonic clocks go on, as on a machine whose time is set.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);
static const volatile long long *offset; /* nanoseconds, in a file that others write */

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("QUORLOCK_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *place = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) offset = place;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) begin();
    int result = real(clock, now);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long sum = now->tv_sec * 1000000000LL + now->tv_nsec + *offset;
        now->tv_sec = sum / 1000000000LL;
        now->tv_nsec = sum % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (place) *place = precise.tv_sec;
    return precise.tv_sec;
}
"""


class WallClock:
    """One clock; every process that is started with its variables reads it."""

    def __init__(self, directory: Path, name: str = "wall-clock") -> None:
        """Shows the right time; `directory` keeps its file."""
        self._path = directory / name
        self.offset = 0.0
        self.step(0.0)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a process that reads it."""
        return {"LD_PRELOAD": _library(), "QUORLOCK_WALL_CLOCK": str(self._path)}

    def step(self, seconds: float) -> None:
        """Sets it forward, or back."""
        self.offset += seconds
        if not self._path.exists():
            self._path.write_bytes(bytes(8))
        # In place: the processes have the file mapped.
        with self._path.open("r+b") as file:
            file.write(struct.pack("q", round(self.offset * 1e9)))


@cache
def _library() -> str:
    # Kept for the life of this process, like the servers that it is loaded into.
    folder = tempfile.TemporaryDirectory(prefix="quorlock-clock-")
    _folders.append(folder)
    source, library = Path(folder.name) / "clock.c", Path(folder.name) / "clock.so"
    source.write_text(_SOURCE)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return str(library)


_folders: list[tempfile.TemporaryDirectory[str]] = []
