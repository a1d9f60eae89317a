// The floor: the least that a quorum lock over sockets can cost. One thread, one connection a node, every
// command written before any reply is read, decided at the majority. It looks for replies without sleeping,
// and releases by the server's own command where there is one (DELIFEQ of Valkey 9, DELEX of Redis 8.4). It
// has no retries, no validity, no fencing and no error handling beyond giving up: it is what the others are
// measured against, not a lock.
//
//   floor PORT...          then lines of JSON on standard input, as all contestants (see bench/README.md)
//   floor --plain PORT...  as one would write it at first: sleeps until a reply comes, releases by script
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NODES = 16, KEY = 32 };
#define HOLDER "b3f1c9d20a7e4856b3f1c9d20a7e4856b3f1c9d2"
#define SCRIPT                                                                                    \
  "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"

struct node {
  int fd;
  long awaited;  // replies still under way; late ones of earlier rounds come first
  char last;     // first byte of the latest reply: '+' or ':' is a yes, '$' a no
};

// How a key is deleted if it still has the holder's value.
enum release { BY_SCRIPT, DELIFEQ, DELEX };

static struct node nodes[MOST_NODES];
static struct pollfd polls[MOST_NODES];
static int count;
static int sleeps;  // between replies
static char sha[41];
static enum release release_by = BY_SCRIPT;

static void give_up(const char *what) {
  perror(what);
  exit(1);
}

static double seconds(clockid_t clock) {
  struct timespec at;
  clock_gettime(clock, &at);
  return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void join(struct node *node, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  node->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(node->fd, (struct sockaddr *)&address, sizeof address)) give_up("connect");
  int on = 1;
  setsockopt(node->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  char text[512];
  int length = snprintf(text, sizeof text, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
                        strlen(SCRIPT), SCRIPT);
  if (write(node->fd, text, (size_t)length) != length) give_up("write");
  // "$40\r\n" and the digest
  if (read(node->fd, text, sizeof text) < 45 || text[0] != '$') give_up("script load");
  memcpy(sha, text + 5, 40);
}

// The first of the server's own commands that it knows; what is not known is answered by an error.
static enum release best_release(const struct node *node) {
  const char *tries[] = {[DELIFEQ] = "DELIFEQ floor:none " HOLDER "\r\n",
                         [DELEX] = "DELEX floor:none IFEQ " HOLDER "\r\n"};
  for (int i = DELIFEQ; i <= DELEX; i++) {
    char text[512];
    ssize_t length = (ssize_t)strlen(tries[i]);
    if (write(node->fd, tries[i], (size_t)length) != length) give_up("write");
    if (read(node->fd, text, sizeof text) <= 0) give_up("read");
    if (text[0] == ':') return (enum release)i;
  }
  return BY_SCRIPT;
}

static void to_all(const char *command, size_t length) {
  for (int i = 0; i < count; i++) {
    if (send(nodes[i].fd, command, length, MSG_NOSIGNAL) != (ssize_t)length) give_up("send");
    nodes[i].awaited++;
  }
}

// Every reply here is one line.
static void take_replies(struct node *node) {
  char text[4096];
  ssize_t length = recv(node->fd, text, sizeof text, MSG_DONTWAIT);
  if (length <= 0) give_up("recv");
  char first = text[0];
  for (ssize_t i = 0; i < length; i++)
    if (text[i] == '\n') {
      node->awaited--;
      node->last = first;
      if (i + 1 < length) first = text[i + 1];
    }
}

// Until at least one node can be read; gives up after about five seconds.
static void await_any(void) {
  double end = 0;
  for (long looks = 1;; looks++) {
    int ready = poll(polls, (nfds_t)count, sleeps ? 5000 : 0);
    if (ready > 0) return;
    if (ready < 0 || sleeps) give_up("poll");
    if (looks % 4096) continue;  // a look at the clock costs, too
    if (end == 0) end = seconds(CLOCK_MONOTONIC) + 5;
    if (seconds(CLOCK_MONOTONIC) > end) give_up("no reply");
  }
}

static void await_majority(void) {
  int votes = 0, voted[MOST_NODES] = {0};
  while (votes < count / 2 + 1) {
    await_any();
    for (int i = 0; i < count; i++) {
      if (!(polls[i].revents & POLLIN)) continue;
      take_replies(&nodes[i]);
      if (nodes[i].awaited == 0 && !voted[i] && nodes[i].last != '$' && nodes[i].last != '-') {
        voted[i] = 1;
        votes++;
      }
    }
  }
}

static int write_release(char *text, size_t size, const char *key) {
  int length = (int)strlen(key);
  const char *rest = "$40\r\n" HOLDER "\r\n";
  switch (release_by) {
    case DELIFEQ:
      return snprintf(text, size, "*3\r\n$7\r\nDELIFEQ\r\n$%d\r\n%s\r\n%s", length, key, rest);
    case DELEX:
      return snprintf(text, size, "*4\r\n$5\r\nDELEX\r\n$%d\r\n%s\r\n$4\r\nIFEQ\r\n%s", length, key, rest);
    default:
      return snprintf(text, size, "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n%s", sha, length,
                      key, rest);
  }
}

static void pair(const char *key) {
  char grant[256], release[256];
  int key_length = (int)strlen(key);
  int granting = snprintf(grant, sizeof grant,
                          "*6\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$40\r\n" HOLDER
                          "\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n",
                          key_length, key);
  int releasing = write_release(release, sizeof release, key);
  to_all(grant, (size_t)granting);
  await_majority();
  to_all(release, (size_t)releasing);
  await_majority();
}

static double number(const char *line, const char *name, double otherwise) {
  const char *found = strstr(line, name);
  return found ? atof(found + strlen(name)) : otherwise;
}

static void pairs(const char *request) {
  long most = (long)number(request, "\"most\": ", 100000), done = 0;
  long resources = (long)number(request, "\"resources\": ", 1);
  float *micros = malloc((size_t)most * sizeof *micros);
  char key[KEY];
  double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), start = seconds(CLOCK_MONOTONIC), now = start;
  double end = start + number(request, "\"seconds\": ", 1);
  while (now < end && done < most) {
    snprintf(key, sizeof key, "floor:%ld", done % resources);
    pair(key);
    double after = seconds(CLOCK_MONOTONIC);
    micros[done++] = (float)((after - now) * 1e6);
    now = after;
  }
  printf("{\"pairs\": %ld, \"seconds\": %.6f, \"cpu\": %.6f, \"micros\": [", done, now - start,
         seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  for (long i = 0; i < done; i++) printf(i ? ",%.1f" : "%.1f", micros[i]);
  printf("]}\n");
  free(micros);
}

int main(int argc, char **argv) {
  sleeps = argc > 1 && strcmp(argv[1], "--plain") == 0;
  char **ports = argv + 1 + sleeps;
  count = argc - 1 - sleeps;
  if (count < 1 || count > MOST_NODES) return 2;
  for (int i = 0; i < count; i++) {
    join(&nodes[i], atoi(ports[i]));
    polls[i] = (struct pollfd){.fd = nodes[i].fd, .events = POLLIN};
  }
  if (!sleeps) release_by = best_release(&nodes[0]);
  const char *names[] = {"script", "DELIFEQ", "DELEX"};
  printf("{\"version\": \"C, release by %s\"}\n", names[release_by]);
  fflush(stdout);
  char request[1024];
  while (fgets(request, sizeof request, stdin)) {
    if (strstr(request, "\"pairs\""))
      pairs(request);
    else
      printf("{\"error\": \"only pairs\"}\n");
    fflush(stdout);
  }
  return 0;
}
