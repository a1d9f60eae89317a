// Counts the instructions that a program runs between two moments at which it stops itself, by stepping through
// them one by one. Slow, and the same on every machine: no counters of the processor, no permissions, no timing.
//
//   count PROGRAM ARGUMENT...      prints the number; 3 if tracing is not allowed here
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 1, MISUSED = 2, NOT_ALLOWED = 3 };

static int stopped_by(pid_t child, int signal, int *status) {
  return waitpid(child, status, 0) == child && WIFSTOPPED(*status) && WSTOPSIG(*status) == signal;
}

int main(int argc, char **argv) {
  if (argc < 2) return MISUSED;
  pid_t child = fork();
  if (child == 0) {
    personality(ADDR_NO_RANDOMIZE);  // where things lie must not change what is run
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(NOT_ALLOWED);
    execv(argv[1], argv + 1);
    _exit(FAILED);
  }
  int status = 0;
  if (!stopped_by(child, SIGTRAP, &status))  // at its first instruction
    return WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED ? NOT_ALLOWED : FAILED;
  if (ptrace(PTRACE_CONT, child, 0, 0) || !stopped_by(child, SIGSTOP, &status)) return FAILED;
  long count = 0;
  do {
    if (ptrace(PTRACE_SINGLESTEP, child, 0, 0)) return FAILED;
    count++;
  } while (stopped_by(child, SIGTRAP, &status));
  if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) return FAILED;
  ptrace(PTRACE_CONT, child, 0, 0);
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) return FAILED;
  printf("%ld\n", count);
  return 0;
}
