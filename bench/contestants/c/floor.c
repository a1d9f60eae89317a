// The floor: the least that a quorum lock over sockets can cost. One thread, one connection a node, every
// command written before any reply is read, decided at the majority. It has no retries, no validity, no
// fencing and no error handling beyond giving up: it is what the others are measured against, not a lock.
//
//   floor PORT...      then lines of JSON on standard input, as all contestants (see bench/README.md)
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
#define RELEASE                                                                                    \
  "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"

struct node {
  int fd;
  long awaited;  // replies still under way; late ones of earlier rounds come first
  char last;     // first byte of the latest reply: '+' or ':' is a yes, '$' a no
};

static struct node nodes[MOST_NODES];
static struct pollfd polls[MOST_NODES];
static int count;
static char sha[41];

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
                        strlen(RELEASE), RELEASE);
  if (write(node->fd, text, (size_t)length) != length) give_up("write");
  // "$40\r\n" and the digest
  if (read(node->fd, text, sizeof text) < 45 || text[0] != '$') give_up("script load");
  memcpy(sha, text + 5, 40);
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

static void await_majority(void) {
  int votes = 0, voted[MOST_NODES] = {0};
  while (votes < count / 2 + 1) {
    if (poll(polls, (nfds_t)count, 5000) <= 0) give_up("poll");
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

static void pair(const char *key) {
  char grant[256], release[256];
  int key_length = (int)strlen(key);
  int granting = snprintf(grant, sizeof grant,
                          "*6\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$40\r\n" HOLDER
                          "\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n",
                          key_length, key);
  int releasing = snprintf(release, sizeof release,
                           "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n$40\r\n" HOLDER
                           "\r\n",
                           sha, key_length, key);
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
  count = argc - 1;
  if (count < 1 || count > MOST_NODES) return 2;
  for (int i = 0; i < count; i++) {
    join(&nodes[i], atoi(argv[i + 1]));
    polls[i] = (struct pollfd){.fd = nodes[i].fd, .events = POLLIN};
  }
  printf("{\"contestant\": \"floor\", \"version\": \"C\"}\n");
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
